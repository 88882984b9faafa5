"""What the commands share: errors as one line, parsing, where input comes from and talk goes."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from voxpop.errors import ConvergenceWarning, DataWarning, VoxpopError

if TYPE_CHECKING:
    from rich.console import Console


class Commands(click.Group):
    """Turns errors into one line, and warnings into one line each, for every command."""

    def invoke(self, context: click.Context) -> Any:
        """Run the command that was named."""
        with warnings.catch_warnings():
            for ours in (ConvergenceWarning, DataWarning):
                warnings.simplefilter("always", ours)
            warnings.showwarning = _say_warning
            try:
                return super().invoke(context)
            except VoxpopError as error:
                raise click.ClickException(str(error)) from None
            except BrokenPipeError:
                raise  # the reader has had enough; click ends quietly
            except UnicodeEncodeError as error:
                raise click.ClickException(
                    f"the output cannot show {error.object[error.start]!r}; set PYTHONUTF8=1"
                ) from None
            except RuntimeError as error:
                if "interrupt" in str(error).lower():  # Ctrl-C while DuckDB was at work
                    raise click.Abort from None
                raise
            except OSError as error:
                where = f"{error.filename}: " if error.filename else ""
                raise click.ClickException(f"{where}{error.strerror or error}") from None


def _say_warning(message: Warning | str, *_: object, **__: object) -> None:
    click.echo(f"warning: {message}", err=True)


def numbers(_: click.Context, __: click.Parameter, text: str | None) -> Any:
    """Parse ``10,100,1000``."""
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"expected numbers like 10,100,1000, got {text!r}") from None


def levels(context: click.Context, parameter: click.Parameter, text: str | None) -> Any:
    """Parse the levels: ``auto``, ``nbi`` or numbers."""
    if text in ("auto", "nbi"):
        return text
    try:
        return numbers(context, parameter, text)
    except click.BadParameter:
        raise click.BadParameter(
            f"expected auto, nbi or numbers like 10,100,1000, got {text!r}"
        ) from None


seed_option = click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of the random numbers.",
)


@contextmanager
def open_input(name: str) -> Iterator[Path]:
    """Give a path to read: the one named, or a copy of what stands on standard input."""
    if name != "-":
        yield Path(name)
        return
    from tempfile import TemporaryDirectory

    content = sys.stdin.buffer.read()
    starts = {b"PAR1": ".parquet", b"\x1f\x8b": ".csv.gz", b"{": ".jsonl", b"[": ".json"}
    suffix = next((end for start, end in starts.items() if content.startswith(start)), ".csv")
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"stdin{suffix}"
        path.write_bytes(content)
        try:
            yield path
        except VoxpopError as error:
            raise type(error)(str(error).replace(str(path), "stdin")) from None


def default_folder(answers: str) -> Path:
    """Name the output after the input, less the ending that says what kind of file it is."""
    if answers == "-":
        return Path("stdin.voxpop")
    name = Path(answers).name
    for ending in (".gz", ".csv", ".tsv", ".txt", ".parquet", ".pq", ".jsonl", ".ndjson", ".json"):
        name = name[: -len(ending)] if name.lower().endswith(ending) else name
    return Path(f"{name or 'answers'}.voxpop")


def console(stderr: bool = False) -> Console:
    """Open the terminal for tables and progress."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def say(message: str) -> None:
    """Tell the user something that is not data."""
    click.echo(message, err=True)
