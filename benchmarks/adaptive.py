"""Adaptive buying against even buying: the error by number of answers, and what a campaign costs.

    python -m benchmarks.adaptive [--data DIR [--sets a,b]] [--quick] [--seeds N] [--plot FILE]

Both buyers meet the same workers, whose answers are the same whoever asks, and have the same
estimator: what the campaign knows. The even buyer gives a worker a task with the fewest answers.
A ratio is the adaptive buyer's mean squared error over the even one's, over all seeds, plus or
minus a standard error of the pairs. Real sets are replayed: answers are revealed when asked for,
the truth is used to score alone. "Saved" is the share of answers by which the adaptive buyer
reaches the even buyer's error sooner, read off between budgets on logarithmic scales.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

import voxpop as vp
from benchmarks.buying import THERE, Buyer, Drawn, Revealed, begin, curve
from benchmarks.measure import read
from benchmarks.workloads import parse, print_head, print_table, regular, run_module
from voxpop.arrays import Floats
from voxpop.estimators.benchmark import find_data_sets

N_TASKS, CAPACITY = 100, 20
PER_TASK = (2, 3, 4, 5, 6, 8)
SHARES = (0.15, 0.3, 0.5, 0.7, 0.85)
SMALL, LARGE = (10.0, 100.0, 1000.0), (10.0, 100.0, 5000.0)


class Setting(NamedTuple):
    """A kind of crowd, and how answers are bought of it."""

    name: str
    model: vp.Model
    choose: bool = False
    learn: bool = False
    hard: float = 0.0
    tails: float = np.inf
    shared: float = 0.0
    bias: float = 0.0

    @property
    def way(self) -> str:
        """Say how workers are met, and what is known of the noise."""
        who = f"best {THERE // 2} of {THERE}" if self.choose else "all who come"
        return f"{who}, levels {'learned' if self.learn else 'known'}"


SPAM = vp.Model(support=(10, 100, 10_000), weights=(0.4, 0.4, 0.2))
SETTINGS = [
    Setting("all alike {100}", vp.Model(support=(100,))),
    Setting("mild {10, 100}", vp.Model(support=(10, 100))),
    Setting("S_small {10, 100, 1000}", vp.Model(support=SMALL)),
    Setting("S_large {10, 100, 5000}", vp.Model(support=LARGE)),
    Setting("20 % spammers {10, 100, 10000}", SPAM),
    Setting("mild {10, 100}", vp.Model(support=(10, 100)), choose=True),
    Setting("S_small {10, 100, 1000}", vp.Model(support=SMALL), choose=True),
    Setting("S_large {10, 100, 5000}", vp.Model(support=LARGE), choose=True),
    Setting("20 % spammers {10, 100, 10000}", SPAM, choose=True),
    Setting("all alike {100}", vp.Model(support=(100,)), learn=True),
    Setting("S_small {10, 100, 1000}", vp.Model(support=SMALL), learn=True),
    Setting("S_large {10, 100, 5000}", vp.Model(support=LARGE), learn=True),
    Setting("S_small, some tasks harder", vp.Model(support=SMALL), learn=True, hard=0.7),
    Setting("S_small, Student-t (3)", vp.Model(support=SMALL), learn=True, tails=3.0),
    Setting("S_small, tasks' shared error 5", vp.Model(support=SMALL), learn=True, shared=5.0),
    Setting("S_small, workers' bias 10", vp.Model(support=SMALL), learn=True, bias=10.0),
    Setting("20 % spammers {10, 100, 10000}", SPAM, learn=True),
    Setting("all alike {100}, harder tasks", vp.Model(support=(100,)), learn=True, hard=0.7),
    Setting("all alike {100}, shared error 10", vp.Model(support=(100,)), learn=True, shared=10.0),
]
DRAWN = {"S_small {10, 100, 1000}", "S_large {10, 100, 5000}", "20 % spammers {10, 100, 10000}"}

Curves = Floats
"""Mean squared errors by seed, buyer (even, adaptive) and budget."""


def drawn_curves(setting: Setting, seeds: range) -> tuple[Curves, float]:
    """Let both buyers buy of crowds that are drawn; tell the mean trust at the end, too."""
    found, trust = [], 0.0
    for seed in seeds:
        pair = []
        for adaptive in (False, True):
            beyond = (setting.hard, setting.tails, setting.shared, setting.bias)
            world = Drawn(setting.model, N_TASKS, CAPACITY, seed, *beyond)
            if setting.learn:
                buyer = begin(world, PER_TASK[0], adaptive)
            else:
                campaign = vp.Campaign(setting.model, range(N_TASKS))
                buyer = Buyer(world, campaign, adaptive)
            half = THERE // 2 if setting.choose else None
            budgets = [N_TASKS * n for n in PER_TASK]
            pair.append(curve(buyer, _step(buyer, half), budgets, relearn=setting.learn))
        found.append(pair)
        trust += buyer.campaign.trust / len(seeds)
    return np.array(found), trust


def _step(buyer: Buyer, needed: int | None) -> Callable[[], bool]:
    return lambda: buyer.by_arrival(needed)


def ratio(curves: Curves) -> tuple[Floats, Floats]:
    """Mean squared error of the adaptive buyer over the even one's, and its standard error."""
    even, ours = curves[:, 0], curves[:, 1]
    found = ours.mean(axis=0) / even.mean(axis=0)
    spread = np.std(ours - found * even, axis=0, ddof=1) / np.sqrt(len(even))
    return found, spread / even.mean(axis=0)


def saved(curves: Curves, budgets: Floats, at: int) -> float:
    """Share of answers saved where the even buyer has spent the budget at this place."""
    even, ours = np.log(curves.mean(axis=0))
    # Errors fall; where they do not by chance, the least so far counts.
    ours = np.minimum.accumulate(ours)
    needed = np.interp(-even[at], -ours, np.log(budgets))
    return float(1.0 - np.exp(needed) / budgets[at])


def print_drawn(chosen: list[Setting], seeds: range, plot: Path | None) -> None:
    """Go through the settings; one row each."""
    print(
        f"### Drawn crowds\n\n{N_TASKS} tasks, {N_TASKS} workers with {CAPACITY} answers at most, "
        f"{THERE} there at a time, {len(seeds)} seeds. Ratio of mean squared errors by answers per "
        "task. Where levels are learned, the first two answers per task are bought evenly by "
        "both, and levels are learned anew at every budget. Trust: how far left-out answers bore "
        "out what was learned of workers, in the end.\n"
    )
    rows: list[list[object]] = []
    kept = {}
    for setting in chosen:
        start = time.perf_counter()
        curves, trust = drawn_curves(setting, seeds)
        if setting.name in DRAWN and not setting.learn:
            kept[setting.name, setting.choose] = curves
        found, error = ratio(curves)
        cells = [f"{r:.2f} ± {e:.2f}" for r, e in zip(found, error, strict=True)]
        share = saved(curves, np.array(PER_TASK, dtype=float), PER_TASK.index(6))
        rows.append([setting.name, setting.way, *cells, f"{share:.0%}", f"{trust:.2f}"])
        print(f"{setting.name}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    by_budget = [f"{n} per task" for n in PER_TASK]
    print_table(["crowd", "who answers", *by_budget, "saved at 6", "trust"], rows)
    if plot is not None:
        draw(kept, plot)


def print_real(folder: Path, names: list[str], n_seeds: int) -> None:
    """Replay real sets, those named or all; one row each and style."""
    print(
        "### Real sets, replayed\n\nTwo answers per task to begin with, then the shares given of "
        "the others; levels learned at the beginning and at every budget. By task: a task is "
        "asked for, and chance decides which of its workers answers. By worker: workers come as "
        "often as they have answers, and each gets one of the tasks that he answered.\n"
    )
    rows: list[list[object]] = []
    for name, files in find_data_sets(folder).items():
        if names and name not in names:
            continue
        crowd = read(files)
        n_answers = crowd.answers.n_edges
        seeds = max(3, n_seeds if n_answers < 1000 else n_seeds // 4)
        for style in ("task", "worker") if n_answers < 1000 else ("task",):
            start = time.perf_counter()
            found, trust = [], 0.0
            for seed in range(seeds):
                pair = []
                for adaptive in (False, True):
                    world = Revealed(crowd.answers, crowd.truth, seed)
                    buyer = begin(world, 2, adaptive)
                    first = buyer.campaign.n_answers
                    budgets = [int(first + share * (n_answers - first)) for share in SHARES]
                    step = _step(buyer, None) if style == "worker" else _by_task(buyer, n_answers)
                    pair.append(curve(buyer, step, budgets, relearn=True))
                found.append(pair)
                trust += buyer.campaign.trust / seeds
            curves = np.array(found)
            means, error = ratio(curves)
            cells = [f"{r:.2f} ± {e:.2f}" for r, e in zip(means, error, strict=True)]
            share = saved(curves, np.array(budgets, dtype=float), SHARES.index(0.5))
            rows.append([name, style, seeds, *cells, f"{share:.0%}", f"{trust:.2f}"])
            print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    shares = [f"{share:.0%}" for share in SHARES]
    print_table(["set", "by", "seeds", *shares, "saved at 50%", "trust"], rows)


def _by_task(buyer: Buyer, n_answers: int) -> Callable[[], bool]:
    return lambda: buyer.by_task(max(5, n_answers // 80))


# The campaign itself


def stream(n_answers: int) -> None:
    """Add answers in batches of 1,000, asking for the next task after each."""
    per_task, per_worker, batch = 10, 50, 1000
    n_tasks = n_answers // per_task
    rng = np.random.default_rng(1)
    model = vp.Model(support=SMALL)
    answers = vp.simulate(model, regular(n_tasks, per_task, per_worker, rng), rng).answers
    order = rng.permutation(answers.n_edges)
    task, worker = answers.task[order].tolist(), answers.worker[order].tolist()
    value = answers.value[order]
    before = _resident()
    campaign = vp.Campaign(model, range(n_tasks))
    seconds, slow = np.zeros(3), []
    clock = time.process_time  # the machine may have other things to do
    for start in range(0, n_answers, batch):
        part = slice(start, start + batch)
        t0 = clock()
        campaign.add_many(task[part], worker[part], value[part])
        t1 = clock()
        campaign.next(1)  # works out what the batch moved
        t2 = clock()
        campaign.next(20)
        t3 = clock()
        seconds += (t1 - t0, t2 - t1, t3 - t2)
        slow.append((t2 - t1, t3 - t2))
    grown = _resident() - before
    t0 = clock()
    found = campaign.result()
    finish = clock() - t0
    t0 = clock()
    fit = vp.BI(support=SMALL, tol=1e-8).fit(campaign.answers())
    scratch = clock() - t0
    place = {i: row for row, i in enumerate(fit.task_ids.tolist())}
    rows = [place[i] for i in found.task_ids.tolist()]
    apart = np.abs(found.estimate - fit.estimate[rows]).max() / np.sqrt(SMALL[0])
    with TemporaryDirectory() as folder:
        t0 = clock()
        path = campaign.save(Path(folder) / "campaign")
        t1 = clock()
        vp.Campaign.load(path)
        saving, loading, size = t1 - t0, clock() - t1, path.stat().st_size
    campaign.add("one more", 0, 50.0)
    t0 = clock()
    campaign.next(20)
    one = clock() - t0
    median = np.median(np.array(slow[len(slow) // 10 :]), axis=0)
    print_table(
        ["answers", "what", "CPU s"],
        [
            [n_answers, f"adding, {n_answers // batch:,} batches of {batch:,}", seconds[0]],
            [n_answers, "working out what moved, for a choice (to 1e-3)", seconds[1]],
            [n_answers, "of it, one batch (median)", median[0]],
            [n_answers, "next(20), nothing new (median)", median[1]],
            [n_answers, "next(20) after one new answer", one],
            [n_answers, "the result at the end (to 1e-8)", finish],
            [n_answers, "BI from scratch on all of them", scratch],
            [n_answers, f"saving ({size / 1e6:.0f} MB)", saving],
            [n_answers, "loading, without the fit", loading],
        ],
    )
    print(
        f"Largest difference of an estimate from BI's: {apart:.1e} of the least noise sd. The "
        f"campaign holds {grown / 1e6:,.0f} MB after the last answer.\n"
    )


def _resident() -> int:
    """Memory of this process, in bytes, where the system tells; else 0."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    except OSError:
        return 0


def print_stream(quick: bool) -> None:
    """Stream in a process of its own, and tell its memory."""
    n_answers = 100_000 if quick else 1_000_000
    print(f"### {n_answers:,} answers streamed\n")
    usage = run_module("adaptive", "--stream", str(n_answers))
    print(usage.stdout.strip())
    print(
        f"\nPeak memory of the process {usage.peak / 1e6:,.0f} MB: with the crowd that was drawn, "
        "the result, and the fit from scratch.\n"
    )


# Picture


def draw(kept: dict[tuple[str, bool], Curves], path: Path) -> None:
    """Draw the error by answers per task, one panel per crowd."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(name for name, _ in kept))
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    for panel, name in zip(figure.subplots(1, len(names), sharey=True), names, strict=True):
        lines = [
            ("bought evenly", kept[name, False][:, 0], "#777777", "o"),
            ("next, for all who come", kept[name, False][:, 1], "#1f77b4", "s"),
            ("next, best half of those there", kept[name, True][:, 1], "#d62728", "^"),
        ]
        for label, curves, colour, mark in lines:
            mean = curves.mean(axis=0)
            error = 2 * curves.std(axis=0, ddof=1) / np.sqrt(len(curves))
            panel.errorbar(
                PER_TASK, mean, error, label=label, color=colour, marker=mark, ms=4, capsize=2
            )
        panel.set(yscale="log", title=name, xlabel="answers per task")
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("mean squared error")
    figure.axes[0].legend(frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Print all, or stream in a child process."""
    options = parse(
        __doc__,
        ("--data", {"type": Path, "help": "folder of real sets"}),
        ("--sets", {"default": "", "help": "names of real sets, comma-separated; all by default"}),
        ("--seeds", {"type": int, "default": 12}),
        ("--first", {"type": int, "default": 0, "help": "first seed of drawn crowds"}),
        ("--plot", {"type": Path, "help": "where to draw the curves"}),
        ("--skip", {"default": "", "help": "parts to leave out, of known,learned,real,stream"}),
        ("--stream", {"type": int, "help": "stream so many answers, and nothing else"}),
    )
    if options.stream:
        stream(options.stream)
        return
    print_head("Adaptive buying")
    skip = options.skip.split(",")
    n_seeds = 3 if options.quick else options.seeds
    kinds = [learn for learn, kind in ((False, "known"), (True, "learned")) if kind not in skip]
    if kinds:
        seeds = range(options.first, options.first + n_seeds)
        print_drawn([s for s in SETTINGS if s.learn in kinds], seeds, options.plot)
    if options.data is not None and "real" not in skip:
        print_real(options.data, [name for name in options.sets.split(",") if name], n_seeds)
    if "stream" not in skip:
        print_stream(options.quick)


if __name__ == "__main__":
    main()
