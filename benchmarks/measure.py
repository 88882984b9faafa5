"""Run methods on sets with a known truth, each in a process of its own, and keep what is found."""

from __future__ import annotations

import json
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from types import FrameType

import numpy as np

import voxpop as vp
from benchmarks.drawn_crowds import CROWDS, Crowd
from voxpop.data.truths import read_truth
from voxpop.estimators.auto.auto import Auto
from voxpop.estimators.benchmark import DataSet
from voxpop.estimators.peers import PEERS
from voxpop.models.noise import Noise

NOT_MEASURED = "not measured"
BOX = ("xmin", "ymin", "xmax", "ymax")


def _bi(support: str = "auto", **noise: object) -> Callable[[], vp.Estimator]:
    return lambda: vp.BI(support=support, noise=Noise(**noise))  # type: ignore[arg-type]


OURS: dict[str, Callable[[], vp.Estimator]] = {
    "mean": vp.Average,
    "median": vp.Median,
    "huber": vp.Huber,
    "NBI": vp.NBI,
    "PG1": vp.PG1,
    "two-way": vp.TwoWay,
    "P910": vp.P910,
    "BI, NBI support": lambda: vp.BI(support="nbi"),
    "BI": vp.BI,
    "BI, truths": _bi(truths="learn"),
    "BI, one level": _bi("common"),
    "BI, one level, bias": _bi("common", bias=True),
    "BI, tails": _bi(tails="learn"),
    "BI, bias": _bi(bias=True),
    "BI, difficulty": _bi(difficulty=True),
    "BI, bias, tails": _bi(bias=True, tails="learn"),
    "BI, bias, difficulty": _bi(bias=True, difficulty=True),
    "BI, bias, tails, truths": _bi(bias=True, tails="learn", truths="learn"),
    "BI, bias, difficulty, truths": _bi(bias=True, difficulty=True, truths="learn"),
    "auto": Auto,
}
METHODS = OURS | {peer.name: lambda peer=peer: peer for peer in PEERS}
# For synthetic crowds the question is whether `auto` is safe: these show what it could have had.
ON_CROWDS = ("mean", "median", "BI, NBI support", "BI", "BI, bias, tails", "auto")


# Sets


def read(files: DataSet) -> Crowd:
    """Read a set in files; tasks without a truth have NaN."""
    answers = vp.read_answers(files.answers)
    return Crowd(answers, read_truth(files.truth, answers.task_ids, answers.value_names))


# One measurement


@dataclass
class Measured:
    """What a method did on a set, once for a real one, for every seed otherwise."""

    rmse: list[float] = field(default_factory=list)
    iou: list[float] = field(default_factory=list)
    truths_covered: list[float] = field(default_factory=list)
    answers_covered: list[float] = field(default_factory=list)
    unstretched: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    chosen: list[str] = field(default_factory=list)
    note: str = ""

    def add(self, crowd: Crowd, estimate: np.ndarray, seconds: float) -> None:
        """Hold estimates against the truth."""
        self.seconds.append(seconds)
        known = np.isfinite(crowd.truth).all(axis=1)
        error = (estimate.reshape(crowd.truth.shape) - crowd.truth)[known]
        self.rmse.append(float(np.sqrt((error**2).mean())))
        if crowd.answers.value_names == BOX:
            self.iou.append(float(_iou(estimate[known], crowd.truth[known]).mean()))

    def add_result(self, crowd: Crowd, result: vp.Result) -> None:
        """Hold intervals against truths and left-out answers, and keep what was chosen."""
        known = np.isfinite(crowd.truth)
        low, high = result.interval(0.95)
        inside = (low <= crowd.truth) & (crowd.truth <= high)
        self.truths_covered.append(float(inside[known].mean()))
        if result.audit is not None:
            self.answers_covered.append(result.audit.coverage_95)
            self.unstretched.append(result.audit.unstretched_95)
        if "chosen" in result.settings:
            said = str(result.settings["chosen"])
            if share := result.calibration.shrinkage:
                said += f", {share:.0%} {result.calibration.towards}"
            self.chosen.append(said)


def _iou(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Intersection over union of boxes, row by row."""

    def area(low: np.ndarray, high: np.ndarray) -> np.ndarray:
        return np.asarray(np.maximum(high - low, 0).prod(axis=1))

    both = area(np.maximum(one[:, :2], other[:, :2]), np.minimum(one[:, 2:], other[:, 2:]))
    union = area(one[:, :2], one[:, 2:]) + area(other[:, :2], other[:, 2:]) - both
    return np.asarray(both / union)


def measure(source: DataSet | str, method: str, n_seeds: int, limit: int) -> Measured:
    """Run one method on one set, in a process of its own; whatever stops it is its result."""
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _stop)
    measured = Measured()
    try:
        signal.alarm(limit)
        for crowd in _draws(source, n_seeds):
            start = time.process_time()
            result = METHODS[method]().fit(crowd.answers)
            measured.add(crowd, result.estimate, time.process_time() - start)
            if method in OURS:
                measured.add_result(crowd, result)
    except vp.VoxpopError as reason:
        measured = Measured(note=f"not run: {reason}")
    except TimeoutError:
        measured = Measured(note=f"not run to its end: more than {limit} s")
    except Exception as error:
        measured = Measured(note=f"failed: {type(error).__name__}: {error}")
    signal.alarm(0)
    return measured


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError


def _draws(source: DataSet | str, n_seeds: int) -> Iterable[Crowd]:
    if isinstance(source, DataSet):
        yield read(source)
    else:
        for seed in range(n_seeds):
            yield CROWDS[source](np.random.default_rng(seed))


Table = dict[str, dict[str, Measured]]


def measure_all(
    sets: Mapping[str, DataSet | str],
    methods: Sequence[str],
    *,
    n_seeds: int,
    limit: int,
    jobs: int,
    kept: Path | None = None,
) -> Table:
    """Measure every method on every set, so many at a time; those in the file ``kept`` are done.

    With no ``jobs`` nothing more is measured.
    """
    done = _read_kept(kept)
    wanted = [
        (name, method)
        for name, source in sets.items()
        for method in methods
        if isinstance(source, DataSet) or method in ON_CROWDS
    ]
    ahead = [pair for pair in wanted if pair not in done] if jobs else []
    with ProcessPoolExecutor(jobs or 1, get_context("spawn"), max_tasks_per_child=1) as pool:
        running = {
            pool.submit(measure, sets[name], method, n_seeds, limit): (name, method)
            for name, method in ahead
        }
        for finished in as_completed(running):
            name, method = running[finished]
            done[name, method] = found = finished.result()
            figure = f"{np.mean(found.rmse):.4g}" if found.rmse else found.note
            print(f"{name}, {method}: {figure}", file=sys.stderr, flush=True)
            if kept is not None and found.rmse:
                with kept.open("a") as file:
                    file.write(json.dumps([name, method, asdict(found)]) + "\n")
    table: Table = {name: {} for name in sets}
    for name, method in wanted:
        table[name][method] = done.get((name, method), Measured(note=NOT_MEASURED))
    return table


def _read_kept(kept: Path | None) -> dict[tuple[str, str], Measured]:
    if kept is None or not kept.exists():
        return {}
    rows = [json.loads(line) for line in kept.read_text().splitlines()]
    return {(name, method): Measured(**found) for name, method, found in rows}
