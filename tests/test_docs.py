"""The docs say what the code does: examples run, commands and formulas are there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests import exports
from tests.pages import Session, blocks_of, differences
from voxpop import ESTIMATORS, FORMATS, WRITERS
from voxpop.cli import main
from voxpop.inference.engine import native_is_installed
from voxpop.paper import experiments
from voxpop.paper.demo import compare, demo_crowd, demo_methods
from voxpop.paper.experiments import Effort

ROOT = Path(__file__).parent.parent
ONE_INSTANCE = Effort(name="one", instances=1, heavy=1, draws=1, resamples=2, n_tasks=60)
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


TOLD_TO_RUN = [
    *sorted((ROOT / "docs/tutorials").glob("*.md")),
    *sorted((ROOT / "docs/tutorials").glob("*.ipynb")),
    *sorted((ROOT / "docs/how-to").glob("*.md")),
    *(ROOT / f"docs/{name}.md" for name in ("guide", "formats", "methods", "diagnosis", "plan")),
]


def prepare(page: Path, folder: Path) -> None:
    """Put the files in a folder that the reader of a page has: downloads, or exports of tools."""
    if page.parent.name == "tutorials":
        for script in page.parent.glob("*.py"):
            shutil.copy(script, folder)
    else:
        exports.write_all(folder)


@pytest.mark.parametrize("page", TOLD_TO_RUN, ids=lambda page: page.stem)
def test_a_page_runs_and_shows_what_it_prints(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From top to bottom in one folder, as a reader would."""
    if page.parent.name == "tutorials" and not native_is_installed():
        pytest.skip("the tutorials take minutes without the compiled kernels")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "88")
    monkeypatch.setattr(experiments, "QUICK", ONE_INSTANCE)  # the full one takes half a minute
    prepare(page, tmp_path)
    session, ran = Session(), 0
    for block in blocks_of(page):
        printed = session.run(block)
        ran += block.language in ("sh", "python")
        if block.language in ("sh", "python"):
            different = block.differences(printed)
            assert not different, f"{block.where}\n{different}\nall of it:\n{printed}"
    assert ran > 0


def test_the_examples_of_report_and_plots_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    demo_crowd(40, per_task=4, per_worker=8, seed=0).save(tmp_path)
    for page, made in (("report", "report.html"), ("plots", "tasks.png")):
        (block,) = FENCE.findall((ROOT / f"docs/{page}.md").read_text())
        exec(compile(block, f"{page}.md", "exec"), {})
        assert Path(made).stat().st_size > 10_000


def test_what_is_shown_is_compared() -> None:
    printed = "rmse 1.234\n┃ a ┃ 10 ┃\n\nwrote x to /y\nend\n"
    for shown in (
        printed,
        "…\nend",
        "rmse 1.25\n…\nwrote … to /y\nend",
        "rmse 1.23\n│  a │ 10 │\n…",
    ):
        assert not differences(shown, printed), shown
    for shown in (
        "",
        "rmse 1.5\n…",
        "rmse 1.234\nend",
        "…\nwrote it\n…",
        "a rmse 1.234\n…",
        "…\n┃ a ┃ 11 ┃\n…",
    ):
        assert differences(shown, printed), shown


def test_the_list_of_formats_is_current() -> None:
    text = (ROOT / "docs/formats.md").read_text()
    for name in {*FORMATS, *WRITERS} - {"long"}:
        assert name.replace("-", " ") in text.lower().replace("mechanical turk", "mturk"), name


def test_the_campaigns_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = FENCE.findall((ROOT / "docs/campaign.md").read_text())
    names: dict[str, Any] = {}
    exec(compile(block, "campaign.md", "exec"), names)
    assert names["batch"].pairs == [("p3", "ann")]
    assert names["again"].n_answers == 3


def test_every_method_has_its_line_on_when_to_use_it() -> None:
    text = (ROOT / "docs/methods.md").read_text()
    for name, estimator in ESTIMATORS.items():
        assert f"| `{name}` {{py:class}}`voxpop.{estimator.__name__}` |" in text


def test_every_command_option_and_method_is_documented() -> None:
    text = (ROOT / "docs/commands.md").read_text()
    for name, command in main.commands.items():
        assert f"## voxpop {name}\n" in text
        if name in ("aggregate", "assign", "plan", "next"):
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


def test_the_readmes_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text())
    assert len(links) > 8
    for link in links:
        assert (ROOT / link).exists(), link


def test_the_changelog_is_kept() -> None:
    assert "## Unreleased" in (ROOT / "CHANGELOG.md").read_text()
