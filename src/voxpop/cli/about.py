"""`voxpop methods` and `voxpop version`: what there is."""

from __future__ import annotations

import sys

import click

from voxpop.cli import common


@click.command()
@common.json_option
def methods(as_json: bool) -> None:
    """List the methods of estimation.

    \b
        voxpop methods
    """
    from voxpop.estimators.registry import ESTIMATORS
    from voxpop.present.terminal import show_rows

    lines = {name: estimator.summary for name, estimator in ESTIMATORS.items()}
    if as_json:
        common.print_json(lines)
    elif sys.stdout.isatty():
        columns = {"method": [*lines], "what it does": [*lines.values()]}
        show_rows("Methods", columns, common.console())
    else:
        click.echo("\n".join(f"{name}\t{line}" for name, line in lines.items()))


@click.command()
@common.json_option
def version(as_json: bool) -> None:
    """Show the versions of voxpop and its dependencies, and the backend.

    \b
        voxpop version
    """
    from voxpop.inference.engine import backend_in_use
    from voxpop.results.saved import versions

    facts = versions() | {"backend": backend_in_use()}
    if as_json:
        common.print_json(facts)
    else:
        click.echo("\n".join(f"{name} {item}" for name, item in facts.items()))
