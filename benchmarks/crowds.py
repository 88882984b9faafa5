"""Does the default deserve to be the default: everyday crowds, and what is wanted on each.

    python -m benchmarks.crowds [--rows a,b] [--seeds N] [--first-seed K] [--quick] [--write]

One row a target, over seeds. The crowds are in benchmarks/everyday_crowds.py; real sets are looked
for in --data, and left out where they are not there. ``--keep`` is a file of what was measured
before, by row and seed: it belongs to one version of voxpop.
"""

from __future__ import annotations

import contextlib
import io
import json
import signal
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from types import FrameType

import numpy as np

from benchmarks.crowd_rows import Figures, Row
from benchmarks.crowd_targets import BEFORE, ROWS, real_row_name
from benchmarks.engines import CannotRun
from benchmarks.real import put_section
from benchmarks.workloads import ROOT, parse, print_head, print_table

TITLE = "Everyday crowds"
HEAD = (
    *("crowd", "to", "mean", "worst seed", "bar", "truths in 95 %", "CPU s"),
    *("target", "", "other figures and notes"),
)
# Named in a column or a part of the ratio; all other figures stand at the end of a row.
IN_COLUMNS = {
    "rmse",
    "mean",
    "median",
    "one",
    "spread",
    "best",
    "covered",
    "seconds",
    "ratio",
    "bar",
}
# Mean coverage wanted of the shared sets together.
COVERAGE = (0.88, 0.98)

Unit = tuple[str, int]
# What was measured, or why not.
Found = dict[Unit, Figures | str]


# Measuring


def measure(name: str, seed: int, data: Path, limit: int) -> Figures | str:
    """Measure a row for one seed; whatever stops it is its result."""
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _stop)
    signal.alarm(limit)
    try:
        return ROWS[name].measure(seed, data)
    except CannotRun as reason:
        return f"not run: {reason}"
    except TimeoutError:
        return f"not run to its end: more than {limit} s"
    except Exception as error:
        return f"failed: {type(error).__name__}: {error}"
    finally:
        signal.alarm(0)


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError


def measure_all(
    units: Sequence[Unit], *, data: Path, limit: int, jobs: int, kept: Path | None
) -> Found:
    """Measure rows for seeds, so many at a time; those in the file ``kept`` are done.

    With no ``jobs`` nothing more is measured.
    """
    done: Found = {}
    if kept is not None and kept.exists():
        lines = map(json.loads, kept.read_text().splitlines())
        done = {(name, seed): figures for name, seed, figures in lines}
    ahead = [unit for unit in units if unit not in done] if jobs else []
    with ProcessPoolExecutor(jobs or 1, get_context("spawn")) as pool:
        running = {pool.submit(measure, *unit, data, limit): unit for unit in ahead}
        for finished in as_completed(running):
            unit, found = running[finished], finished.result()
            done[unit] = found
            said = found if isinstance(found, str) else f"RMSE {found['rmse']:.4g}"
            print(f"{unit[0]}, seed {unit[1]}: {said}", file=sys.stderr, flush=True)
            if kept is not None and not isinstance(found, str):
                with kept.open("a") as file:
                    file.write(json.dumps([*unit, found]) + "\n")
    return {unit: done[unit] for unit in units if unit in done}


# Tables


def _cells(row: Row, all_found: Iterable[Figures | str]) -> tuple[list[object], list[bool | None]]:
    """Return the cells of a row, and for each of its targets whether it is met."""
    all_found = list(all_found)
    found = [figures for figures in all_found if not isinstance(figures, str)]
    notes = sorted({reason for reason in all_found if isinstance(reason, str)})
    wanted = "; ".join(map(str, row.targets)) or "-"
    to = {"one": "-", "spread": "sd of truths", "best": "oracle"}.get(row.over, row.over)
    if not found:
        why = "; ".join(notes) or "not measured"
        return [row.about, to, *[None] * 5, wanted, "not measured", why], [None] * len(row.targets)
    met = [target.met(row, found) for target in row.targets]
    seeds = row.with_ratios(found)
    mean = {name: row.middle(found, name) for name in seeds[0]}
    worst = None if len(seeds) == 1 or row.pooled else f"{max(s['ratio'] for s in seeds):.3g}"
    bar = f"{row.bar} {mean['bar']:.4g}" if row.bar else None
    others = [f"{name} {_figure(mean[name])}" for name in mean if name not in IN_COLUMNS]
    if len(found) < len(all_found):
        notes.insert(0, f"{len(found)} of {len(all_found)} seeds")
    cells = [row.about, to, f"{mean['ratio']:.4g}", worst, bar, f"{mean['covered']:.1%}"]
    return [*cells, mean["seconds"], wanted, _verdict(met), "; ".join([*others, *notes])], met


def _figure(value: float) -> str:
    return f"{value:.3g}" if np.isfinite(value) else "cannot be measured"


def _verdict(met: Sequence[bool | None]) -> str:
    if False in met:
        return "NOT MET"
    if None in met:
        return "met where measured" if True in met else "not measured"
    return "met" if met else ""


def print_rows(rows: Sequence[Row], found: Found) -> None:
    """Print a table for each section, and how many targets are met."""
    verdicts: list[bool | None] = []
    for section in dict.fromkeys(row.section for row in rows):
        print(f"### {section}\n")
        lines = []
        for row in rows:
            if row.section == section:
                cells, met = _cells(row, [f for (name, _), f in found.items() if name == row.name])
                lines.append(cells)
                verdicts += met
        print_table(HEAD, lines)
    verdicts += print_coverage(found)
    counts = {what: verdicts.count(met) for what, met in (("met", True), ("not", False))}
    print(
        f"Of {len(verdicts)} targets {counts['met']} are met and {counts['not']} are not; "
        f"{verdicts.count(None)} could not be measured.\n"
    )


def print_coverage(found: Found) -> list[bool | None]:
    """Print the mean coverage of truths on the shared sets, where all of them were measured."""
    names = [real_row_name(name) for name in BEFORE]
    covered: Mapping[str, float] = {
        name: figures["covered"]
        for (name, _), figures in found.items()
        if name in names and not isinstance(figures, str)
    }
    if len(covered) < len(names):
        return []
    mean, (low, high) = float(np.mean(list(covered.values()))), COVERAGE
    met = low <= mean <= high
    print(
        f"Truths in 95 % intervals without gold, mean of the {len(covered)} shared sets: "
        f"{mean:.1%}; target {low:.0%} to {high:.0%}: {_verdict([met])}.\n"
    )
    return [met]


def main() -> None:
    """Measure, print, and keep."""
    options = parse(
        __doc__,
        ("--rows", {"help": f"some of {', '.join(ROWS)}"}),
        ("--seeds", {"type": int, "default": 20, "help": "seeds a row; 2 with --quick"}),
        ("--first-seed", {"type": int, "default": 0, "help": "the first of the seeds"}),
        (
            "--data",
            {"type": Path, "default": ROOT.parent / "shared/data", "help": "folder of real sets"},
        ),
        ("--jobs", {"type": int, "default": 1, "help": "processes at a time; 0: only print"}),
        ("--limit", {"type": int, "default": 600, "help": "seconds a row may take for a seed"}),
        ("--keep", {"type": Path, "help": "file of what was measured, to go on from"}),
        ("--write", {"action": "store_true", "help": "put the section into benchmarks/RESULTS.md"}),
    )
    names = options.rows.split(",") if options.rows else list(ROWS)
    if unknown := [name for name in names if name not in ROWS]:
        raise SystemExit(f"no row {unknown[0]!r}; choose from {', '.join(ROWS)}")
    rows = [ROWS[name] for name in names]
    n_seeds, first = 2 if options.quick else options.seeds, options.first_seed
    seeds = range(first, first + n_seeds)
    units = [(row.name, seed) for row in rows for seed in (seeds[:1] if row.once else seeds)]
    found = measure_all(
        units, data=options.data, limit=options.limit, jobs=options.jobs, kept=options.keep
    )
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        print_head(TITLE)
        print(
            f"RMSE to what is named, over {n_seeds} seeds from {first}; what each crowd is stands "
            "in `benchmarks/everyday_crowds.py`. A bar is what an oracle or a plain method has "
            "on the same answers. Tasks with gold do not count.\n"
        )
        print_rows(rows, found)
    print(said.getvalue())
    if options.write:
        put_section(TITLE, said.getvalue())


if __name__ == "__main__":
    main()
