"""The house keeps its order: imports go one way, files stay short, start-up stays light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib.metadata import version

import pytest

import voxpop
from tests.conftest import skip_without
from tests.floor_plan import MAP, PAGE, SOURCE, draw, drawn, folders, imports, modules, tree

# Where a name that users have hands over to what stands further down, when it is called.
DOORS = {
    ("results.result", "results.explain"),
    ("results.result", "results.prediction"),
    ("results.result", "results.saved"),
    ("results.result", "results.review"),
    ("results.result", "estimators.make_result"),
    ("estimators.comparison", "present.plots"),
    ("collect.planning.plan", "present.plots"),
}

# Modules that import their own package's front page.
BY_THE_FRONT_PAGE: set[str] = set()


def test_the_map_is_that_of_the_house() -> None:
    assert sorted(drawn()) == sorted(modules()), "run python -m tests.floor_plan"
    assert draw(drawn()) in MAP.read_text(), "run python -m tests.floor_plan"
    assert folders(draw(drawn())) in PAGE.read_text(), "run python -m tests.floor_plan"


def test_the_walk_from_a_csv_to_the_report_names_modules() -> None:
    steps = re.findall(r"^\| \d+\. .* \| (`.*`) \|$", PAGE.read_text(), re.MULTILINE)
    assert len(steps) > 8
    for step in steps:
        assert set(re.findall(r"`([^`]+)`", step)) <= modules().keys(), step


def test_imports_go_one_way() -> None:
    known, order = modules(), drawn()
    assert known.keys() <= set(order), "not on the map: run python -m tests.floor_plan"
    place = {name: number for number, name in enumerate(order)}
    upwards = set()
    for name, path in known.items():
        for target in imports(path, known) - {name}:
            # A package's own front page may name what stands in it.
            if place[target] > place[name] and not target.startswith(f"{name}."):
                upwards.add((name, target))
    assert upwards <= DOORS, "modules that import from below them"
    assert upwards == DOORS, "doors that nobody uses any more: take them off the list"


def test_nobody_inside_goes_round_by_the_front_page() -> None:
    """What a package holds imports its neighbours by name; nothing imports ``voxpop`` itself."""
    known = modules()
    for name, path in known.items():
        round_trips = {t for t in imports(path, known) if name.startswith(f"{t}.")}
        assert not round_trips or name in BY_THE_FRONT_PAGE, f"{name} imports its own {round_trips}"
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{name} imports relatively: the checks here do not see it"
                public = {alias.name for alias in node.names} - {"__version__", "_native"}
                assert node.module != "voxpop" or public <= known.keys(), f"{name}: {public}"


def test_files_stay_short() -> None:
    for path in SOURCE.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 450, path


def test_classes_and_functions_stay_short() -> None:
    """A class of 250 lines or a function of 60, docstring and all, is more than one idea."""
    found = set()
    for path in modules().values():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                assert node.end_lineno is not None
                most = 250 if isinstance(node, ast.ClassDef) else 60
                if node.end_lineno - node.lineno >= most:
                    found.add(node.name)
    assert not found, f"longer than they may be: {sorted(found)}"


def test_every_module_says_what_it_is_for() -> None:
    for name, path in modules().items():
        first = (ast.get_docstring(tree(path)) or "").partition("\n")[0]
        assert first.endswith("."), f"{name}: the first line of its docstring is a sentence"
        assert len(first) <= 100, name


def modules_after(code: str) -> set[str]:
    listing = f"import sys; {code}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", listing], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_start_up_is_light() -> None:
    heavy = {"numpy", "pandas", "duckdb", "scipy", "narwhals", "rich"}
    assert not heavy & modules_after("import voxpop")
    assert not heavy & modules_after("import voxpop.cli")


def test_public_names_exist() -> None:
    assert len(voxpop.__all__) > 80
    for name in voxpop.__all__:
        assert getattr(voxpop, name) is not None


def test_version_is_the_packages() -> None:
    assert voxpop.__version__ == version("voxpop")


def test_what_ci_requires_is_not_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOXPOP_REQUIRE", "chromium")
    with pytest.raises(pytest.skip.Exception, match="no server"):
        skip_without("postgresql", "no server")
    with pytest.raises(pytest.fail.Exception, match="no browser"):
        skip_without("chromium", "no browser")
