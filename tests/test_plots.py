"""What is drawn is what the result says: data are read back from the artists."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from tests.conftest import make_crowd
from voxpop import (
    BI,
    Answers,
    Average,
    ConfigError,
    DataError,
    Median,
    Model,
    Noise,
    Result,
    Simulation,
    explain,
    make_plan,
    plot_bias,
    plot_box,
    plot_budget,
    plot_convergence,
    plot_coverage,
    plot_noise,
    plot_pit,
    plot_task,
    plot_tasks,
)
from voxpop.arrays import Floats
from voxpop.present.plots import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEVELS = (10.0, 100.0, 1000.0)


@pytest.fixture(scope="module")
def crowd() -> Simulation:
    return make_crowd(0, dimension=1)


@pytest.fixture(scope="module")
def result(crowd: Simulation) -> Result:
    return BI(support=LEVELS, noise=Noise(bias=True)).fit(crowd.answers)


def line(ax: Axes, label: str) -> tuple[Floats, Floats]:
    """The data of a line that is in the legend."""
    (found,) = [each for each in ax.get_lines() if str(each.get_label()).startswith(label)]
    return np.asarray(found.get_xdata(), dtype=float), np.asarray(found.get_ydata(), dtype=float)


def spans(ax: Axes) -> Floats:
    """Ends of the horizontal lines, row by row."""
    (found,) = [each for each in ax.collections if hasattr(each, "get_segments")]
    return np.array([segment[:, 0] for segment in found.get_segments()])


def names(ax: Axes) -> list[str]:
    return [label.get_text() for label in ax.get_yticklabels()]


def test_a_task_is_drawn_with_its_answers_by_weight(crowd: Simulation, result: Result) -> None:
    ax = plot_task(crowd.answers, result, "t07")
    found = explain(crowd.answers, result, "t07")
    drawn = np.asarray(ax.collections[-1].get_offsets())
    np.testing.assert_allclose(drawn, np.c_[found.value[:, 0], np.arange(4)])
    assert names(ax) == found.worker.tolist()
    size = ax.collections[-1].get_sizes()  # type: ignore[attr-defined]
    np.testing.assert_allclose((size - 12) / 108, found.weight)
    assert line(ax, "estimate")[0][0] == found.estimate[0]
    assert line(ax, "mean")[0][0] == pytest.approx(found.value.mean())
    band = ax.patches[0].get_extents().transformed(ax.transData.inverted())
    np.testing.assert_allclose([band.x0, band.x1], [found.lower[0], found.upper[0]])


def test_several_tasks_are_drawn_with_their_intervals(crowd: Simulation, result: Result) -> None:
    ax = plot_tasks(crowd.answers, result, ["t03", "t41"])
    places = [result.task_ids.tolist().index(task) for task in ("t03", "t41")]
    assert names(ax) == ["t03", "t41"]
    np.testing.assert_allclose(line(ax, "estimate")[0], result.estimate[places, 0])
    low, high = result.interval()
    np.testing.assert_allclose(spans(ax), np.c_[low[places, 0], high[places, 0]])
    np.testing.assert_allclose(
        line(ax, "mean")[0], [crowd.answers.value[crowd.answers.task == i].mean() for i in places]
    )
    drawn = np.asarray(ax.collections[0].get_offsets())
    expected = np.concatenate([crowd.answers.value[crowd.answers.task == i, 0] for i in places])
    np.testing.assert_allclose(drawn[:, 0], expected)
    most = plot_tasks(crowd.answers, result)
    assert len(names(most)) == 25
    assert names(most)[0] == result.task_ids[result.variance.argmax()]


def test_noise_and_bias_are_drawn_in_order(result: Result) -> None:
    noise = plot_noise(result)
    np.testing.assert_allclose(line(noise, "noise")[0] ** 2, np.sort(result.worker_variance))
    order = np.argsort(result.worker_variance, kind="stable")
    np.testing.assert_allclose(spans(noise) ** 2, result.worker_interval[order])
    assert names(noise) == result.worker_ids[order].tolist()
    bias = plot_bias(result)
    order = np.argsort(result.worker_bias[:, 0], kind="stable")
    np.testing.assert_allclose(line(bias, "bias")[0], result.worker_bias[order, 0])
    reach = 1.959964 * result.worker_bias_sd[order, 0]
    np.testing.assert_allclose(np.diff(spans(bias))[:, 0], 2 * reach)


def test_calibration_is_that_of_the_audit(result: Result) -> None:
    audit = result.audit
    assert audit is not None
    ax = plot_pit(result, bins=10)
    heights = [bar.get_height() for bar in ax.patches]  # type: ignore[attr-defined]
    inside = np.histogram(audit.pit, 10, (0, 1))[0]
    np.testing.assert_allclose(heights, inside / inside.mean())
    nominal, held = line(plot_coverage(replace(result, audit=replace(audit, stretch=1.0))), "left")
    assert held[nominal == 0.95] == pytest.approx(audit.unstretched_95, abs=1e-9)
    assert (np.diff(held) >= 0).all()
    doubled = np.full(len(audit.pit), 2.0)
    wider = plot_coverage(replace(result, audit=replace(audit, stretch=2.0, judged_by=doubled)))
    assert (line(wider, "left")[1] >= line(wider, "before")[1]).all()
    np.testing.assert_allclose(line(wider, "before")[1], held)


def test_convergence_is_the_trace(result: Result) -> None:
    sweep, change = line(plot_convergence(result), "converged")
    np.testing.assert_allclose(sweep, 1 + np.arange(result.trace.n_sweeps))
    np.testing.assert_allclose(change, result.trace.changes)
    damped = replace(result.trace, dampings=(0.0,) + (0.3,) * (result.trace.n_sweeps - 1))
    rings = line(plot_convergence(replace(result, trace=damped)), "damped")
    np.testing.assert_allclose(rings[1], result.trace.changes[1:])


def test_a_budget_is_the_frontier_of_the_plan() -> None:
    rng = np.random.default_rng(0)
    plan = make_plan(Model(support=LEVELS), rng, n_tasks=100, budget=300, capacity=2)
    cost, error = line(plot_budget(plan), "voxpop")
    np.testing.assert_allclose(cost, [option.cost for option in plan.frontier])
    np.testing.assert_allclose(error, [option.accuracy("rmse") for option in plan.frontier])


def shapes(names: tuple[str, ...], dimension: int) -> tuple[Answers, Result]:
    value = make_crowd(0, dimension=dimension).answers
    answers = replace(value, value_names=names)
    return answers, BI(support=LEVELS).fit(answers)


def test_a_box_is_drawn_before_and_after() -> None:
    answers, result = shapes(("xmin", "ymin", "xmax", "ymax"), 4)
    ax = plot_box(answers, result, "t05")
    i = result.task_ids.tolist().index("t05")
    *said, mean, estimate = [each for each in ax.patches if isinstance(each, Rectangle)]

    def corners(box: Rectangle) -> list[float]:
        x, y = box.get_xy()
        return [x, y, x + box.get_width(), y + box.get_height()]

    theirs = answers.value[answers.task == i]
    np.testing.assert_allclose([corners(box) for box in said], theirs)
    np.testing.assert_allclose(corners(mean), theirs.mean(axis=0))
    np.testing.assert_allclose(corners(estimate), result.estimate[i])
    assert ax.yaxis_inverted()
    low, high = sorted(ax.get_ylim())
    assert low <= theirs[:, [1, 3]].min()
    assert theirs[:, [1, 3]].max() <= high


def test_a_point_is_drawn_before_and_after() -> None:
    answers, result = shapes(("x", "y"), 2)
    ax = plot_box(answers, result, "t05")
    i = result.task_ids.tolist().index("t05")
    x, y = line(ax, "estimate")
    np.testing.assert_allclose([x[0], y[0]], result.estimate[i])
    assert len(ax.get_lines()) == 6
    assert plot_tasks(answers, result, coordinate="y").get_xlabel() == "y"


def test_axes_that_are_given_are_drawn_on(crowd: Simulation, result: Result) -> None:
    given = Figure().subplots(7)
    drawn = [
        plot_task(crowd.answers, result, "t07", given[0]),
        plot_tasks(crowd.answers, result, ax=given[1]),
        plot_noise(result, given[2]),
        plot_bias(result, given[3]),
        plot_pit(result, given[4]),
        plot_coverage(result, given[5]),
        plot_convergence(result, given[6]),
    ]
    assert drawn == list(given)


def test_what_is_missing_is_told_in_one_line(crowd: Simulation) -> None:
    answers = crowd.answers
    mean = Average().fit(answers)
    with pytest.raises(DataError, match=r"^the result has no worker bias: method 'average' .*$"):
        plot_bias(mean)
    with pytest.raises(DataError, match=r"^the result has no sweeps: method 'average' .*$"):
        plot_convergence(mean)
    for draw in (plot_pit, plot_coverage):
        with pytest.raises(DataError, match=r"^the result has no PIT values: .*$"):
            draw(replace(mean, audit=None))
    with pytest.raises(DataError, match=r"^expected the values xmin, .*, got value; rename .*$"):
        plot_box(answers, mean, "t05")
    with pytest.raises(DataError, match=r"^no task 't077'"):
        plot_task(answers, mean, "t077")
    with pytest.raises(DataError, match="the result belongs to other answers"):
        plot_task(make_crowd(1, n_tasks=20).answers, mean, "t07")
    with pytest.raises(ConfigError, match="coordinate must be one of value, got 'x'"):
        plot_tasks(answers, mean, coordinate="x")
    with pytest.raises(ConfigError, match="tasks must name at least one task"):
        plot_tasks(answers, mean, [])


def test_ids_with_dollars_and_many_workers_can_be_drawn(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    workers = [f"$u_{{{k % 60}}}^" for k in range(120)]
    answers = Answers.from_arrays(np.arange(120) // 4, workers, rng.normal(size=120))
    result = Median().fit(answers)
    for ax in (plot_noise(result), plot_task(answers, result, 3)):
        save_figure(ax.figure, tmp_path / "p.png")


def test_matplotlib_is_loaded_when_something_is_drawn_and_pyplot_never() -> None:
    code = "import sys, voxpop; voxpop.plot_noise; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert "matplotlib.pyplot" not in sys.modules
