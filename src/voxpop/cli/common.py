"""What the commands share: errors as one line, parsing, where input comes from and talk goes."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from voxpop.errors import ConvergenceWarning, DataWarning, VoxpopError

if TYPE_CHECKING:
    from rich.console import Console

    from voxpop.answers import Answers

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]


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


def _together(*options: Decorator) -> Decorator:
    """Several options as one decorator, shown in this order."""

    def decorate(command: Function) -> Function:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


reading_options = _together(
    click.option("--task", help="Column of the task ids.  [default: guessed]"),
    click.option("--worker", help="Column of the worker ids.  [default: guessed]"),
    click.option(
        "--value", "values", multiple=True, help="Column of the values; repeat it for vectors."
    ),
    click.option(
        "--gold", multiple=True, help="Known truths: a file, or a column; repeat it for vectors."
    ),
    click.option(
        "--duplicates",
        type=click.Choice(["error", "mean", "last"]),
        default="error",
        show_default=True,
        help="What to do when a worker answered a task twice.",
    ),
)
"""How a table of answers is read; see :func:`take_reading` and :func:`read_table`."""

estimator_options = _together(
    click.option(
        "--method", default="auto", show_default=True, help="Estimator; see `voxpop methods`."
    ),
    click.option("--support", callback=levels, help="Noise variances: auto, nbi, or 10,100,1000."),
    click.option(
        "--weights", callback=numbers, help="Share of workers at each level of --support."
    ),
    click.option(
        "--prior-mean", type=float, help="Prior mean of the truths; with --prior-variance."
    ),
    click.option(
        "--prior-variance", type=float, help="Prior variance of the truths.  [default: flat]"
    ),
    click.option(
        "--threads", type=int, help="Threads of bi; the result is the same for any number."
    ),
    click.option("--max-iter", type=int, help="Most sweeps of an iterative method."),
    click.option("--tol", type=float, help="Change at which an iterative method stops."),
)
"""Which estimator, and its arguments."""

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


def take_reading(settings: dict[str, Any]) -> dict[str, Any]:
    """Take the options of :data:`reading_options` out of a command's."""
    return {name: settings.pop(name) for name in ("task", "worker", "values", "gold", "duplicates")}


def read_table(name: str, reading: dict[str, Any]) -> Answers:
    """Read the answers as the options say, and tell which columns were taken."""
    from voxpop.answers import columns_taken
    from voxpop.io import read_answers

    gold, values = reading["gold"], reading["values"] or None
    known = gold[0] if len(gold) == 1 else list(gold) or None
    with open_input(name) as path:
        table = read_answers(path, **reading | {"gold": known, "values": values})
    say(f"read {table.n_edges} answers: {columns_taken(table.columns)}")
    return table


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
