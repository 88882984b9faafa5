"""The docs say what the code does: examples run, commands and formulas are there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from voxpop import ESTIMATORS, FORMATS, WRITERS
from voxpop.cli import main
from voxpop.demo import compare, demo_crowd, demo_methods

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_the_readmes_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = FENCE.findall((ROOT / "README.md").read_text())
    assert len(blocks) == 2
    for block in blocks:
        names: dict[str, object] = {}
        exec(compile(block, "README.md", "exec"), names)
    printed = capsys.readouterr().out
    mse = {name: float(number) for name, number in map(str.split, printed.splitlines())}
    assert mse["strong-oracle"] < mse["bi"] < mse["nbi"] < mse["average"]


def test_the_readmes_table_is_what_the_demo_prints() -> None:
    text = (ROOT / "README.md").read_text().replace("*", "")
    table = re.findall(r"^\| ([^|]+) \| ([\d.]+) \| ([\d.]+) \| (\d+) % \|$", text, re.MULTILINE)
    crowd = demo_crowd(400, per_task=5, per_worker=10, seed=0)
    contestants = compare(crowd, demo_methods(crowd))
    assert len(table) == len(contestants)
    for (_, mse, ratio, coverage), found in zip(table, contestants, strict=True):
        assert float(mse) == pytest.approx(found.score.mse, rel=0.01)
        assert float(ratio) == pytest.approx(found.score.mse / contestants[-1].score.mse, rel=0.01)
        assert float(coverage) == pytest.approx(100 * found.score.coverage_95, abs=0.6)


def test_the_guides_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other in one session, on a file and names that the text speaks of."""
    import pandas as pd

    monkeypatch.chdir(tmp_path)
    rows = [(t, w, v) for t, v in (("img_001.jpg", 30), ("b", 50)) for w in "uvw" for v in (v,)]
    df = pd.DataFrame(rows, columns=["task", "worker", "value"])
    df["value"] += [0, 1, 9, 0, -2, 5]
    df["gold"] = [33.0] * 3 + [None] * 3
    df.to_csv("answers.csv", index=False)
    clicks = df.rename(columns={"task": "frame", "worker": "who", "value": "x"})
    clicks.assign(y=clicks["x"]).to_parquet("clicks.parquet")
    names: dict[str, object] = {"df": df, "predictions": {"img_001.jpg": 30.0, "b": 50.0}}
    for block in FENCE.findall((ROOT / "docs/guide.md").read_text()):
        exec(compile(block, "guide.md", "exec"), names)


def test_the_examples_of_report_and_plots_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    demo_crowd(40, per_task=4, per_worker=8, seed=0).save(tmp_path)
    for page, made in (("report", "report.html"), ("plots", "tasks.png")):
        (block,) = FENCE.findall((ROOT / f"docs/{page}.md").read_text())
        exec(compile(block, f"{page}.md", "exec"), {})
        assert Path(made).stat().st_size > 10_000


def test_the_example_and_the_list_of_formats_are_current() -> None:
    text = (ROOT / "docs/formats.md").read_text()
    for block in FENCE.findall(text):
        names: dict[str, Any] = {}
        exec(compile(block, "formats.md", "exec"), names)
        assert names["objects"].task_ids == ["a#1"]
    for name in {*FORMATS, *WRITERS} - {"long"}:
        assert name.replace("-", " ") in text.lower().replace("mechanical turk", "mturk"), name


def test_the_methods_example_runs() -> None:
    (block,) = FENCE.findall((ROOT / "docs/methods.md").read_text())
    exec(compile(block, "methods.md", "exec"), {})


def test_every_method_has_its_line_on_when_to_use_it() -> None:
    text = (ROOT / "docs/methods.md").read_text()
    for name, estimator in ESTIMATORS.items():
        assert f"| `{name}` {{py:class}}`voxpop.{estimator.__name__}` |" in text


def test_every_command_option_and_method_is_documented() -> None:
    text = (ROOT / "docs/commands.md").read_text()
    for name, command in main.commands.items():
        assert f"## voxpop {name}\n" in text
        if name in ("aggregate", "assign", "plan"):
            for parameter in command.params:
                if parameter.param_type_name == "option":
                    assert any(f"`{flag}`" in text for flag in parameter.opts), parameter.opts
    for name, estimator in ESTIMATORS.items():
        assert f"| `{name}` | {estimator.summary} |" in text


def test_every_formula_that_the_code_cites_exists() -> None:
    defined = set(re.findall(r"\\tag\{(M\d+)\}", (ROOT / "docs/model.md").read_text()))
    cited = set()
    for path in (ROOT / "src").rglob("*.py"):
        cited |= set(re.findall(r"\bM\d+\b", path.read_text()))
    assert cited <= defined
    # Sphinx wraps a formula with line breaks in an environment that allows no tag.
    assert not re.search(r"\\\\\s", (ROOT / "docs/model.md").read_text())
    assert defined - cited <= {"M7", "M8"}  # named as part of a range


def test_every_public_name_is_in_the_reference() -> None:
    import voxpop

    text = (ROOT / "docs/api.md").read_text()
    for name in set(voxpop.__all__) - {"__version__"}:
        assert f"voxpop.{name}\n" in text, name


def test_the_changelog_is_kept() -> None:
    assert "## Unreleased" in (ROOT / "CHANGELOG.md").read_text()
