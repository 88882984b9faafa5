"""An estimator of another distribution, offered by an entry point, is a method like any other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

import voxpop as vp
from voxpop.cli import main
from voxpop.estimators.registry import OWN, make_estimator

MODULE = """
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import voxpop as vp
from voxpop.estimators.make_result import gaussian_result


@dataclass(frozen=True, kw_only=True)
class First(vp.Estimator):
    shift: float = 0.0
    name: ClassVar[str] = "first"
    summary: ClassVar[str] = "the first answer to every task"

    def fit(self, answers, on_sweep=None):
        estimate = answers.value[answers.task_ptr[:-1]] + self.shift
        return gaussian_result(self, answers, estimate, np.ones_like(estimate))


class Plain(vp.Estimator):
    name, summary = "plain", "a class that is no dataclass"

    def __init__(self, shift=0.0):
        self.shift = shift

    fit = First.fit


class NoFit(vp.Estimator):
    name, summary = "no-fit", "nothing"


NUMBER = 3
"""


def install(folder: Path, name: str, entries: dict[str, str], module: str = MODULE) -> None:
    """Lay a distribution into a folder of the path, as pip does."""
    (folder / f"{name.replace('-', '_')}.py").write_text(module)
    info = folder / f"{name.replace('-', '_')}-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
    lines = "".join(f"{entry} = {value}\n" for entry, value in entries.items())
    (info / "entry_points.txt").write_text(f"[voxpop.estimators]\n{lines}")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.startswith("plugin_")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def answers(folder: Path) -> pd.DataFrame:
    df = pd.DataFrame({"task": list("aabb"), "worker": list("uvuv"), "value": [1.0, 3.0, 6.0, 5.0]})
    df.to_csv(folder / "answers.csv", index=False)
    return df


def test_a_plugin_is_a_method_like_any_other(folder: Path, answers: pd.DataFrame) -> None:
    install(folder, "plugin-good", {"first": "plugin_good:First", "plain": "plugin_good:Plain"})
    result = vp.aggregate(answers, "first")
    assert result.tasks["value"].tolist() == [1.0, 6.0]
    assert result.settings["method"] == "first"
    assert [*vp.ESTIMATORS] == [*OWN, "first", "plain"]
    assert len(vp.ESTIMATORS) == len(OWN) + 2
    assert "first" in vp.ESTIMATORS
    assert vp.ESTIMATORS["first"].summary == "the first answer to every task"
    assert [*make_estimator("first", {"shift": 2.0}).fit_predict(answers)] == [3.0, 8.0]
    assert [*make_estimator("plain", {"shift": 1.0}).fit_predict(answers)] == [2.0, 7.0]
    assert vp.aggregate(answers, "plain").settings["shift"] == 0.0
    with pytest.raises(vp.ConfigError, match="method 'first' takes no support"):
        make_estimator("first", {"support": (1.0,)})
    with pytest.raises(vp.ConfigError, match=r"choose one of .*, first, plain$"):
        make_estimator("last")
    run = CliRunner().invoke(main, ["methods"])
    assert "first\tthe first answer to every task\n" in run.stdout
    run = CliRunner().invoke(main, ["aggregate", "answers.csv", "--method", "first"])
    assert run.exit_code == 0, run.output
    assert run.stdout.splitlines()[1].startswith("a,1.0,1.0,")
    assert "The first answer to every task" in Path("answers.voxpop/report.html").read_text()


def test_the_installed_command_sees_a_plugin(folder: Path, answers: pd.DataFrame) -> None:
    assert len(answers) == 4
    install(folder, "plugin-good", {"first": "plugin_good:First"})
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "voxpop", "aggregate", "answers.csv", "--method", "first"],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[2].startswith("b,6.0,1.0,")


def test_plugins_are_imported_only_when_asked_for(folder: Path, answers: pd.DataFrame) -> None:
    install(folder, "plugin-lazy", {"first": "plugin_lazy:First"})
    vp.aggregate(answers, "average")
    assert "first" in vp.ESTIMATORS.names()
    for words in (["aggregate", "answers.csv", "--method", "median"], ["version"]):
        assert CliRunner().invoke(main, words).exit_code == 0
    with pytest.raises(vp.ConfigError, match="no method 'lowest'"):
        vp.aggregate(answers, "lowest")
    assert "plugin_lazy" not in sys.modules
    vp.aggregate(answers, "first")
    assert "plugin_lazy" in sys.modules


@pytest.mark.parametrize(
    ("entry", "module", "message"),
    [
        ("first", "raise OSError('no\\nGPU')", "cannot be imported: OSError: no GPU"),
        ("first", "", "cannot be imported: AttributeError: .*no attribute 'First'"),
        ("number", "NUMBER = First = 3", "is not an estimator: plugin_bad:NUMBER must be a class"),
        ("no-fit", MODULE, "is not an estimator: plugin_bad:NoFit must be a class with name"),
        ("second", MODULE, "has another name in its class: 'first'"),
    ],
)
def test_a_plugin_that_cannot_be_used_is_told_in_a_line(
    folder: Path, answers: pd.DataFrame, entry: str, module: str, message: str
) -> None:
    value = {"number": "NUMBER", "no-fit": "NoFit"}.get(entry, "First")
    install(folder, "plugin-bad", {entry: f"plugin_bad:{value}"}, module)
    install(folder, "plugin-good", {"plain": "plugin_good:Plain"})
    line = f"^method '{entry}' of the distribution plugin-bad 1.5 {message}"
    with pytest.raises(vp.ConfigError, match=line) as told:
        vp.aggregate(answers, entry)
    assert "\n" not in str(told.value)
    assert entry not in vp.ESTIMATORS
    assert vp.aggregate(answers, "plain").tasks["value"].tolist() == [1.0, 6.0]
    assert vp.aggregate(answers, "average").tasks["value"].tolist() == [2.0, 5.5]
    with pytest.warns(vp.DataWarning, match=line):
        assert [*vp.ESTIMATORS][-1] == "plain"
    run = CliRunner().invoke(main, ["methods"])
    assert run.exit_code == 0
    assert run.stderr.startswith(f"warning: method '{entry}' of the distribution plugin-bad 1.5")
    assert "average\t" in run.stdout
    assert "plain\t" in run.stdout
    run = CliRunner().invoke(main, ["aggregate", "answers.csv", "--method", entry])
    assert run.exit_code == 1
    assert run.stderr.startswith(f"Error: method '{entry}' of the distribution plugin-bad 1.5")


def test_names_that_exist_are_kept(folder: Path, answers: pd.DataFrame) -> None:
    install(folder, "plugin-a", {"average": "plugin_a:First", "first": "plugin_a:First"})
    install(folder, "plugin-b", {"first": "plugin_b:First"})
    assert vp.aggregate(answers, "average").tasks["value"].tolist() == [2.0, 5.5]
    with pytest.raises(vp.ConfigError, match=r"plugin-. 1.5 and by the distribution plugin-. 1.5;"):
        vp.aggregate(answers, "first")
    with pytest.warns(vp.DataWarning) as told:
        assert {*vp.ESTIMATORS} == OWN.keys()
    lines = sorted(str(warning.message) for warning in told)
    assert lines[0] == (
        "method 'average' of the distribution plugin-a 1.5 is ignored: voxpop has one of that name"
    )
    assert lines[1].startswith("method 'first' is offered by")
