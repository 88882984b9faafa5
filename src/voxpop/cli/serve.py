"""`voxpop serve`: a live campaign in a browser; its database migrated, backed up and checked."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from voxpop.cli.reading import say
from voxpop.errors import ConfigError

_NEEDED = ("fastapi", "uvicorn", "sqlalchemy", "alembic", "jinja2", "itsdangerous", "limits")
database_argument = click.argument("database")


def _there(database: str) -> str:
    """Return a database that must exist: only the service itself creates new ones."""
    if "://" not in database and not Path(database).exists():
        raise ConfigError(f"{database}: no such file")
    return database


class _Serve(click.Group):
    """A group whose first word may also be a database: `voxpop serve ages.db` runs it."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        if arguments and arguments[0] not in {*self.commands, "-h", "--help"}:
            arguments = ["run", *arguments]
        return super().parse_args(context, arguments)

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the options of running, too: `run` need not be written."""
        options = [p for p in run.params if isinstance(p, click.Option)]
        records = [p.get_help_record(context) for p in (*options, *self.get_params(context))]
        with formatter.section("Options"):
            formatter.write_dl([record for record in records if record])
        self.format_commands(context, formatter)

    def invoke(self, context: click.Context) -> Any:
        """Say which extra is missing before anything is imported from it."""
        if any(find_spec(name) is None for name in (*_NEEDED, "prometheus_client")):
            raise ConfigError("voxpop serve needs more packages: pip install 'voxpop[serve]'")
        return super().invoke(context)


@click.group(cls=_Serve, name="serve", subcommand_metavar="DATABASE | COMMAND [ARGS]...")
def serve() -> None:
    """Ask people in a browser, and watch the estimates live.

    DATABASE is a file, which is created if absent, or postgresql://… for a server.

    \b
        voxpop serve ages.db --open
        voxpop serve postgresql://localhost/ages --port 8001
        voxpop serve backup ages.db ages-monday.db
    """


@serve.command(name="run")
@database_argument
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port.  [default: 8000 or a free one]")
@click.option("--public-url", help="Address that people use; needed for another --host.")
@click.option(
    "--images",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of the images that tasks name by a relative path.",
)
@click.option("--open", "open_browser", is_flag=True, help="Open the owner's page in a browser.")
@click.option("--new-link", is_flag=True, help="Print another owner link.")
@click.option("--revoke-links", is_flag=True, help="End all owner links, and print a new one.")
@click.option("--no-inference", is_flag=True, help="Do not start the inference process.")
@click.option("--log-requests", is_flag=True, help="Log every request as JSON to standard error.")
def run(database: str, images: Path | None, no_inference: bool, **settings: Any) -> None:
    """Start the service; Ctrl-C stops it.

    Listens on this machine only, unless --host and --public-url say otherwise. The owner link is
    printed once, on the first start.

    \b
        voxpop serve ages.db --open
    """
    from dataclasses import replace

    from voxpop.service.api.settings import Settings
    from voxpop.service.serve import serve as start

    given = Settings.from_environment()
    if images is not None:
        given = replace(given, images=images)
    start(database, settings=given, inference=not no_inference, say=say, **settings)


@serve.command()
@database_argument
def migrate(database: str) -> None:
    """Update the tables of a database while no service runs on it.

    \b
        voxpop serve migrate ages.db
    """
    from voxpop.service.database import Database

    before, after = Database.migrate(_there(database))
    if before == after:
        say(f"the tables have version {after} already")
    else:
        say(f"migrated the tables from version {before or 'none'} to {after}")


@serve.command()
@database_argument
@click.argument("target", type=click.Path(path_type=Path))
def backup(database: str, target: Path) -> None:
    """Copy a database to a file, also while the service runs.

    \b
        voxpop serve backup ages.db ages-monday.db
    """
    from voxpop.service.backup import backup as make_backup
    from voxpop.service.database import Database

    with Database.open(_there(database)) as opened:
        make_backup(opened, target)
    say(f"wrote {target}")


@serve.command()
@database_argument
def check(database: str) -> None:
    """Check a database for errors in pairs, money, counts and events.

    \b
        voxpop serve check ages.db
    """
    from voxpop.service.check import check as find_broken_rules
    from voxpop.service.database import Database

    with Database.open(_there(database)) as opened:
        findings = find_broken_rules(opened)
    for line in findings:
        click.echo(line)
    if findings:
        raise ConfigError(f"{database}: {len(findings)} errors found, as listed")
    say("no errors found")
