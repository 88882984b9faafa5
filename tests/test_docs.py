"""The docs say what the code does: examples run, commands and formulas are there."""

from __future__ import annotations

import ast
import contextlib
import re
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests import exports, formulas
from tests.floor_plan import SOURCE, tree
from tests.pages import Session, blocks_of, differences
from voxpop import ESTIMATORS, FORMATS, WRITERS
from voxpop.cli import main
from voxpop.inference.engine import native_is_installed
from voxpop.paper import experiments
from voxpop.paper.demo import compare, demo_crowd, demo_methods
from voxpop.paper.experiments.runner import Effort

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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_example_of_the_report_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    demo_crowd(40, per_task=4, per_worker=8, seed=0).save(tmp_path)
    (block,) = FENCE.findall((ROOT / "docs/report.md").read_text())
    exec(compile(block, "report.md", "exec"), {})
    assert Path("report.html").stat().st_size > 10_000


@pytest.mark.slow
def test_the_gallery_makes_the_pictures_that_it_shows(tmp_path: Path) -> None:
    pictures = runpy.run_path(str(ROOT / "docs/pictures.py"))
    (tmp_path / "figures").mkdir()
    page = (ROOT / "docs/plots.md").read_text()
    (tmp_path / "plots.md").write_text(page)
    pictures["gallery"].__globals__["FIGURES"] = tmp_path / "figures"
    pictures["gallery"](tmp_path)
    shown = re.findall(r"{image} figures/(\S+)", page)
    assert len(shown) == 7
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == sorted(shown)


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
    names: dict[str, Any] = {}
    for block in FENCE.findall((ROOT / "docs/campaign.md").read_text()):
        exec(compile(block, "campaign.md", "exec"), names)
    assert names["batch"].pairs == [("p3", "ann")]
    assert names["again"].n_answers == 3
    assert names["picked"] == ["p3", "p2"]


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


def test_every_formula_has_a_number_and_a_name() -> None:
    assert sorted(formulas.index()) == sorted(formulas.defined())
    assert all(formulas.words(name) for name, _ in formulas.index().values())
    # Sphinx wraps a formula with line breaks in an environment that allows no tag.
    assert not re.search(r"\\\\\s", (ROOT / "docs/model.md").read_text())


def test_the_code_cites_formulas_by_the_right_number() -> None:
    named = {number: formulas.words(name) for number, (name, _) in formulas.index().items()}
    cited = set()
    for citation in formulas.citations():
        where = f"{citation.path}, line {citation.line}"
        assert set(citation.numbers) <= named.keys(), f"{where}: no formula {citation.numbers}"
        words = [word.lower() for number in citation.numbers for word in named[number]]
        assert any(word in citation.text.lower() for word in words), (
            f"{where} cites {citation.numbers} but says none of {words}: another formula?"
        )
        cited |= set(citation.numbers)
    assert named.keys() - cited <= {"N1", "N2"}, "formulas that no code cites"


def test_the_index_of_formulas_is_current() -> None:
    assert formulas.drawn() == formulas.INDEX.read_text(), "run python -m tests.formulas"


QUOTED = re.compile(r"<!-- constant: (\w+) = (.+?)(?:, here (.+?))? -->")


def constants_of_the_code() -> dict[str, list[object]]:
    """Literals that names of modules and fields of classes are set to; a name may have several."""
    found: dict[str, list[object]] = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                with contextlib.suppress(ValueError):
                    value = ast.literal_eval(node.value)
                    if isinstance(target, ast.Tuple) and isinstance(value, tuple):
                        pairs = list(zip(target.elts, value, strict=True))
                    else:
                        pairs = [(target, value)]
                    for name, one in pairs:
                        found.setdefault(ast.unparse(name), []).append(one)
    return found


def test_constants_in_the_docs_are_the_codes() -> None:
    """A comment below a paragraph, ``constant: NAME = value, here words``, ties the two."""
    known, checked = constants_of_the_code(), 0
    for page in sorted((ROOT / "docs").rglob("*.md")):
        paragraph = ""
        for block in re.split(r"\n\n|\n(?=<!-- constant)", page.read_text()):
            quoted = QUOTED.match(block)
            if quoted is None:
                paragraph = " ".join(block.split())
                continue
            name, value, words = quoted[1], ast.literal_eval(quoted[2]), quoted[3] or quoted[2]
            assert value in known.get(name, []), f"{page.name}: {name} is {known.get(name)}"
            assert words in paragraph, f"{page.name}: no {words!r} above {quoted[0]}"
            checked += 1
    assert checked > 15


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
