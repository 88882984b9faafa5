"""The house keeps its order: imports go down, files stay short, start-up stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import voxpop

SOURCE = Path(voxpop.__file__).parent

# From the ground up; a module imports only from rows below its own (or its own package).
FLOORS = [
    {"errors", "arrays", "_native"},
    {"files"},
    {"tables", "drawing"},
    {"answers"},
    {"model", "noise", "audit", "objects"},
    {"result"},
    {"formats"},
    {"io"},
    {"kernels", "assign"},
    {"balance"},
    {"backends", "roster", "prediction", "explanation"},
    {"weights"},
    {"estimators", "simulation", "metrics", "theory", "reliability", "explaining"},
    {"density"},
    {"pilot", "frontier"},
    {"plan", "campaign"},
    {"demo", "diagnosis", "experiments"},
    {"report", "plots"},
    {"screen"},
    {"cli"},
    {"__main__"},
]
# Methods of a result that hand over to a function upstairs, imported when they are called.
DOORS = {("result", "explaining"), ("result", "explanation"), ("result", "prediction")}
FLOOR = {name: height for height, names in enumerate(FLOORS) for name in names}


def home(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "voxpop":
            found |= {alias.name for alias in node.names} & set(FLOOR)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("voxpop."):
            found.add(str(node.module).split(".")[1])
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
            found |= {name[1] for name in names if name[0] == "voxpop" and len(name) > 1}
    return found


def test_imports_go_down() -> None:
    for path in SOURCE.rglob("*.py"):
        if path.name == "__init__.py" and path.parent == SOURCE:
            continue
        for target in imports(path) - {home(path)}:
            if (home(path), target) in DOORS:
                continue
            assert FLOOR[target] < FLOOR[home(path)], f"{path.name} imports {target}"


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
    for name in voxpop.__all__:
        assert getattr(voxpop, name) is not None
    assert set(voxpop.__all__) <= set(dir(voxpop))


def test_version_is_the_packages() -> None:
    from importlib.metadata import version

    assert voxpop.__version__ == version("voxpop")
