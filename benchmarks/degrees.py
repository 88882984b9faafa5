"""What a sweep costs as tasks get more answers, and which kernel is taken.

    python -m benchmarks.degrees [--quick]

Each cell is a crowd of its own; the time is the minimum CPU time of its sweeps from the second
on, per answer, so that a cost linear in the number of answers of a task shows as a flat column.
"""

from __future__ import annotations

from functools import partial

import numpy as np

import voxpop as vp
from benchmarks.workloads import parse, print_head, print_table, regular, take_turns, timed
from voxpop.inference.engine import Engine

LONG = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 30, 50, 100, 200, 500, 1000)
SHORT = (2, 3, 4, 5, 6, 8, 10, 12)
PER_WORKER = 20


def levels(n: int) -> tuple[float, ...]:
    """Variances from 10 to 1000, equally far apart in logs."""
    return tuple(np.geomspace(10.0, 1000.0, n).tolist())


def draw(n_tasks: int, per_task: int, n_levels: int, dimension: int) -> vp.Answers:
    """Draw a crowd with so many answers to every task."""
    rng = np.random.default_rng(1)
    model = vp.Model(support=levels(n_levels), dimension=dimension)
    # Twice as many workers as a task needs, at least.
    n_tasks = max(n_tasks, 2 * PER_WORKER)
    assign = vp.assign_regular if n_tasks * per_task <= 200_000 else regular
    assignment = assign(n_tasks, per_task, PER_WORKER, rng)
    return vp.simulate(model, assignment, rng).answers


def sweep(answers: vp.Answers, n_levels: int, rounds: int, backend: str) -> tuple[float, str]:
    """Return the seconds of a sweep, and the kernel that was chosen."""
    model = vp.Model(support=levels(n_levels), dimension=answers.dimension)
    messages = Engine(backend=backend).open(answers, model)

    def advance() -> None:
        messages._known_belief = np.empty((0, 0))  # every task is computed again
        messages.sweep()

    # The first call, which fills what is kept, does not count.
    advance()
    return take_turns({"sweep": advance}, rounds)["sweep"], "+".join(messages.used)


def along_one_line(n_answers: int, rounds: int, backend: str) -> None:
    """Go up to a thousand answers per task, in one dimension with eight levels."""
    rows = []
    for per_task in LONG:
        answers = draw(n_answers // per_task, per_task, 8, 1)
        seconds, kernel = sweep(answers, 8, rounds, backend)
        per_answer = 1e9 * seconds / answers.n_edges
        rows.append([per_task, answers.n_tasks, kernel, 1e3 * seconds, per_answer])
    print("### d = 1, 8 levels\n")
    print_table(["answers per task", "tasks", "way", "ms per sweep", "ns per answer"], rows)


def over_the_grid(n_answers: int, rounds: int, backend: str) -> None:
    """Go through dimensions and numbers of levels."""
    sizes = (2, 3, 8, 16)
    for dimension in (1, 2, 4):
        rows = []
        for per_task in SHORT:
            row: list[object] = [per_task]
            for n_levels in sizes:
                answers = draw(n_answers // per_task, per_task, n_levels, dimension)
                seconds, kernel = sweep(answers, n_levels, rounds, backend)
                row.append(f"{1e9 * seconds / answers.n_edges:,.0f} {kernel}")
            rows.append(row)
        print(f"### d = {dimension}: ns per answer and sweep, and the way\n")
        print_table(["answers per task", *(f"{n} levels" for n in sizes)], rows)


def whole_fit(n_tasks: int, backend: str) -> None:
    """Time the fit of tasks with a hundred answers each."""
    answers = draw(n_tasks, 100, 8, 1)
    found: list[vp.Result] = []
    bi = vp.BI(support=levels(8), backend=backend)
    took = timed(lambda: found.append(bi.fit(answers)))
    n_sweeps = len(found[0].trace.changes)
    kernels = "+".join(found[0].settings["inference_used"])
    print("### A whole fit: 100 answers per task, d = 1, 8 levels\n")
    print_table(
        ["tasks", "answers", "way", "sweeps", "wall s", "CPU s"],
        [[answers.n_tasks, answers.n_edges, kernels, n_sweeps, took.wall, took.cpu]],
    )


def one_task(sizes: tuple[int, ...]) -> None:
    """Time fits of one task with very many answers, levels learned."""
    rows = []
    for size in sizes:
        rng = np.random.default_rng(0)
        value = rng.normal(0, np.sqrt(rng.choice([0.1, 1.0, 4.0], size)))
        answers = vp.Answers.from_arrays([0] * size, list(range(size)), value)
        for method in ("bi", "auto"):
            took = timed(partial(vp.aggregate, answers, method))
            rows.append([size, method, took.wall, took.cpu, 1e6 * took.cpu / size])
    print("### One task, levels learned\n")
    print_table(["answers", "method", "wall s", "CPU s", "µs per answer"], rows)


def main() -> None:
    """Print all tables."""
    options = parse(__doc__, ("--backend", {"default": "auto", "help": "native or portable"}))
    print_head("Degrees")
    rounds = 2 if options.quick else 5
    along_one_line(4_000 if options.quick else 100_000, rounds, options.backend)
    over_the_grid(1_200 if options.quick else 24_000, rounds, options.backend)
    whole_fit(300 if options.quick else 10_000, options.backend)
    one_task((1_000,) if options.quick else (1_000, 10_000, 100_000))


if __name__ == "__main__":
    main()
