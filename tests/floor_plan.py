"""The map of the house: every module with the first line of its docstring, and who may import whom.

The map is MAP.md, in the order of the data: a module imports only from modules above it.
CONTRIBUTING.md has its folders alone. ``python -m tests.floor_plan`` updates both after a module
has come or gone; where a module stands is for the developer to choose.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

# Of this clone: an installed package has no sources of the compiled kernels.
SOURCE = Path(__file__).parent.parent / "src/voxpop"
MAP = Path(__file__).parent.parent / "MAP.md"
PAGE = MAP.with_name("CONTRIBUTING.md")
_MAP = re.compile(r"(?<=```text\n).*?(?=```)", re.DOTALL)
_FOLDERS = re.compile(r"(?<=<!-- folders -->\n```text\n).*?(?=```\n<!-- end of folders)", re.DOTALL)
_WIDTH = 34


def modules() -> dict[str, Path]:
    """Every module of the package by its name without ``voxpop.``, packages as their folder."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name:
            found[name] = path
    return found


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a file, parsed once."""
    return ast.parse(path.read_text())


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """Modules that a module imports when it runs; those that only types need do not count."""
    for_types = {
        inner
        for node in ast.walk(tree(path))
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree(path)):
        if node in for_types:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("voxpop"):
            module = (node.module or "").removeprefix("voxpop").removeprefix(".")
            names = {f"{module}.{alias.name}".strip(".") for alias in node.names}
            inner = names & known.keys()
            found |= inner
            if len(inner) < len(names) and module in known:
                found.add(module)
        elif isinstance(node, ast.Import):
            names = {alias.name.removeprefix("voxpop.") for alias in node.names}
            found |= names & known.keys()
    return found


def drawn() -> list[str]:
    """Names of the modules in the order of the map."""
    found: list[str] = []
    folders: list[str] = []
    for line in _MAP.findall(MAP.read_text())[0].splitlines():
        depth, word = (len(line) - len(line.lstrip())) // 2, line.split()[0]
        folders = [*folders[:depth], word.rstrip("/")]
        found.append(".".join(folders))
    return found


def draw(order: list[str]) -> str:
    """The map as it should stand, with modules that are new at the end of their folder."""
    known = modules()
    kept = [name for name in order if name in known]
    for name in known:
        if name not in kept:
            parent = name.rpartition(".")[0]
            near = [i for i, other in enumerate(kept) if f"{other}.".startswith(f"{parent}.")]
            kept.insert(near[-1] + 1 if near and parent else len(kept), name)
    lines = []
    for name in kept:
        path, indent = known[name], "  " * name.count(".")
        word = name.rpartition(".")[2] + ("/" if path.name == "__init__.py" else "")
        title = (ast.get_docstring(tree(path)) or "").splitlines()[0]
        lines.append(f"{indent + word:<{_WIDTH}}{title}".rstrip())
    return "\n".join(lines) + "\n"


def folders(plan: str) -> str:
    """The folders of a map alone."""
    lines = (line for line in plan.splitlines() if line.split()[0].endswith("/"))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    plan = draw(drawn())
    MAP.write_text(_MAP.sub(lambda _: plan, MAP.read_text()))
    PAGE.write_text(_FOLDERS.sub(lambda _: folders(plan), PAGE.read_text()))
