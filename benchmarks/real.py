"""How near does each method come to a known truth, and do its intervals hold: a table a set.

    python -m benchmarks.real --data DIR [--sets a,b] [--methods a,b] [--quick] [--write]

Takes every folder of DIR with [PREFIX_]answers.csv[.gz] and [PREFIX_]truth.csv[.gz], and synthetic
crowds, some made to mislead. ``--write`` puts what is printed into benchmarks/RESULTS.md.
"""

from __future__ import annotations

import contextlib
import io
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from types import FrameType

import numpy as np

import voxpop as vp
from benchmarks import fits
from benchmarks.crowds import CROWDS, MODEL, Crowd
from benchmarks.engines import CannotRun
from benchmarks.workloads import ROOT, parse, print_head, print_table
from voxpop.io import read_truth
from voxpop.noise import Noise

RESULTS = ROOT / "benchmarks/RESULTS.md"
TITLE = "Real crowds, and misleading ones"
BOX = ("xmin", "ymin", "xmax", "ymax")
# What the issue asks: RMSE of auto on sets by name, and what holds for all.
MOST_RMSE = {
    "pedestrian_boxes": 5.9,
    "pedestrian_boxes single": 11.3,
    "moviereviews": 0.060,
    "peer_grading": 1.25,
}
MOST_ABOVE = 1.03
COVERAGE = (0.93, 0.97)


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
    "auto": vp.Auto,
}
PEERS: dict[str, Callable[[vp.Answers], np.ndarray]] = {
    "crowd-kit RASA": fits.rasa,
    "sureal P910": fits.p910,
    "sureal P913": fits.p913,
}
# For synthetic crowds the question is whether `auto` is safe: these show what it could have had.
ON_CROWDS = ("mean", "median", "BI, NBI support", "BI", "BI, bias, tails", "auto")


# Sets


@dataclass(frozen=True)
class Files:
    """A set in files."""

    answers: Path
    truth: Path

    def read(self) -> Crowd:
        """Read it; tasks without a truth have NaN."""
        answers = vp.read_answers(self.answers)
        return Crowd(answers, read_truth(self.truth, answers.task_ids, answers.value_names))


def find_sets(folder: Path) -> dict[str, Files]:
    """Find all sets by their layout, named by their folder and prefix."""
    found = {}
    for answers in sorted(folder.glob("*/*answers.csv*")):
        prefix = answers.name.removesuffix(".gz").removesuffix("answers.csv")
        truth = [answers.parent / f"{prefix}truth.csv{end}" for end in (".gz", "")]
        if there := [path for path in truth if path.exists()]:
            name = f"{answers.parent.name} {prefix.rstrip('_')}".strip()
            found[name] = Files(answers, there[0])
    return found


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
            if share := result.settings.get("fallback_share"):
                said += f", {share:.0%} {result.settings['fallback']}"
            self.chosen.append(said)


def _iou(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Intersection over union of boxes, row by row."""

    def area(low: np.ndarray, high: np.ndarray) -> np.ndarray:
        return np.asarray(np.maximum(high - low, 0).prod(axis=1))

    both = area(np.maximum(one[:, :2], other[:, :2]), np.minimum(one[:, 2:], other[:, 2:]))
    union = area(one[:, :2], one[:, 2:]) + area(other[:, :2], other[:, 2:]) - both
    return both / union


def measure(source: Files | str, method: str, n_seeds: int, limit: int) -> Measured:
    """Run one method on one set, in a process of its own; whatever stops it is its result."""
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _stop)
    measured = Measured()
    try:
        signal.alarm(limit)
        for crowd in _draws(source, n_seeds):
            start = time.process_time()
            if method in PEERS:
                estimate = PEERS[method](crowd.answers)
                measured.add(crowd, estimate, time.process_time() - start)
            else:
                result = OURS[method]().fit(crowd.answers)
                measured.add(crowd, result.estimate, time.process_time() - start)
                measured.add_result(crowd, result)
    except CannotRun as reason:
        measured = Measured(note=f"not run: {reason}")
    except ImportError as error:
        measured = Measured(note=f"not run: not installed ({error})")
    except TimeoutError:
        measured = Measured(note=f"not run to its end: more than {limit} s")
    except Exception as error:
        measured = Measured(note=f"failed: {type(error).__name__}: {error}")
    signal.alarm(0)
    return measured


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError


def _draws(source: Files | str, n_seeds: int) -> Iterable[Crowd]:
    if isinstance(source, Files):
        yield source.read()
    else:
        for seed in range(n_seeds):
            yield CROWDS[source](np.random.default_rng(seed))


Table = dict[str, dict[str, Measured]]


def measure_all(
    sets: Mapping[str, Files | str], methods: Sequence[str], n_seeds: int, limit: int, jobs: int
) -> Table:
    """Measure every method on every set, each in a fresh process, so many at a time."""
    table: Table = {name: {} for name in sets}
    wanted = [
        (name, method)
        for name, source in sets.items()
        for method in methods
        if isinstance(source, Files) or method in ON_CROWDS
    ]
    with ProcessPoolExecutor(jobs, get_context("spawn"), max_tasks_per_child=1) as pool:
        running = {
            pool.submit(measure, sets[name], method, n_seeds, limit): (name, method)
            for name, method in wanted
        }
        for done in as_completed(running):
            name, method = running[done]
            table[name][method] = found = done.result()
            figure = f"{_mean(found.rmse):.4g}" if found.rmse else found.note
            print(f"{name}, {method}: {figure}", file=sys.stderr, flush=True)
    return {name: {m: row[m] for m in methods if m in row} for name, row in table.items()}


# Tables


def _mean(items: Sequence[float]) -> float:
    return float(np.mean(items)) if items else np.nan


def _pooled(items: Sequence[float]) -> float:
    return float(np.sqrt(np.mean(np.square(items)))) if items else np.nan


def _percent(items: Sequence[float]) -> str | None:
    return f"{_mean(items):.1%}" if items and np.isfinite(items).all() else None


def _above(row: Mapping[str, Measured], method: str) -> float:
    """RMSE relative to the better of mean and median; that of all seeds together."""
    better = min(_pooled(row[simple].rmse) for simple in ("mean", "median"))
    return _pooled(row[method].rmse) / better


def print_set(name: str, files: Files, row: Mapping[str, Measured]) -> None:
    """Print the table of a real set."""
    answers = vp.read_answers(files.answers)
    print(
        f"### {name}\n\n{answers.n_tasks:,} tasks, {answers.n_workers:,} workers, "
        f"{answers.n_edges:,} answers of {answers.dimension} numbers.\n"
    )
    boxes = answers.value_names == BOX
    head = ["method", "RMSE", "to the better of mean, median", *(["mean IoU"] if boxes else [])]
    head += ["truths in 95 %", "left-out answers in 95 %", "unstretched", "CPU s", "note"]
    rows = []
    for method, found in row.items():
        if not found.rmse:
            rows.append([method, *[None] * (len(head) - 2), found.note])
            continue
        cells: list[object] = [method, f"{found.rmse[0]:.4g}", f"{_above(row, method):.3f}"]
        cells += [f"{_mean(found.iou):.3f}"] if boxes else []
        cells += [_percent(found.truths_covered), _percent(found.answers_covered)]
        cells += [_percent(found.unstretched), _mean(found.seconds)]
        rows.append([*cells, "; ".join(found.chosen) or found.note])
    print_table(head, rows)


def print_crowds(table: Table, n_seeds: int) -> None:
    """Print one table for all synthetic sets: the RMSE of all seeds together."""
    print(
        f"### Synthetic crowds\n\nRMSE over {n_seeds} seeds; `auto` to the better of mean and "
        "median over all seeds, and on the worst of them. What each crowd does is said in "
        "`benchmarks/crowds.py`.\n"
    )
    methods = [m for m in ON_CROWDS if any(m in row for row in table.values())]
    head = ["crowd", *methods, "to the better", "worst seed", "truths in 95 %"]
    head += ["left-out answers in 95 %", "chosen most often"]
    rows = []
    for name, row in table.items():
        cells: list[object] = [name]
        cells += [f"{_pooled(row[m].rmse):.3g}" if row[m].rmse else "-" for m in methods]
        auto = row["auto"]
        if not auto.rmse:
            rows.append([*cells, None, None, None, None, auto.note])
            continue
        worst = max(
            own / min(one, other)
            for own, one, other in zip(auto.rmse, row["mean"].rmse, row["median"].rmse, strict=True)
        )
        cells += [f"{_above(row, 'auto'):.3f}", f"{worst:.3f}", _percent(auto.truths_covered)]
        most = Counter(said.split(" of ")[0] for said in auto.chosen).most_common(1)[0]
        rows.append([*cells, _percent(auto.answers_covered), f"{most[0]} ({most[1]})"])
    print_table(head, rows)


def print_targets(table: Table) -> None:
    """Print what was asked of `auto`, and whether it holds."""
    rows: list[list[object]] = []
    have = {name: row for name, row in table.items() if "auto" in row and row["auto"].rmse}

    def asked(what: str, figure: str, met: bool) -> None:
        rows.append([what, figure, "met" if met else "NOT MET"])

    for name, most in MOST_RMSE.items():
        if name in have:
            found = have[name]["auto"].rmse[0]
            asked(f"RMSE on {name} at most {most:g}", f"{found:.4g}", found <= most)
        else:
            rows.append([f"RMSE on {name} at most {most:g}", None, "not measured"])
    above = {name: _above(row, "auto") for name, row in have.items()}
    for name, ratio in above.items():
        if name not in CROWDS:
            asked(
                f"{name}: at most 3 % above mean, median", f"{ratio - 1:+.1%}", ratio <= MOST_ABOVE
            )
    worse = {n: f"{n} {r - 1:+.1%}" for n, r in above.items() if n in CROWDS and r > MOST_ABOVE}
    asked("synthetic sets: at most 3 % above", ", ".join(worse.values()) or "none above", not worse)
    low, high = COVERAGE
    for what, names in (("real", set(have) - set(CROWDS)), ("synthetic", set(have) & set(CROWDS))):
        covered = {n: _mean(have[n]["auto"].answers_covered) for n in have if n in names}
        out = [f"{n} {c:.1%}" for n, c in covered.items() if not low <= c <= high]
        asked(f"left-out answers covered 93 to 97 %, {what}", ", ".join(out) or "all", not out)
    for name in MODEL:
        if name in have:
            covered = _mean(have[name]["auto"].truths_covered)
            asked(f"truths covered 93 to 97 %, {name}", f"{covered:.1%}", low <= covered <= high)
    print("### What was asked of `auto`\n")
    print_table(["target", "found", ""], rows)


# The section


def put_section(section: str) -> None:
    """Put the section into RESULTS.md, in place of the one before it or at the end."""
    parts = RESULTS.read_text().split("\n## ")
    mine = section.strip().removeprefix("## ")
    places = [i for i, part in enumerate(parts) if part.startswith(TITLE + "\n")]
    if places:
        parts[places[0]] = mine + "\n"
    else:
        parts[-1] = parts[-1].rstrip() + "\n"
        parts.append(mine)
    RESULTS.write_text("\n## ".join(parts).rstrip() + "\n")


def main() -> None:
    """Measure, print, and keep."""
    every = {**dict.fromkeys(OURS), **dict.fromkeys(PEERS)}
    options = parse(
        __doc__,
        (
            "--data",
            {"type": Path, "default": ROOT.parent / "shared/data", "help": "folder of sets"},
        ),
        ("--sets", {"help": "some of the sets, by name; real, synthetic"}),
        ("--methods", {"help": f"some of: {'; '.join(every)} (apart by semicolons)"}),
        ("--seeds", {"type": int, "default": 5, "help": "draws of each synthetic crowd"}),
        ("--jobs", {"type": int, "default": 1, "help": "processes at a time"}),
        ("--limit", {"type": int, "default": 3600, "help": "seconds a method may take on a set"}),
        ("--write", {"action": "store_true", "help": "put the section into benchmarks/RESULTS.md"}),
    )
    real: dict[str, Files | str] = {**find_sets(options.data)}
    groups = {"real": real, "synthetic": {name: name for name in CROWDS}}
    sets = {**real, **groups["synthetic"]}
    if options.sets:
        names = [n for given in options.sets.split(",") for n in groups.get(given, {given: ""})]
        if unknown := [name for name in names if name not in sets]:
            raise SystemExit(f"no set {unknown[0]!r}; choose of {', '.join(sets)}")
        sets = {name: sets[name] for name in names}
    methods = list(every)
    if options.methods:
        asked = {name.strip() for name in options.methods.split(";")} | {"mean", "median", "auto"}
        methods = [name for name in every if name in asked]
    n_seeds = 2 if options.quick else options.seeds
    table = measure_all(sets, methods, n_seeds, options.limit, options.jobs)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        print_head(TITLE, ("crowd-kit", "sureal"))
        for name, source in sets.items():
            if isinstance(source, Files):
                print_set(name, source, table[name])
        crowds = {name: row for name, row in table.items() if name in CROWDS}
        if crowds:
            print_crowds(crowds, n_seeds)
        print_targets(table)
    print(said.getvalue())
    if options.write:
        put_section(said.getvalue())


if __name__ == "__main__":
    main()
