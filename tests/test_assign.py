"""Assignments: the degrees asked for, no pair twice, and every graph as likely as the next."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.stats import chisquare

from voxpop import (
    Assignment,
    ConfigError,
    DataError,
    assign_balanced,
    assign_degrees,
    assign_regular,
    assign_table,
)
from voxpop.cli import main


def assert_simple(assignment: Assignment) -> None:
    pairs = set(zip(assignment.task.tolist(), assignment.worker.tolist(), strict=True))
    assert len(pairs) == len(assignment.task)


@given(
    n_tasks=st.integers(1, 40),
    per_task=st.integers(1, 8),
    per_worker=st.integers(1, 12),
    seed=st.integers(0, 2**31),
)
def test_as_regular_as_possible(n_tasks: int, per_task: int, per_worker: int, seed: int) -> None:
    n_workers = -(-n_tasks * per_task // per_worker)
    assume(per_task <= n_workers)
    a = assign_regular(n_tasks, per_task, per_worker, np.random.default_rng(seed))
    assert_simple(a)
    assert (np.bincount(a.task, minlength=n_tasks) == per_task).all()
    load = np.bincount(a.worker, minlength=a.n_workers)
    assert a.n_workers == n_workers
    assert load.max() <= per_worker
    assert np.ptp(load) <= 1


@given(seed=st.integers(0, 2**31), n_tasks=st.integers(1, 12), n_workers=st.integers(1, 12))
def test_any_possible_degrees(seed: int, n_tasks: int, n_workers: int) -> None:
    """Degrees taken from a random graph, dense ones included, are found again."""
    rng = np.random.default_rng(seed)
    graph = rng.random((n_tasks, n_workers)) < rng.choice([0.3, 0.6, 0.95])
    graph[:, 0] = True
    graph[0, :] = True
    a = assign_degrees(graph.sum(1), graph.sum(0), rng)
    assert_simple(a)
    np.testing.assert_array_equal(np.bincount(a.task), graph.sum(1))
    np.testing.assert_array_equal(np.bincount(a.worker), graph.sum(0))


@pytest.mark.slow
def test_all_graphs_are_equally_likely() -> None:
    """The 90 simple (2, 2)-regular graphs of four and four; a fair draw fails once in 10,000."""
    rng = np.random.default_rng(0)
    seen: Counter[bytes] = Counter()
    for _ in range(1800):
        a = assign_regular(4, 2, 2, rng)
        seen[a.worker.tobytes()] += 1
    assert len(seen) == 90
    assert chisquare(list(seen.values())).pvalue > 1e-4


def test_a_worker_with_half_of_all_tasks() -> None:
    degrees = np.r_[457, np.full(150, 1), np.full(13, 50)]
    tasks = np.full(1002, degrees.sum() // 1002)
    tasks[: degrees.sum() - tasks.sum()] += 1
    assert_simple(assign_degrees(tasks, degrees, np.random.default_rng(0)))


def test_the_seed_decides() -> None:
    a, b, c = (assign_regular(50, 3, 5, np.random.default_rng(s)) for s in (1, 1, 2))
    np.testing.assert_array_equal(a.worker, b.worker)
    assert (a.worker != c.worker).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 3, 5), "n_tasks must be at least 1"),
        ((10, 0, 5), "per_task must be at least 1"),
        ((2, 5, 5), "5 answers per task need as many workers"),
    ],
)
def test_impossible_regular_assignments(arguments: tuple[int, int, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        assign_regular(*arguments, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("tasks", "workers", "message"),
    [
        ([2, 2], [3], "ask for 4 answers, the workers give 3"),
        ([2], [2], "no assignment has these degrees"),
        ([3, 1, 1], [3, 2], "no assignment has these degrees"),
        ([1, 0], [1], "at least one answer"),
        ([], [], "two lists"),
        ([2.5, 1.5], [2, 2], "whole numbers"),
    ],
)
def test_impossible_degrees(tasks: list[int], workers: list[int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        assign_degrees(tasks, workers, np.random.default_rng(0))


def pairs_of(
    graph: NDArray[np.bool_],
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    task, worker = np.nonzero(graph)
    return task, worker


def feasible(need: NDArray[np.int64], room: NDArray[np.int64], allowed: NDArray[np.bool_]) -> bool:
    """Tell by a linear program, whose corners are whole, whether everyone can be served."""
    n, m = allowed.shape
    per_task, per_worker = np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))
    bounds = [(0, int(may)) for may in allowed.ravel()]
    done = linprog(
        np.zeros(n * m), A_ub=per_worker, b_ub=room, A_eq=per_task, b_eq=need, bounds=bounds
    )
    return bool(done.status == 0)


def least_squares(
    need: NDArray[np.int64],
    load: NDArray[np.int64],
    room: NDArray[np.int64],
    allowed: NDArray[np.bool_],
) -> float:
    """Least sum of squared totals: every further answer of a worker costs two more."""
    n, m = allowed.shape
    most = int(room.max())
    cost = np.concatenate([np.zeros(n * m), *[2 * (load + step) + 1 for step in range(most)]])
    a_task = np.hstack([np.kron(np.eye(n), np.ones(m)), np.zeros((n, m * most))])
    a_worker = np.hstack([np.kron(np.ones(n), np.eye(m)), *[-np.eye(m)] * most])
    bounds = [(0, int(may)) for may in allowed.ravel()]
    bounds += [(0, int(step < limit)) for step in range(most) for limit in room]
    done = linprog(
        cost,
        A_eq=np.vstack([a_task, a_worker]),
        b_eq=np.concatenate([need, np.zeros(m)]),
        bounds=bounds,
    )
    return float(done.fun + (load**2).sum())


@given(
    n_tasks=st.integers(1, 8),
    n_workers=st.integers(1, 7),
    tenths=st.integers(1, 40),
    capacity=st.integers(0, 8),
    density=st.sampled_from([0.0, 0.2, 0.5]),
    n_groups=st.sampled_from([0, 2, 3]),
    mixing=st.sampled_from(["different", "same"]),
    seed=st.integers(0, 2**31),
)
def test_rules_are_kept_and_shares_as_equal_as_can_be(
    n_tasks: int,
    n_workers: int,
    tenths: int,
    capacity: int,
    density: float,
    n_groups: int,
    mixing: str,
    seed: int,
) -> None:
    """Against linear programs: an error means that there is none; no other is more equal."""
    rng = np.random.default_rng(seed)
    given_, forbidden = (rng.random((n_tasks, n_workers)) < density for _ in range(2))
    groups = [rng.integers(max(n_groups, 1), size=n) for n in (n_tasks, n_workers)]
    together = groups[0][:, None] == groups[1]
    allowed = ~given_ & ~forbidden
    if n_groups:
        allowed &= together if mixing == "same" else ~together
    load = given_.sum(0)
    room = np.maximum(capacity - load, 0)
    per_task = tenths / 10
    try:
        a = assign_balanced(
            n_tasks,
            n_workers,
            rng,
            per_task=per_task,
            capacity=capacity,
            given=pairs_of(given_),
            forbidden=pairs_of(forbidden),
            task_group=groups[0] if n_groups else None,
            worker_group=groups[1] if n_groups else None,
            mixing=mixing,  # type: ignore[arg-type]
        )
    except ConfigError:
        # Which tasks get one more is drawn: with those, or any others, there must be none.
        low = int(per_task)
        need = np.maximum(low - given_.sum(1), 0)
        if tenths % 10 == 0:
            assert not feasible(need, room, allowed)
        return
    assert_simple(a)
    assert allowed[a.task, a.worker].all()
    new = np.bincount(a.worker, minlength=n_workers)
    assert (new <= room).all()
    done = given_.sum(1) + np.bincount(a.task, minlength=n_tasks)
    goal = round(n_tasks * per_task)
    asked = np.bincount(a.task, minlength=n_tasks)
    assert (done >= int(per_task)).all()
    assert (done[asked > 0] <= int(np.ceil(per_task - 1e-9))).all()
    assert done.sum() >= goal
    total = load + new
    best = least_squares(asked, load, room, allowed)
    assert (total**2).sum() == pytest.approx(best)


@given(seed=st.integers(0, 1000), tenths=st.integers(10, 60))
def test_without_rules_both_sides_differ_by_one_at_most(seed: int, tenths: int) -> None:
    a = assign_balanced(37, 23, np.random.default_rng(seed), per_task=tenths / 10)
    assert_simple(a)
    assert len(a.task) == round(3.7 * tenths)
    for side, n in ((a.task, 37), (a.worker, 23)):
        assert np.ptp(np.bincount(side, minlength=n)) <= 1


@pytest.mark.slow
def test_assignments_under_rules_are_random() -> None:
    """Teams of two grade two essays of others: each of 4 graders comes equally often."""
    rng = np.random.default_rng(0)
    team = np.repeat([0, 1, 2], 2)
    seen: Counter[int] = Counter()
    for _ in range(900):
        a = assign_balanced(6, 6, rng, per_task=2, task_group=team, worker_group=team)
        seen.update(a.worker[a.task == 0].tolist())
    assert set(seen) == {2, 3, 4, 5}
    assert chisquare(list(seen.values())).pvalue > 1e-4


def test_a_large_assignment_with_many_rules() -> None:
    """Nobody grades the own team, or what is graded already; everyone grades five or six."""
    rng = np.random.default_rng(0)
    n = 3000
    first = assign_balanced(n, n, rng, per_task=2)
    team = np.arange(n) // 5
    a = assign_balanced(
        n,
        n,
        rng,
        per_task=5.5,
        capacity=6,
        given=(first.task, first.worker),
        task_group=team,
        worker_group=team,
    )
    assert (team[a.task] != team[a.worker]).all()
    both = np.concatenate([first.task * n + first.worker, a.task * n + a.worker])
    assert len(np.unique(both)) == len(both)
    for side in (np.r_[first.task, a.task], np.r_[first.worker, a.worker]):
        assert set(np.bincount(side).tolist()) == {5, 6}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"capacity": 4}, "50 answers are needed, but the workers have room for 48"),
        (
            {"task_group": [0] * 10, "worker_group": [0] * 8 + [1] * 4},
            "task 'essay 0' needs 5 answers, but the rules allow only 4 workers for it",
        ),
        (
            {"task_group": [0] * 10, "worker_group": [0] * 6 + [1] * 6, "capacity": 8},
            "10 tasks, .* need 50 answers, but the 6 workers that the rules allow",
        ),
        (
            {
                "task_group": [0] * 10,
                "worker_group": [0] * 6 + [1] * 6,
                "capacity": 8,
                "mixing": "same",
            },
            "50 answers are needed in the group of task 'essay 0', but its 6 workers have",
        ),
        ({"given": ([10], [0])}, "numbers of 10 tasks and 12 workers"),
        ({"per_task": 0}, "per_task must be positive"),
    ],
)
def test_an_impossible_assignment_says_why(asked: dict[str, object], message: str) -> None:
    arguments = {"per_task": 5, "task_names": [f"essay {i}" for i in range(10)], **asked}
    with pytest.raises(ConfigError, match=message):
        assign_balanced(10, 12, np.random.default_rng(0), **arguments)  # type: ignore[arg-type]


def test_tables_in_a_table_out() -> None:
    essays = pd.DataFrame({"submission": ["e1", "e2", "e3", "e4"], "team": ["a", "a", "b", "b"]})
    students = pd.DataFrame(
        {"grader": ["s1", "s2", "s3", "s4"], "team": ["a", "b", "a", "b"], "capacity": [2, 2, 2, 2]}
    )
    there = pd.DataFrame({"submission": ["e1", "e3"], "grader": ["s2", "gone"], "score": [1, 2]})
    table = assign_table(
        essays, students, np.random.default_rng(0), per_task=2, given=there, group="team"
    )
    pairs = set(zip(table["task"], table["worker"], strict=True))
    assert {pair for pair in pairs if pair[0] < "e3"} == {("e1", "s4"), ("e2", "s2"), ("e2", "s4")}
    assert len(pairs) == len(table) == 6  # eight wanted, two there
    assert table["worker"].tolist() == sorted(table["worker"])


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_the_command_writes_what_the_seed_decides(tmp_path: Path) -> None:
    plain = ("assign", "--tasks", "30", "--per-task", "4", "--capacity", "8")
    one, same, other = (run(*plain, "--seed", seed) for seed in ("1", "1", "2"))
    assert one.exit_code == 0, one.stderr
    assert one.stdout == same.stdout != other.stdout
    assert one.stderr == "120 answers to 30 tasks by 15 workers, 8 each\n"
    table = pd.read_csv(io.StringIO(one.stdout))
    assert list(table.columns) == ["task", "worker"]
    done = run(*plain, "--seed", "1", "-o", tmp_path / "who.csv")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == ""
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "who.csv"), table)


def test_the_command_continues_where_answers_are(tmp_path: Path) -> None:
    given_, workers = tmp_path / "answers.csv", tmp_path / "staff.csv"
    first = run("assign", "--tasks", "12", "--workers", "6", "--per-task", "2", "-o", given_)
    assert first.exit_code == 0, first.stderr
    pd.DataFrame({"worker": [f"w{u}" for u in range(6)]}).to_csv(workers, index=False)
    more = run(
        "assign", "--tasks", "12", "--workers", workers, "--per-task", "3", "--given", given_
    )
    assert more.exit_code == 0, more.stderr
    both = pd.concat([pd.read_csv(given_), pd.read_csv(io.StringIO(more.stdout))])
    assert not both.duplicated().any()
    assert (both["task"].value_counts() == 3).all()
    assert (both["worker"].value_counts() == 6).all()
    full = run("assign", "--tasks", "12", "--per-task", "2", "--given", given_)
    assert (full.exit_code, full.stderr) == (0, "every task has its answers\n")


def test_files_of_rules(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("task,worker\nt0,w0\nt1,w1\n")
    done = run(
        *("assign", "--tasks", "4", "--workers", "4", "--per-task", "3", "--forbidden", pairs)
    )
    assert done.exit_code == 0, done.stderr
    found = {tuple(line.split(",")) for line in done.stdout.splitlines()}
    assert not found & {("t0", "w0"), ("t1", "w1")}
    pairs.write_text("task,worker\nt9,w0\n")
    wrong = run(
        *("assign", "--tasks", "4", "--workers", "4", "--per-task", "3", "--forbidden", pairs)
    )
    assert wrong.stderr == "Error: forbidden: task 't9' is not among the tasks\n"


@pytest.mark.parametrize(
    ("tasks", "workers", "asked", "message"),
    [
        (3, None, {}, "give the workers, or the maximum number of answers per worker"),
        (3, 3, {"group": "team"}, "groups need a table of the tasks"),
        (pd.DataFrame({"task": ["a", "a"]}), 3, {}, "tasks: 'a' occurs more than once"),
        (pd.DataFrame({"task": ["a"]}), 3, {"group": "team"}, "no column 'team' among the tasks"),
        (3, pd.DataFrame({"worker": ["u"], "capacity": [1.5]}), {}, "must be a whole number"),
        (0, 3, {}, "at least one task"),
    ],
)
def test_lists_that_cannot_be_used(
    tasks: object, workers: object, asked: dict[str, str], message: str
) -> None:
    with pytest.raises((ConfigError, DataError), match=message):
        assign_table(tasks, workers, np.random.default_rng(0), per_task=1, **asked)  # type: ignore[arg-type]
