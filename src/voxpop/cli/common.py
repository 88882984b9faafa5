"""What the commands share: options, errors as one line, where input comes from and output goes."""

from __future__ import annotations

import json
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from voxpop.errors import ConfigError, ConvergenceWarning, DataWarning, VoxpopError

if TYPE_CHECKING:
    from rich.console import Console

    from voxpop.data.answers import Answers
    from voxpop.data.objects import Objects
    from voxpop.estimators.base import Estimator
    from voxpop.results.result import Result

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
    say(f"warning: {message}")


def numbers(_: click.Context, __: click.Parameter, text: str | None) -> Any:
    """Parse ``10,100,1000``."""
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"expected numbers like 10,100,1000, got {text!r}") from None


def _levels(context: click.Context, parameter: click.Parameter, text: str | None) -> Any:
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
    """Combine several options into one decorator, shown in this order."""

    def decorate(command: Function) -> Function:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


reading_options = _together(
    click.option("--from", "format", help="Format; see `voxpop formats`.  [default: detected]"),
    click.option("--task", help="Column of the task ids.  [default: guessed]"),
    click.option("--worker", help="Column of the worker ids.  [default: guessed]"),
    click.option("--value", "values", multiple=True, help="Column of values; repeat for vectors."),
    click.option("--gold", multiple=True, help="Known truths: a file or column; repeatable."),
    click.option(
        "--duplicates",
        type=click.Choice(["error", "mean", "last"]),
        help="If a worker answered a task twice.  [default: error; mean of runs]",
    ),
    click.option("--question", help="Which question of an export with several."),
    click.option("--missing", type=float, multiple=True, help="Wide tables: number for no answer."),
    click.option("--objects", "match", is_flag=True, help="Match boxes or points into objects."),
    click.option("--iou-threshold", type=float, help="Minimum overlap of boxes.  [default: 0.5]"),
    click.option("--distance-threshold", type=float, help="Maximum distance of points."),
    click.option("--quorum", type=float, help="Share who must mark an object.  [default: 0.5]"),
    click.option("--looked", help="File of task and worker: who looked, even if they saw nothing."),
    click.option("--query", help="SELECT or table, if the input is the URL of a database."),
)
"""How to read answers: for every command that reads them. See :func:`take_answers`."""

crowd_options = _together(
    reading_options,
    click.option("--support", callback=_levels, help="Noise variances: auto, nbi, or 10,100,1000."),
    click.option("--weights", callback=numbers, help="Share of workers at each --support."),
    click.option("--prior-mean", type=float, help="Prior mean of the truths."),
    click.option("--prior-variance", type=float, help="Prior variance.  [default: flat]"),
)
"""Also what is known of workers and truths: for every command that asks how noisy workers are."""

estimator_options = _together(
    crowd_options,
    click.option("--method", default="auto", help="Estimator; see `voxpop methods`."),
    click.option(
        "--noise", callback=_noise, help="What bi also allows for: tails,bias,difficulty,truths."
    ),
    click.option(
        "--scale",
        type=click.Choice(["linear", "log", "sqrt", "logit", "circular"]),
        help="Scale on which noise is alike.  [default: linear]",
    ),
    click.option("--bounds", callback=numbers, help="Lowest and highest possible truth: 0,100."),
    click.option("--variances", help="Workers' true variances, a file: for oracles and scores."),
    click.option("--threads", type=int, help="Threads; they do not change the result."),
    click.option("--max-iter", type=int, help="Maximum number of sweeps."),
    click.option("--tol", type=float, help="Change at which the iteration stops."),
)
"""Also the estimator and its arguments: for every command that fits one."""

answers_argument = click.argument("answers", type=click.Path(allow_dash=True))
seed_option = click.option("--seed", type=click.IntRange(min=0), default=0, help="Random seed.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print as one JSON document.")


def output_option(help: str, default: Path | None = None) -> Decorator:
    """Where to write: ``-o`` or ``--output``."""
    path = click.Path(path_type=Path)
    return click.option("-o", "--output", type=path, default=default, help=help)


def take_answers(settings: dict[str, Any]) -> Callable[[object], tuple[Answers, Objects | None]]:
    """Take the :data:`reading_options` out of a command's settings, and return what reads so."""
    from voxpop.data.formats.base import ReadingOptions
    from voxpop.data.objects import Matching
    from voxpop.data.read import read_with_objects

    names = ("iou_threshold", "distance_threshold", "quorum")
    given = {name: settings.pop(name) for name in names}
    thresholds = {name: item for name, item in given.items() if item is not None}
    matched = settings.pop("match") or thresholds
    gold = settings["gold"]
    settings |= {
        "values": settings["values"] or None,
        "gold": gold[0] if len(gold) == 1 else list(gold) or None,
        "objects": Matching(**thresholds) if matched else None,
    }
    options = {name: settings.pop(name) for name in ReadingOptions.__annotations__}

    def read(source: object) -> tuple[Answers, Objects | None]:
        with _open_input(source) as readable:
            return read_with_objects(readable, cast("ReadingOptions", options))

    return read


@contextmanager
def _open_input(source: object) -> Iterator[object]:
    """Give what to read: the source itself, or a copy of standard input for ``-``."""
    if source != "-":
        yield source
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


def say_read(table: Answers) -> None:
    """Tell which columns were taken."""
    from voxpop.data.answers import columns_taken

    say(f"read {table.n_edges} answers: {columns_taken(table.columns)}")


def stated_levels(support: tuple[float, ...] | str | None) -> tuple[float, ...] | None:
    """Return the noise variances that were stated; None where they are to be learned."""
    if support == "nbi":
        raise ConfigError("--support nbi is for --method bi; give numbers, or auto to learn them")
    return None if support == "auto" or isinstance(support, str) else support


def build_estimator(method: str, settings: Mapping[str, Any]) -> Estimator:
    """Make the estimator from what :func:`take_answers` leaves of :data:`estimator_options`."""
    from voxpop.estimators.on_scale import with_scale
    from voxpop.estimators.registry import make_estimator
    from voxpop.models.noise import Noise

    given = {name: item for name, item in settings.items() if item is not None}
    parts, bounds = given.pop("noise", None), given.pop("bounds", None)
    scale = given.pop("scale", None)
    if bounds is not None and len(bounds) != 2:
        raise ConfigError(f"bounds must be a lowest and a highest number, got {len(bounds)}")
    # Methods without bounds of their own have at least those of the scale.
    of_scale = scale in ("logit", "circular") and method not in ("auto", "bi")
    ends, bounds = (bounds, None) if of_scale else (None, bounds)
    if parts is not None or (bounds is not None and method != "auto"):
        given["noise"] = Noise(bounds=bounds).learning(*(parts or ()))
    elif bounds is not None:
        given["bounds"] = bounds
    return with_scale(make_estimator(method, given), scale, ends)


def fit(estimator: Estimator, table: Answers) -> Result:
    """Fit the estimator, with a progress bar on a terminal."""
    from voxpop.present.terminal import progress

    with progress(console(stderr=True)) as on_sweep:
        return estimator.fit(table, on_sweep)


def say_result(result: Result) -> None:
    """Tell what was fitted, and what the user should know about it."""
    for line in (result.summary(), *result.notes):
        say(line)


def print_data(
    columns: Mapping[str, Any],
    show: Callable[[Console], None],
    document: Mapping[str, Any] | None = None,
) -> None:
    """Print the document as JSON if there is one, or tables on a terminal, or CSV in a pipe."""
    from voxpop.data.tables import print_table

    if document is not None:
        click.echo(json.dumps(document, indent=2))
    elif sys.stdout.isatty():
        show(console())
    else:
        print_table(columns, sys.stdout)


def write_data(columns: Mapping[str, Any], path: Path) -> None:
    """Write a table, and tell where."""
    from voxpop.data.tables import write_table

    write_table(columns, path)
    say(f"wrote {path}")


def source_name(answers: str) -> str:
    """Name the input without its folder, or the credentials of a URL."""
    return "stdin" if answers == "-" else Path(answers.partition("?")[0]).name or "answers"


def default_folder(answers: str) -> Path:
    """Name the output after the input, without the ending of its kind of file."""
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
    """Tell the user something that is not data, on standard error."""
    click.echo(message, err=True)
