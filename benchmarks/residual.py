"""Whether it pays to compute only those tasks again whose workers' beliefs have moved.

    python -m benchmarks.residual [--quick]

Per sweep, the share of tasks that would have to be computed: those with a worker whose belief has
moved as a probability, and those with one whose belief has moved in logs, where improbable levels
still move long after nothing shows. Only the first can be left out, and only by a kernel whose
messages are accurate as probabilities and no more: ``active``, which does so; its time with and
without it.
"""

from __future__ import annotations

import numpy as np

import voxpop as vp
from benchmarks.workloads import LEVELS, WORKLOADS, parse, print_head, print_table, take_turns
from voxpop.inference.engine import Engine
from voxpop.inference.kernel_set import belief
from voxpop.inference.message_passing import MessagePassing

TOLERANCE, MOVED, MOVED_NATS = 1e-7, 1e-9, 1.0


def open_messages(answers: vp.Answers) -> MessagePassing:
    """Lay out a crowd whose levels are known."""
    return Engine().open(answers, vp.Model(support=LEVELS, dimension=answers.dimension))


def shares(name: str) -> list[list[object]]:
    """One row per sweep: its change, and which tasks the next would have to compute."""
    answers = WORKLOADS[name].draw().answers
    messages = open_messages(answers)
    worker = answers.worker.reshape(answers.n_tasks, -1)
    rows: list[list[object]] = []
    before, change = messages.sums, 1.0
    while change > TOLERANCE:
        change, _ = messages.sweep()
        now = messages.sums
        was, is_now = (belief(s, messages.quantum, messages.log_weights) for s in (before, now))
        moved = np.abs(is_now - was).max(axis=1) > MOVED
        in_logs = moved | (np.ptp(now - before, axis=1) * messages.quantum > MOVED_NATS)
        before = now
        share = [f"{m[worker].any(axis=1).mean():.1%}" for m in (moved, in_logs)]
        rows.append([f"{name}, {'+'.join(messages.used)}", len(rows) + 1, f"{change:.1e}", *share])
    return rows


def converge(answers: vp.Answers, skipping: bool) -> None:
    """Sweep until nothing changes."""
    messages = open_messages(answers)
    if not skipping:
        messages._moved_workers = lambda damping: None  # type: ignore[method-assign]  # noqa: ARG005
    change = 1.0
    while change > TOLERANCE:
        change, _ = messages.sweep()


def main() -> None:
    """Print both tables."""
    options = parse(__doc__)
    print_head("Residual scheduling")
    rows = [row for name in (("W1", "W4") if options.quick else WORKLOADS) for row in shares(name)]
    print(f"Belief moved by {MOVED:g}, or in logs by {MOVED_NATS:g} nat: tasks to speak again.\n")
    print_table(["workload", "sweep", "change", "by probability", "or by logs"], rows)
    answers = WORKLOADS["W4"].draw().answers
    best = take_turns(
        {
            "all tasks speak": lambda: converge(answers, False),
            "those with cause": lambda: converge(answers, True),
        },
        5 if options.quick else 40,
    )
    print("### W4 to convergence, `active`, set-up and guesses included\n")
    print_table(["", "CPU ms"], [[name, 1e3 * seconds] for name, seconds in best.items()])


if __name__ == "__main__":
    main()
