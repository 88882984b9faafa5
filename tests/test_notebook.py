"""What an engineer types in a notebook: frames in, parameters, comparisons, own estimators."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils import estimator_checks

from tests.conftest import make_crowd
from voxpop import (
    BI,
    ESTIMATORS,
    NBI,
    Answers,
    Average,
    ConfigError,
    DataError,
    Estimator,
    Median,
    Result,
    compare,
    read_answers,
    score,
)
from voxpop.data.read import long_columns
from voxpop.estimators import progress
from voxpop.estimators.registry import OWN

ROWS: dict[str, Any] = {
    "task": ["a", "a", "b", "b", "c", "c"],
    "worker": ["u", "v", "u", "v", "u", "v"],
    "value": [1.0, 2.0, 3.0, 5.0, 8.0, 8.5],
}
# Those that can be made without arguments.
DEFAULT = [name for name in OWN if name not in ("strong-oracle", "weak-oracle", "exact")]


class Dataset:
    """As much of a Hugging Face data set as is used: columns by ``to_pandas``, no frame itself."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self.columns = columns

    def to_pandas(self) -> pd.DataFrame:
        return pd.DataFrame(self.columns)


SOURCES: dict[str, Any] = {
    "pandas": pd.DataFrame,
    "polars": partial(pl.DataFrame, strict=False),  # its first versions mix no number types
    "pyarrow": pa.table,
    "mapping": dict,
    "arrays": lambda rows: {name: np.array(column) for name, column in rows.items()},
    "data set": Dataset,
}


@pytest.mark.parametrize("kind", SOURCES)
def test_fit_takes_whatever_answers_can_be_read_from(kind: str) -> None:
    expected = Average().fit(Answers.from_arrays(*ROWS.values()))
    source: Any = SOURCES[kind](ROWS)
    found = Average().fit(source)
    assert found.task_ids.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(found.estimate, expected.estimate)
    series = Average().fit_predict(source)
    assert series.to_dict() == {"a": 1.5, "b": 4.0, "c": 8.25}
    assert type(found.tasks) is type(SOURCES[kind](ROWS)) or kind not in ("polars", "pyarrow")


def test_a_data_set_of_hugging_face_is_read() -> None:
    datasets = pytest.importorskip("datasets")
    rows = {**ROWS, "point": [[k, 2.0 * k] for k in range(6)]}
    data = datasets.Dataset.from_dict(rows)
    assert Average().fit_predict(data).to_dict() == {"a": 1.5, "b": 4.0, "c": 8.25}
    assert read_answers(data, values="point").dimension == 2
    with pytest.raises(DataError, match=r"expected one table, got several \('train'\)"):
        Average().fit(datasets.DatasetDict({"train": data}))


@pytest.mark.parametrize("kind", SOURCES)
def test_a_column_of_lists_is_a_vector(kind: str) -> None:
    rows = {**ROWS, "value": [[1.0, 10.0], [2, 20], [3, 30], [5, 50], [8, 80], [8.5, 85]]}
    if kind == "arrays":
        rows["value"] = np.array(rows["value"])
    answers = read_answers(rows if kind == "arrays" else SOURCES[kind](rows))
    assert answers.value_names == ("value_1", "value_2")
    np.testing.assert_array_equal(answers.value[:, 1], 10 * answers.value[:, 0])
    found = Average().fit(answers)
    np.testing.assert_allclose(found.estimate, [[1.5, 15.0], [4.0, 40.0], [8.25, 82.5]])


def test_lists_that_are_no_vectors_are_told_by_row() -> None:
    for cell, message in (([1.0], "row 3: expected a list of 2 numbers.*got a list of 1"),
                          (7.0, "row 3: expected a list of 2 numbers.*got no list"),
                          (["x", "y"], "holds lists of items that are not numbers")):  # fmt: skip
        column: list[Any] = [[1, 2]] * 6
        column[2] = cell
        with pytest.raises(DataError, match=message):
            read_answers({**ROWS, "value": column})
    with pytest.raises(DataError, match="columns must be equally long, got 'task': 6, 'worker': 1"):
        read_answers({**ROWS, "worker": ["u"]})


def test_gold_and_truth_may_be_lists_too() -> None:
    rows = {
        **ROWS,
        "value": [[k, -k] for k in range(6)],
        "gold": [[9.0, 9.0]] * 2 + [[1.0, 2.0]] * 4,
    }
    found = Average().fit(read_answers(rows, gold="gold"))
    np.testing.assert_array_equal(found.estimate, [[9, 9], [1, 2], [1, 2]])
    truth = pd.DataFrame({"task": ["a", "b", "c"], "value": [[9.0, 9.0], [1.0, 2.0], [1.0, 3.0]]})
    assert score(found, truth).mse == pytest.approx(1 / 3)


CHECKS = (
    "check_get_params_invariance",
    "check_set_params",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_estimator_cloneable",
    "check_estimator_repr",
)


@pytest.mark.filterwarnings("ignore:.*occurred during set_params")
@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", DEFAULT)
def test_the_checks_of_scikit_learn_that_apply(name: str, check: str) -> None:
    """Those of parameters, of copies and of ``repr``; the others want X, y and ``predict``.

    Arguments are checked when they are set, which ``check_set_params`` allows with a warning.
    """
    if (name, check) == ("bi", "check_parameters_default_constructible"):
        pytest.skip("the default of an argument must be a number, text or None there, not a Noise")
    run: Any = getattr(estimator_checks, check)
    with np.errstate(all="ignore"):
        run(name, ESTIMATORS[name]())


def test_parameters_are_changed_in_place_and_checked() -> None:
    estimator = BI(max_iter=7, support=np.array([1.0, 4.0]))  # type: ignore[arg-type]
    copy = clone(estimator)
    assert copy == estimator
    assert copy is not estimator
    assert copy.set_params(max_iter=9) is copy
    assert (copy.max_iter, estimator.max_iter) == (9, 7)
    assert copy.get_params()["support"] == (1.0, 4.0)
    for wrong, message in (
        ({"max_iter": 0}, "max_iter must be"),
        ({"size": 1}, "BI takes no size"),
    ):
        with pytest.raises(ConfigError, match=message):
            copy.set_params(**wrong)
        assert copy.max_iter == 9


def test_a_grid_of_parameters_is_searched_as_scikit_learn_does() -> None:
    crowd = make_crowd(0, dimension=1)
    grid = ParameterGrid({"support": [(10.0,), (10.0, 100.0, 1000.0)]})
    found = [
        score(clone(BI()).set_params(**each).fit(crowd.answers), crowd.truth).mse for each in grid
    ]
    assert found[1] < found[0]


@dataclass(frozen=True, kw_only=True)
class Middle(Estimator):
    """A method of one's own in as few lines as it takes."""

    shift: float = 0.0
    name: ClassVar[str] = "middle"
    summary: ClassVar[str] = "mean of the lowest and the highest answer"

    def fit(self, answers: Answers) -> Result:  # type: ignore[override]
        low = np.minimum.reduceat(answers.value, answers.task_ptr[:-1])
        high = np.maximum.reduceat(answers.value, answers.task_ptr[:-1])
        return Result.from_estimates(answers, (low + high) / 2 + self.shift)


def test_an_estimator_of_ones_own_needs_estimates_only() -> None:
    frame: Any = pd.DataFrame(ROWS)
    found = Middle(shift=1.0).fit(frame)
    np.testing.assert_array_equal(found.estimate[:, 0], [2.5, 5.0, 9.25])
    assert found.settings["method"] == "middle"
    assert found.settings["shift"] == 1.0
    assert found.settings["columns"]["task"] == "task"
    assert clone(Middle(shift=2.0)).shift == 2.0
    means = Middle().fit(frame)
    # The mean of two: the variance of one answer about it, over two.
    residual = np.array([0.5, 1.0, 0.25])
    np.testing.assert_allclose(means.variance[:, 0], 2 * (residual**2).sum() / 3 / 2)


def test_estimates_come_as_arrays_mappings_series_or_frames() -> None:
    answers = read_answers(pd.DataFrame(ROWS), gold={"c": 0.0})
    by_task = {"c": 3.0, "a": 1.0, "b": 2.0}
    forms: list[Any] = [
        *([1.0, 2.0, 3.0], np.array([[1.0], [2.0], [3.0]]), by_task, pd.Series(by_task)),
        pd.DataFrame({"task": [*by_task], "value": [*by_task.values()]}),
    ]
    for form in forms:
        found = Result.from_estimates(answers, form, 4.0, method="mine")
        np.testing.assert_array_equal(found.estimate[:, 0], [1.0, 2.0, 0.0])
        np.testing.assert_array_equal(found.sd[:, 0], [2.0, 2.0, 0.0])
        assert found.summary().startswith("mine: 3 tasks")
    with pytest.raises(DataError, match="estimate: none given for task 'b'"):
        Result.from_estimates(answers, {"a": 1.0, "c": 2.0})
    with pytest.raises(DataError, match=r"estimate must have shape \(3, 1\)"):
        Result.from_estimates(answers, [1.0, 2.0])
    with pytest.raises(ConfigError, match="variance must not be negative"):
        Result.from_estimates(answers, [1.0, 2.0, 3.0], -1.0)


def test_single_answers_show_nothing_of_their_error() -> None:
    found = Result.from_estimates(
        {"task": [1, 2], "worker": ["u", "v"], "value": [1.0, 2.0]}, [1, 2]
    )
    assert np.isnan(found.sd).all()
    assert "give the variances" in found.notes[-1]


def test_methods_are_compared_side_by_side() -> None:
    crowd = make_crowd(0, dimension=1)
    found = compare(crowd.answers, ["average", NBI(), NBI(max_iter=50)], crowd.truth)
    table = found.table
    assert table["method"].tolist() == ["average", "nbi", "nbi (2)"]
    for name, result in found.results.items():
        row = table[table["method"] == name].iloc[0]
        told = score(result, crowd.truth)
        assert (row["rmse"], row["coverage_95"]) == (told.rmse, told.coverage_95)
        assert row["need_a_look"] == len(result.review.tasks)
    assert found.best() == table["method"][table["rmse"].argmin()]
    assert "left_out_rmse" in repr(found)
    assert found._repr_html_().count("<tr>") == 3
    ax = found.plot()
    assert ax.get_yticklabels()[0].get_text() == found.best()
    assert [bar.get_width() for bar in ax.patches] == sorted(table["rmse"])  # type: ignore[attr-defined]


def test_methods_are_compared_without_a_truth_and_by_label() -> None:
    frame: Any = pl.DataFrame(long_columns(make_crowd(0, dimension=1).answers))
    found = compare(frame, {"plain": "average", "middle": Median()})
    assert isinstance(found.table, pl.DataFrame)
    assert found.columns()["method"] == ["plain", "middle"]
    assert "rmse" not in found.columns()
    audits = [result.audit for result in found.results.values()]
    assert found.columns()["left_out_rmse"] == [audit and audit.rmse for audit in audits]
    assert "left-out answers" in found.plot().get_xlabel()
    for wrong, message in (([], "at least one"), ("auto", "must be a list"), (["no"], "no method")):
        with pytest.raises(ConfigError, match=message):
            compare(frame, wrong)


class Handle:
    """What IPython's display returns, and what it was told to show."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def update(self, data: dict[str, str], raw: bool) -> None:
        assert raw
        self.shown.append(data["text/html"])


def notebook(monkeypatch: pytest.MonkeyPatch, kernel: bool) -> Handle:
    """Stand in for IPython: with a kernel it is a notebook, without one a terminal."""
    handle = Handle()

    def display(data: dict[str, str], raw: bool, display_id: bool) -> Handle:
        assert display_id
        handle.update(data, raw)
        return handle

    shell = SimpleNamespace(kernel=object()) if kernel else SimpleNamespace()
    ipython = SimpleNamespace(get_ipython=lambda: shell, display=SimpleNamespace(display=display))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    monkeypatch.setattr(progress, "_PACE", 0.0)
    return handle


def test_a_notebook_shows_a_bar_that_grows_and_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = notebook(monkeypatch, kernel=True)
    found = NBI().fit(make_crowd(0).answers)
    assert len(handle.shown) == found.trace.n_sweeps + 1
    assert f"sweep {found.trace.n_sweeps}" in handle.shown[-2]
    assert handle.shown[-1] == ""
    done = [float(bar.partition("value=")[2].partition(">")[0]) for bar in handle.shown[:-1]]
    assert done[0] == 0.0
    assert done[-1] == 1.0
    assert all(0 <= share <= 1 for share in done)


def test_a_terminal_and_those_who_watch_themselves_see_no_bar(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handle = notebook(monkeypatch, kernel=False)
    NBI().fit(make_crowd(0).answers)
    assert handle.shown == []
    handle = notebook(monkeypatch, kernel=True)
    told: list[int] = []
    NBI().fit(make_crowd(0).answers, lambda _what, number, _change, _tol: told.append(number))
    assert told
    assert handle.shown == []
