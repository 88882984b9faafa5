"""Shared by the commands: options, errors as one line, where input comes from and output goes."""

from __future__ import annotations

import json
import shlex
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from voxpop.cli.reading import Decorator, Function, together
from voxpop.cli.reading import one_or_all as one_or_all
from voxpop.cli.reading import reading_options as reading_options
from voxpop.cli.reading import say as say
from voxpop.cli.reading import say_notes as say_notes
from voxpop.cli.reading import say_read as say_read
from voxpop.cli.reading import take_answers as take_answers
from voxpop.cli.reading import take_truths as take_truths
from voxpop.errors import ConvergenceWarning, DataWarning, VoxpopError, require

if TYPE_CHECKING:
    from rich.console import Console

    from voxpop.collect.planning.learn_crowd import LearnedCrowd
    from voxpop.data.answers import Answers
    from voxpop.estimators.base import Estimator
    from voxpop.models.model import Model
    from voxpop.results.result import Result

# Where a context stores the typed command.
_TYPED = "voxpop.typed"
# With more answers, `next` and `plan` do not learn the shared error.
_MOST_LEARNED = 30_000


class Commands(click.Group):
    """Turns errors into one line, and warnings into one line each, for every command."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        """Store the typed command, to show how it should be."""
        context.meta[_TYPED] = list(arguments)
        return super().parse_args(context, arguments)

    def invoke(self, context: click.Context) -> Any:
        """Run the command that was named."""
        with warnings.catch_warnings():
            for ours in (ConvergenceWarning, DataWarning):
                warnings.simplefilter("always", ours)
            warnings.showwarning = _say_warning
            try:
                return super().invoke(context)
            except VoxpopError as error:
                raise click.ClickException(one_line(error) + _pasteable(context, error)) from None
            except BrokenPipeError:
                raise  # the reader has closed the pipe; click ends quietly
            except UnicodeEncodeError as error:
                raise click.ClickException(
                    f"the output cannot show {error.object[error.start]!r}; set PYTHONUTF8=1"
                ) from None
            except (OverflowError, MemoryError, ValueError) as error:
                # numpy refuses sizes beyond those of any memory by a ValueError.
                if isinstance(error, ValueError) and "Maximum allowed" not in str(error):
                    raise
                raise click.ClickException(f"too large: {one_line(error)}") from None
            except RuntimeError as error:
                if "interrupt" in str(error).lower():  # Ctrl-C while DuckDB was at work
                    raise click.Abort from None
                raise
            except OSError as error:
                where = f"{error.filename}: " if error.filename else ""
                raise click.ClickException(one_line(f"{where}{error.strerror or error}")) from None


def file_or_stdout(out: Path) -> Path:
    """Take - for standard output, as for input."""
    return Path("/dev/stdout") if str(out) == "-" else out


def one_line(what: object) -> str:
    """Join the lines of a message: a name that it quotes may hold anything."""
    return " ".join(str(what).splitlines())


def _pasteable(context: click.Context, error: VoxpopError) -> str:
    """Show the command that was typed with the options that an error is about."""
    options, typed = getattr(error, "options", ""), shlex.join(context.meta[_TYPED])
    # What cannot be printed in a line cannot be pasted, either.
    return f"; for example:\n  voxpop {typed} {options}" * bool(options and typed.isprintable())


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


shared_error_option = click.option(
    "--shared-error",
    callback=_shared_error,
    help="Variance of the error that all workers share, relative to one answer's; 0 for none.",
)
"""What intervals and plans allow for besides the noise of the workers."""

crowd_options = together(
    reading_options,
    shared_error_option,
    click.option(
        "--support",
        callback=numbers("auto", "nbi"),
        help="Noise variances: auto, nbi, or 10,100,1000.",
    ),
    click.option(
        "--weights", callback=numbers(), help="Share of workers at each variance of --support."
    ),
    click.option("--prior-mean", type=float, help="Prior mean of the truths."),
    click.option("--prior-variance", type=float, help="Prior variance.  [default: flat]"),
)
"""Also what is known of workers and truths: for every command that asks how noisy workers are."""

scale_option = click.option(
    "--scale",
    type=click.Choice(["linear", "log", "sqrt", "logit", "circular"]),
    help="Scale on which all values have the same noise.  [default: linear or by gold]",
)
bounds_option = click.option(
    "--bounds", callback=numbers(), help="Lowest and highest possible truth, such as 0,100."
)

estimator_options = together(
    crowd_options,
    click.option("--method", default="auto", help="Estimator; see `voxpop methods`."),
    click.option(
        "--noise",
        callback=_noise,
        help="Noise components to add to --method bi, such as tails,bias.",
    ),
    scale_option,
    bounds_option,
    click.option("--variances", help="File of workers' true variances, for oracles and scores."),
    click.option(
        "--threads",
        type=int,
        help="Number of threads; any gives the same result.  [default: all cores]",
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


def stated_levels(support: tuple[float, ...] | str | None) -> tuple[float, ...] | None:
    """Return the noise variances that were stated; None where they are to be learned."""
    require(
        support != "nbi", "--support nbi is for --method bi; give numbers, or auto to learn them"
    )
    return None if isinstance(support, str) else support


def take_crowd(
    settings: dict[str, Any], answers: Answers | None, dimension: int = 1
) -> Model | LearnedCrowd:
    """Use up :data:`crowd_options`: the crowd as stated, or learned, with a message."""
    from dataclasses import replace

    from voxpop.collect.planning.learn_crowd import learn_crowd
    from voxpop.models.model import Model

    support = stated_levels(settings.pop("support"))
    names = ("weights", "prior_mean", "prior_variance")
    weights, mean, variance = (settings.pop(name) for name in names)
    require(support is not None or not weights, "--weights needs --support")
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
    """Use up the option of the shared error: as given, or learned where there is gold.

    It is not learned from a large crowd: that would take as long as aggregating it.
    """
    from voxpop.estimators.auto.auto import Auto

    given = settings.pop("shared_error")
    if given is not None:
        return given
    if answers is None or not answers.is_gold.any() or answers.n_edges > _MOST_LEARNED:
        return "auto"
    return Auto().fit(answers).calibration.shared or "auto"


def build_estimator(method: str, settings: Mapping[str, Any]) -> Estimator:
    """Make the estimator from the options that :func:`take_answers` leaves."""
    from voxpop.estimators.on_scale import with_scale
    from voxpop.estimators.registry import make_estimator
    from voxpop.models.noise import Noise

    given = {name: item for name, item in settings.items() if item is not None}
    parts, bounds, scale = (given.pop(name, None) for name in ("noise", "bounds", "scale"))
    require(
        bounds is None or len(bounds) == 2,
        "--bounds takes a lowest and a highest number, such as 0,100",
    )
    # Methods that take no bounds have at least those of the scale.
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
    """Print what is ready and what needs a look, what was fitted, and its notes."""
    for line in (
        result.review.summary(),
        result.summary(),
        *result.notes,
        *result.interval_notes(),
    ):
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


def say_written(names: Sequence[str], folder: Path) -> None:
    """Say which files were written to a folder."""
    say(f"wrote {', '.join(names[:-1])} and {names[-1]} to {folder}")


def write_data(columns: Mapping[str, Any], path: Path) -> None:
    """Write a table, and say where."""
    from voxpop.data.tables import write_table

    write_table(columns, path)
    say(f"wrote {path}")


def console(stderr: bool = False) -> Console:
    """Open the terminal for tables and progress."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)
