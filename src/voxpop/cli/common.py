"""What the commands share: options, errors as one line, where input comes from and output goes."""

from __future__ import annotations

import json
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from voxpop.errors import ConvergenceWarning, DataWarning, VoxpopError, require

if TYPE_CHECKING:
    from rich.console import Console

    from voxpop.collect.planning.learn_crowd import LearnedCrowd
    from voxpop.data.answers import Answers
    from voxpop.estimators.base import Estimator
    from voxpop.models.model import Model
    from voxpop.results.result import Result

# Most answers from which a shared error is learned before others are asked for.
_MOST_LEARNED = 30_000
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


def numbers(*words: str) -> Function:
    """Make what parses ``10,100,1000``; one of the ``words`` stays as it is."""
    expected = f"{', '.join(words)} or numbers" if words else "numbers"

    def parse(_: click.Context, __: click.Parameter, text: str | None) -> Any:
        if text is None or text in words:
            return text
        try:
            return tuple(float(part) for part in text.split(","))
        except ValueError:
            raise click.BadParameter(
                f"expected {expected} like 10,100,1000, got {text!r}"
            ) from None

    return parse


def _noise(_: click.Context, __: click.Parameter, text: str | None) -> set[str] | None:
    """Parse ``tails,bias``."""
    if not text:
        return None
    from voxpop.models.noise import LEARNABLE

    parts = set(text.split(","))
    if not parts <= set(LEARNABLE):
        raise click.BadParameter(f"expected some of {','.join(sorted(LEARNABLE))}, got {text!r}")
    return parts


def _shared_error(_: click.Context, __: click.Parameter, text: str | None) -> float | str | None:
    """Parse ``auto`` or a number."""
    if text is None or text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise click.BadParameter(f"expected auto or a number like 0.25, got {text!r}") from None


def together(*options: Decorator) -> Decorator:
    """Combine several options into one decorator, shown in this order."""
    return lambda command: reduce(lambda made, option: option(made), options[::-1], command)


reading_options = together(
    click.option("--from", "format", help="Format; see `voxpop formats`.  [default: detected]"),
    click.option("--task", help="Column of the task ids.  [default: guessed]"),
    click.option("--worker", help="Column of the worker ids.  [default: guessed]"),
    click.option("--value", "values", multiple=True, help="Column of values; repeat for vectors."),
    click.option("--gold", multiple=True, help="Known truths: a file or column; repeatable."),
    click.option(
        "--duplicates",
        type=click.Choice(["error", "mean", "last"]),
        help="What to do if a worker answered a task twice.  [default: error; mean of runs]",
    ),
    click.option("--question", help="Question to read, if an export has several."),
    click.option("--missing", type=float, multiple=True, help="Wide tables: number for no answer."),
    click.option("--objects", "match", is_flag=True, help="Match boxes or points into objects."),
    click.option("--iou-threshold", type=float, help="Minimum overlap of boxes.  [default: 0.5]"),
    click.option("--distance-threshold", type=float, help="Maximum distance of points."),
    click.option("--quorum", type=float, help="Share who must mark an object.  [default: 0.5]"),
    click.option("--looked", help="File of task and worker: who looked, even if they saw nothing."),
    click.option("--query", help="Table or SELECT to read, if the input is the URL of a database."),
)
"""How to read answers: for every command that reads them. See :func:`take_answers`."""

shared_error_option = click.option(
    "--shared-error",
    callback=_shared_error,
    help="Variance of an error that all workers share, over that of one answer; 0: none.",
)
"""What intervals and plans allow for beside the noise of the workers."""

crowd_options = together(
    reading_options,
    shared_error_option,
    click.option(
        "--support",
        callback=numbers("auto", "nbi"),
        help="Noise variances: auto, nbi, or 10,100,1000.",
    ),
    click.option("--weights", callback=numbers(), help="Share of workers at each --support."),
    click.option("--prior-mean", type=float, help="Prior mean of the truths."),
    click.option("--prior-variance", type=float, help="Prior variance.  [default: flat]"),
)
"""Also what is known of workers and truths: for every command that asks how noisy workers are."""

estimator_options = together(
    crowd_options,
    click.option("--method", default="auto", help="Estimator; see `voxpop methods`."),
    click.option("--noise", callback=_noise, help="What bi also allows for: tails,bias, ..."),
    click.option(
        "--scale",
        type=click.Choice(["linear", "log", "sqrt", "logit", "circular"]),
        help="Scale on which noise is alike.  [default: linear]",
    ),
    click.option("--bounds", callback=numbers(), help="Lowest and highest possible truth: 0,100."),
    click.option("--variances", help="File of workers' true variances, for oracles and scores."),
    click.option(
        "--threads", type=int, help="Threads, which do not change the result.  [default: all cores]"
    ),
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


def take_answers(settings: dict[str, Any]) -> Callable[[object], Answers]:
    """Take the :data:`reading_options` out of a command's settings, and return what reads so."""
    from voxpop.data.objects import Matching
    from voxpop.data.read import ReadingOptions, read_answers

    names = ("iou_threshold", "distance_threshold", "quorum")
    given = {name: settings.pop(name) for name in names}
    thresholds = {name: item for name, item in given.items() if item is not None}
    matched = settings.pop("match") or thresholds
    settings |= {
        "values": settings["values"] or None,
        "gold": one_or_all(settings["gold"]),
        "objects": Matching(**thresholds) if matched else None,
    }
    options = {name: settings.pop(name) for name in ReadingOptions.__annotations__}

    def read(source: object) -> Answers:
        with _open_input(source) as readable:
            return read_answers(readable, **options)

    return read


def one_or_all(given: tuple[str, ...]) -> Any:
    """What a repeatable option was given: the only one, a list of several, or None."""
    return given[0] if len(given) == 1 else list(given) or None


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
    require(
        support != "nbi", "--support nbi is for --method bi; give numbers, or auto to learn them"
    )
    return None if isinstance(support, str) else support


def take_crowd(
    settings: dict[str, Any], answers: Answers | None, dimension: int = 1
) -> Model | LearnedCrowd:
    """Take :data:`crowd_options` out: the crowd as stated, or learned from answers, and say so."""
    from dataclasses import replace

    from voxpop.collect.planning.learn_crowd import learn_crowd
    from voxpop.models.model import Model

    support = stated_levels(settings.pop("support"))
    names = ("weights", "prior_mean", "prior_variance")
    weights, mean, variance = (settings.pop(name) for name in names)
    require(support is not None or not weights, "--weights goes with --support")
    require(
        variance is not None or not mean,
        "--prior-mean does nothing without --prior-variance; give both",
    )
    prior = {} if variance is None else {"prior_mean": mean or 0.0, "prior_variance": variance}
    if support is not None or answers is None:
        return Model(support=support or (), weights=weights, dimension=dimension, **prior)
    learned = learn_crowd(answers)
    one_each = answers.task_degree.max() == 1 and not answers.is_gold.any()
    unlearned = "no task has two answers, so the noise cannot be learned; give its support"
    say(unlearned if one_each else learned.summary())
    return replace(learned, model=replace(learned.model, **prior))


def take_shared_error(settings: dict[str, Any], answers: Answers | None) -> Any:
    """Take out what is told of the error that all workers share, or learn it where there is gold.

    Of a large crowd it is not learned, which would take as long as to aggregate it.
    """
    from voxpop.estimators.auto.auto import Auto

    given = settings.pop("shared_error")
    if given is not None:
        return given
    if answers is None or not answers.is_gold.any() or answers.n_edges > _MOST_LEARNED:
        return "auto"
    return Auto().fit(answers).calibration.shared or "auto"


def build_estimator(method: str, settings: Mapping[str, Any]) -> Estimator:
    """Make the estimator from what :func:`take_answers` leaves of :data:`estimator_options`."""
    from voxpop.estimators.on_scale import with_scale
    from voxpop.estimators.registry import make_estimator
    from voxpop.models.noise import Noise

    given = {name: item for name, item in settings.items() if item is not None}
    parts, bounds = given.pop("noise", None), given.pop("bounds", None)
    scale = given.pop("scale", None)
    if bounds is not None:
        require(
            len(bounds) == 2, f"bounds must be a lowest and a highest number, got {len(bounds)}"
        )
    # Methods without bounds of their own have at least those of the scale.
    of_scale = scale in ("logit", "circular") and method not in ("auto", "bi")
    ends, bounds = (bounds, None) if of_scale else (None, bounds)
    if parts is not None or (bounds is not None and method != "auto"):
        given["noise"] = Noise(bounds=bounds).learning(*(parts or ()))
    elif bounds is not None:
        given["bounds"] = bounds
    return with_scale(make_estimator(method, given), scale, ends)


def prepare(source: str, method: str, settings: dict[str, Any]) -> tuple[Answers, Estimator]:
    """Read the answers and make the estimator, as the :data:`estimator_options` say."""
    read = take_answers(settings)
    estimator = build_estimator(method, settings)  # a mistake in an option shows at once
    table = read(source)
    say_read(table)
    return table, estimator


def fit(estimator: Estimator, table: Answers) -> Result:
    """Fit the estimator, with a progress bar on a terminal."""
    from voxpop.present.terminal import progress

    with progress(console(stderr=True)) as on_sweep:
        return estimator.fit(table, on_sweep)


def say_result(result: Result) -> None:
    """Tell what was fitted, and what the user should know about it."""
    for line in (result.summary(), *result.notes, *result.interval_notes()):
        say(line)


def print_data(
    columns: Mapping[str, Any],
    show: Callable[[Console], None],
    document: Mapping[str, Any] | None = None,
) -> None:
    """Print the document as JSON if there is one, or tables on a terminal, or CSV in a pipe."""
    from voxpop.data.tables import print_table

    if document is not None:
        print_json(document)
    elif sys.stdout.isatty():
        show(console())
    else:
        print_table(columns, sys.stdout)


def print_json(document: object) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(document, indent=2))


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
