"""The command line: read, one library call, write. Nothing heavy is imported before it is used.

One file per command. Standard output is data (tables on a terminal, CSV or JSON in a pipe);
all other messages go to standard error.
"""

from __future__ import annotations

import click

from voxpop import __version__
from voxpop.cli.about import methods, version
from voxpop.cli.aggregate import aggregate
from voxpop.cli.assign import assign
from voxpop.cli.benchmark import benchmark
from voxpop.cli.common import Commands
from voxpop.cli.convert import convert, export, formats
from voxpop.cli.diagnose import diagnose
from voxpop.cli.explain import explain
from voxpop.cli.mean import mean
from voxpop.cli.next import next_command
from voxpop.cli.plan import plan
from voxpop.cli.reproduce import reproduce
from voxpop.cli.serve import serve
from voxpop.cli.simulate import demo, simulate

_SETTINGS = {"help_option_names": ["-h", "--help"], "show_default": True}


@click.group(cls=Commands, context_settings=_SETTINGS)
@click.version_option(__version__, "--version", package_name="voxpop")
def main() -> None:
    """One honest number from many noisy answers.

    voxpop learns how noisy every worker is, and estimates the truth of every task.

    \b
        voxpop demo
        voxpop aggregate answers.csv
    """


COMMANDS = (
    *(
        aggregate,
        explain,
        diagnose,
        mean,
        plan,
        assign,
        next_command,
        serve,
        convert,
        export,
        formats,
    ),
    *(simulate, demo, benchmark, reproduce, methods, version),
)
for command in COMMANDS:
    main.add_command(command)
