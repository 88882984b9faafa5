"""The command line: read, one library call, write. Nothing heavy is imported before it is used.

Standard output is data (tables on a terminal, CSV or JSON in a pipe); everything else that is
said goes to standard error.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from voxpop import __version__
from voxpop.errors import ConvergenceWarning, DataWarning, VoxpopError

if TYPE_CHECKING:
    from rich.console import Console

    from voxpop.answers import Duplicates
    from voxpop.result import Result


class _Commands(click.Group):
    """Turns errors into one line, and warnings into one line each, for every command."""

    def invoke(self, context: click.Context) -> Any:
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


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", package_name="voxpop")
def main() -> None:
    """One honest number from many noisy answers.

    voxpop learns how noisy every worker is, and estimates the truth of every task.

    \b
        voxpop demo
        voxpop aggregate answers.csv
    """


def _numbers(_: click.Context, __: click.Parameter, text: str | None) -> Any:
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
        return _numbers(context, parameter, text)
    except click.BadParameter:
        raise click.BadParameter(
            f"expected auto, nbi or numbers like 10,100,1000, got {text!r}"
        ) from None


_seed = click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of the random numbers.",
)


@main.command()
@click.argument("answers", type=click.Path(allow_dash=True))
@click.option("--task", help="Column of the task ids.  [default: guessed]")
@click.option("--worker", help="Column of the worker ids.  [default: guessed]")
@click.option(
    "--value", "values", multiple=True, help="Column of the values; repeat it for vectors."
)
@click.option(
    "--gold", multiple=True, help="Known truths: a file, or a column; repeat it for vectors."
)
@click.option(
    "--duplicates",
    type=click.Choice(["error", "mean", "last"]),
    default="error",
    show_default=True,
    help="What to do when a worker answered a task twice.",
)
@click.option(
    "--method", default="auto", show_default=True, help="Estimator; see `voxpop methods`."
)
@click.option("--support", callback=_levels, help="Noise variances: auto, nbi, or 10,100,1000.")
@click.option("--weights", callback=_numbers, help="Share of workers at each level of --support.")
@click.option("--prior-mean", type=float, help="Prior mean of the truths; with --prior-variance.")
@click.option("--prior-variance", type=float, help="Prior variance of the truths.  [default: flat]")
@click.option(
    "--variances", help="File with the workers' true variances: for the oracle, and to score."
)
@click.option("--threads", type=int, help="Threads of bi; the result is the same for any number.")
@click.option("--max-iter", type=int, help="Most sweeps of an iterative method.")
@click.option("--tol", type=float, help="Change at which an iterative method stops.")
@click.option("--truth", help="File with task and true value, to score the estimates.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Directory for the files.  [default: NAME.voxpop]",
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["csv", "parquet"]),
    default="csv",
    show_default=True,
    help="Format of the files.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON document.")
def aggregate(
    answers: str,
    task: str | None,
    worker: str | None,
    values: tuple[str, ...],
    gold: tuple[str, ...],
    duplicates: Duplicates,
    method: str,
    output: Path | None,
    file_format: str,
    as_json: bool,
    truth: str | None,
    **settings: Any,
) -> None:
    """Estimate the truth of every task from ANSWERS, one answer per row ("-" is stdin).

    Reads CSV, TSV, Parquet and JSON lines, also gzipped. Writes tasks, workers and result.json
    to a directory, and prints the estimates: as tables on a terminal, as CSV in a pipe.

    \b
        voxpop aggregate answers.csv
        voxpop aggregate clicks.parquet --value x --value y -o clicks
        voxpop aggregate answers.csv --method bi --support 10,100,1000 --json
        cat answers.csv | voxpop aggregate - > truth.csv
    """
    from voxpop.answers import columns_taken
    from voxpop.estimators import StrongOracle, make_estimator
    from voxpop.io import read_answers, read_truth, read_variances
    from voxpop.metrics import score
    from voxpop.screen import progress, show_score
    from voxpop.tables import require_folder

    variances = settings.pop("variances")
    given = {name: item for name, item in settings.items() if item is not None}
    if method == StrongOracle.name and variances is not None:
        given["variances"] = variances
    estimator = make_estimator(method, given)
    folder = output or _default_folder(answers)
    require_folder(folder)
    known = gold[0] if len(gold) == 1 else list(gold) or None
    with _input(answers) as path:
        table = read_answers(path, task, worker, values or None, known, duplicates=duplicates)
    # Whatever can be wrong is found out before the work, not after it.
    true = None if truth is None else read_truth(truth, table.task_ids, table.value_names)
    true_variance = None if variances is None else read_variances(variances, table.worker_ids)
    say = _console(stderr=True)
    _say(f"read {table.n_edges} answers: {columns_taken(table.columns)}")
    with progress(say) as on_sweep:
        result = estimator.fit(table, on_sweep)
    scored = None if true is None else score(result, true, true_variance)
    _say(result.headline())
    for note in result.notes:
        _say(note)
    # Files first: whoever reads the output may hang up on us.
    result.save(folder, file_format)
    _say(f"wrote tasks.{file_format}, workers.{file_format} and result.json to {folder}")
    _print_result(result, scored.as_dict() if scored else None, as_json)
    if scored and not as_json:
        show_score(scored, say)


@contextmanager
def _input(name: str) -> Iterator[Path]:
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


def _default_folder(answers: str) -> Path:
    """Name the output after the input, less the ending that says what kind of file it is."""
    if answers == "-":
        return Path("stdin.voxpop")
    name = Path(answers).name
    for ending in (".gz", ".csv", ".tsv", ".txt", ".parquet", ".pq", ".jsonl", ".ndjson", ".json"):
        name = name[: -len(ending)] if name.lower().endswith(ending) else name
    return Path(f"{name or 'answers'}.voxpop")


def _print_result(result: Result, scored: dict[str, Any] | None, as_json: bool) -> None:
    from voxpop.screen import show_result

    if as_json:
        document = result.to_json()
        if scored:
            document["score"] = scored
        click.echo(json.dumps(document, indent=2))
    elif sys.stdout.isatty():
        show_result(result, _console())
    else:
        result.tasks.to_csv(sys.stdout, index=False)


def _console(stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def _say(message: str) -> None:
    click.echo(message, err=True)


@main.command()
@click.option("--tasks", "n_tasks", default=200, show_default=True, help="Number of tasks.")
@click.option("--per-task", default=5, show_default=True, help="Answers per task.")
@click.option("--per-worker", default=5, show_default=True, help="Answers per worker.")
@click.option(
    "--support",
    default="10,100,1000",
    show_default=True,
    callback=_numbers,
    help="Noise variances of the workers.",
)
@click.option("--weights", callback=_numbers, help="Share of workers at each.  [default: equal]")
@click.option("--dimension", default=1, show_default=True, help="Coordinates of an answer.")
@click.option("--prior-mean", default=0.0, show_default=True, help="Prior mean of the truths.")
@click.option("--prior-variance", type=float, help="Prior variance.  [default: uniform in 0..100]")
@_seed
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("crowd"),
    show_default=True,
    help="Directory for the files.",
)
def simulate(
    n_tasks: int,
    per_task: int,
    per_worker: int,
    support: tuple[float, ...],
    weights: tuple[float, ...] | None,
    dimension: int,
    prior_mean: float,
    prior_variance: float | None,
    seed: int,
    output: Path,
) -> None:
    """Draw a crowd from the model: answers.csv, truth.csv and workers.csv.

    \b
        voxpop simulate --tasks 1000 --per-task 5 --per-worker 20 -o crowd
        voxpop aggregate crowd/answers.csv --truth crowd/truth.csv
    """
    import numpy as np

    from voxpop.assign import assign_regular
    from voxpop.model import Model
    from voxpop.simulation import simulate as draw

    model = Model(
        support=support,
        weights=weights,
        prior_mean=prior_mean,
        prior_variance=np.inf if prior_variance is None else prior_variance,
        dimension=dimension,
    )
    rng = np.random.default_rng(seed)
    crowd = draw(model, assign_regular(n_tasks, per_task, per_worker, rng), rng)
    folder = crowd.save(output)
    _say(f"wrote {crowd.answers.n_edges} answers of {crowd.answers.n_workers} workers to {folder}")


@main.command()
@click.option("--tasks", "n_tasks", default=400, show_default=True, help="Number of tasks.")
@_seed
@click.option("--json", "as_json", is_flag=True, help="Print the scores as JSON.")
def demo(n_tasks: int, seed: int, as_json: bool) -> None:
    """Simulate a crowd with spammers, and show what every method makes of it.

    \b
        voxpop demo
        voxpop demo --tasks 1000 --seed 7
    """
    from voxpop.demo import compare, demo_crowd, demo_methods
    from voxpop.screen import show_contest

    crowd = demo_crowd(n_tasks, per_task=5, per_worker=10, seed=seed)
    _say(
        f"{crowd.answers.n_workers} workers click on {n_tasks} targets in a 100 x 100 image, five "
        "on each.\n30 % are experts (sd 3), 50 % fair (sd 10), and 20 % spammers (sd 71). "
        "Nobody knows who is who."
    )
    contestants = compare(crowd, demo_methods(crowd))
    if as_json:
        scores = {c.label: c.score.as_dict() | {"seconds": c.seconds} for c in contestants}
        click.echo(json.dumps(scores, indent=2))
        return
    show_contest(contestants, _console())
    mse = {c.label: c.score.mse for c in contestants}
    gain = mse["average"] / mse["bi, levels learned"]
    _say(
        f"Learning who to trust divides the error of the average by {gain:.1f}. "
        "The oracle is told every\nworker's noise: nobody can do better. Now yours: "
        "voxpop aggregate answers.csv"
    )


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def methods(as_json: bool) -> None:
    """List the estimators, one line each.

    \b
        voxpop methods
    """
    from voxpop.estimators import ESTIMATORS
    from voxpop.screen import show_rows

    lines = {"auto": "chooses for you: today, bi with noise levels learned from the answers"}
    lines |= {name: estimator.summary for name, estimator in ESTIMATORS.items()}
    if as_json:
        click.echo(json.dumps(lines, indent=2))
    elif sys.stdout.isatty():
        show_rows("Methods", {"method": [*lines], "what it does": [*lines.values()]}, _console())
    else:
        for name, line in lines.items():
            click.echo(f"{name}\t{line}")


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def version(as_json: bool) -> None:
    """Show the versions of voxpop and what it stands on, and the backend in use.

    \b
        voxpop version
    """
    from voxpop.backends import backend_in_use
    from voxpop.result import versions

    facts = versions() | {"backend": backend_in_use()}
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    for name, item in facts.items():
        click.echo(f"{name} {item}")
