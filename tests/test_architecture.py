"""The house keeps its order: imports go one way, files stay short, start-up stays light."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import voxpop
from tests.floor_plan import PAGE, SOURCE, draw, drawn, imports, modules

# Where a name that users have hands over to what stands further down, when it is called.
DOORS = {
    ("results.result", "results.explaining"),
    ("results.result", "results.explanation"),
    ("results.result", "results.prediction"),
    ("results.result", "results.saved"),
    ("results.diagnosis.effect", "estimators"),
    ("collect.planning.frontier", "present.drawing"),
}


def test_the_map_is_that_of_the_house() -> None:
    assert draw(drawn()) in PAGE.read_text(), "run python -m tests.floor_plan"
    assert sorted(drawn()) == sorted(modules())


def test_imports_go_one_way() -> None:
    known, order = modules(), drawn()
    place = {name: number for number, name in enumerate(order)}
    for name, path in known.items():
        for target in imports(path, known) - {name}:
            # A package's own front page may name what stands in it.
            inside = target.startswith(f"{name}.")
            assert place[target] < place[name] or inside or (name, target) in DOORS, (
                f"{name} imports {target}, which stands below it"
            )


def test_files_stay_short() -> None:
    for path in SOURCE.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 450, path


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
