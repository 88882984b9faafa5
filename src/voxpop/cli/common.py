"""What the commands share: errors as one line, parsing, where input comes from and talk goes."""

from __future__ import annotations

import sys
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from voxpop.errors import ConfigError, ConvergenceWarning, DataWarning, VoxpopError

if TYPE_CHECKING:
    from rich.console import Console

    from voxpop.data.answers import Answers
    from voxpop.data.objects import Objects
    from voxpop.estimators import Estimator

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


def _noise(_: click.Context, __: click.Parameter, text: str | None) -> set[str] | None:
    """Parse ``tails,bias``."""
    if not text:
        return None
    from voxpop.models.noise import LEARNABLE

    parts = set(text.split(","))
    if not parts <= set(LEARNABLE):
        raise click.BadParameter(f"expected some of {','.join(sorted(LEARNABLE))}, got {text!r}")
    return parts


def _together(*options: Decorator) -> Decorator:
    """Several options as one decorator, shown in this order."""

    def decorate(command: Function) -> Function:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


reading_options = _together(
    click.option(
        "--from", "format", help="Format of the input; see `voxpop formats`.  [default: found out]"
    ),
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
        help="What to do when a worker answered a task twice.  [default: error; mean of runs]",
    ),
    click.option("--question", help="Which question of an export that holds several."),
    click.option(
        "--missing", type=float, multiple=True, help="Number of a wide table that is no answer."
    ),
    click.option("--objects", "match", is_flag=True, help="Match boxes or points into objects."),
    click.option("--iou-threshold", type=float, help="Least overlap of an object's boxes: 0.5."),
    click.option("--distance-threshold", type=float, help="Farthest an object's points can be."),
    click.option("--quorum", type=float, help="Least share of viewers who mark an object: 0.5."),
    click.option("--looked", help="File of task and worker: who looked but may have seen nothing."),
    click.option("--query", help="SELECT or table, where the input is the URL of a database."),
)
"""How answers are read; see :func:`take_reading` and :func:`read_table`."""

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
        "--noise",
        callback=_noise,
        help="What else bi allows for, of tails,bias,difficulty,truths.  [default: auto chooses]",
    ),
    click.option("--bounds", callback=numbers, help="Lowest and highest possible truth: 0,100."),
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


_READING_NAMES = (
    *("format", "task", "worker", "values", "gold", "duplicates", "question", "missing", "match"),
    *("iou_threshold", "distance_threshold", "quorum", "looked", "query"),
)


def read_input(source: object, options: Mapping[str, Any]) -> tuple[Answers, Objects | None]:
    """Read answers as the options say; also the objects, where marks were matched."""
    from voxpop.data.formats.base import Wishes
    from voxpop.data.objects import Matching
    from voxpop.data.read import read_with_objects

    gold = options["gold"]
    thresholds = {
        name: options[name]
        for name in ("iou_threshold", "distance_threshold", "quorum")
        if options[name] is not None
    }
    wishes = Wishes(
        question=options["question"], task=options["task"], missing=tuple(options["missing"])
    )
    return read_with_objects(
        source,
        options["worker"],
        options["values"] or None,
        gold[0] if len(gold) == 1 else list(gold) or None,
        options["duplicates"],
        options["format"],
        wishes,
        Matching(**thresholds) if thresholds or options["match"] else None,
        options["looked"],
        options["query"],
    )


@contextmanager
def open_input(name: str) -> Iterator[str]:
    """Give a path or URL to read: the one named, or a copy of what stands on standard input."""
    if name != "-":
        yield name
        return
    from tempfile import TemporaryDirectory

    content = sys.stdin.buffer.read()
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"stdin{_ending(content)}"
        path.write_bytes(content)
        try:
            yield str(path)
        except VoxpopError as error:
            raise type(error)(str(error).replace(str(path), "stdin")) from None


def _ending(content: bytes) -> str:
    """Name the kind of file that some bytes are, by the first of them."""
    if content.startswith(b"\x1f\x8b"):
        beginning = zlib.decompressobj(wbits=31).decompress(content, 4096)
        return f"{_ending(beginning)}.gz"
    if content.startswith(b"PAR1"):
        return ".parquet"
    text = content.lstrip(b"\xef\xbb\xbf \r\n\t")
    if text.startswith(b"{"):
        first, _, rest = text.partition(b"\n")
        return ".jsonl" if first.rstrip().endswith(b"}") and rest.strip() else ".json"
    return {b"[": ".json", b"<": ".xml"}.get(text[:1], ".csv")


def take_reading(settings: dict[str, Any]) -> dict[str, Any]:
    """Take the options of :data:`reading_options` out of a command's."""
    return {name: settings.pop(name) for name in _READING_NAMES}


def read_table(name: str, reading: Mapping[str, Any]) -> Answers:
    """Read the answers as the options say, and tell which columns were taken."""
    from voxpop.data.answers import columns_taken

    with open_input(name) as source:
        table, _ = read_input(source, reading)
    say(f"read {table.n_edges} answers: {columns_taken(table.columns)}")
    return table


def build_estimator(method: str, settings: Mapping[str, Any]) -> Estimator:
    """Make the estimator that :data:`estimator_options` ask for."""
    from voxpop.estimators import make_estimator
    from voxpop.models.noise import Noise

    given = {name: item for name, item in settings.items() if item is not None}
    parts, bounds = given.pop("noise", None), given.pop("bounds", None)
    if bounds is not None and len(bounds) != 2:
        raise ConfigError(f"bounds must be a lowest and a highest number, got {len(bounds)}")
    if parts is not None or (bounds is not None and method != "auto"):
        given["noise"] = Noise(bounds=bounds).learning(*(parts or ()))
    elif bounds is not None:
        given["bounds"] = bounds
    return make_estimator(method, given)


def source_name(answers: str) -> str:
    """Name of the input, without its folder or whatever a URL says of who may read it."""
    return "stdin" if answers == "-" else Path(answers.partition("?")[0]).name or "answers"


def default_folder(answers: str) -> Path:
    """Name the output after the input, less the ending that says what kind of file it is."""
    name = source_name(answers)
    endings = (".gz", ".csv", ".tsv", ".txt", ".parquet", ".pq", ".jsonl", ".ndjson", ".json")
    for ending in (*endings, ".xml", ".py", ".db", ".sqlite", ".duckdb"):
        name = name[: -len(ending)] if name.lower().endswith(ending) else name
    return Path(f"{name or 'answers'}.voxpop")


def console(stderr: bool = False) -> Console:
    """Open the terminal for tables and progress."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def say(message: str) -> None:
    """Tell the user something that is not data."""
    click.echo(message, err=True)
