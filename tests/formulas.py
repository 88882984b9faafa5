r"""The numbered formulas of the documentation, and the places in the code that cite them.

A formula has its number by ``\tag`` on a page of the documentation, and a name in the index at the
end of ``docs/model.md``. A docstring or a comment cites it by that number and says one of the words
in italics of its name: a wrong number shows. ``python -m tests.formulas`` writes the last column of
the index, the modules that cite a formula, anew.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from tests.floor_plan import SOURCE, tree

DOCS = Path(__file__).parent.parent / "docs"
INDEX = DOCS / "model.md"
_TAG = re.compile(r"\\tag\{(\w+)\}")
_ROW = re.compile(r"^\| ([MDN]\d+[a-z]?) \| (.*?) \| (.*?) \|$", re.MULTILINE)
_CITED = re.compile(r"\b([MDN])(\d+)([a-z]?)\b(?:\)-\(\1(\d+)\b)?")


@dataclass(frozen=True)
class Citation:
    """A docstring or a comment that cites formulas: the numbers named together, and its words."""

    path: Path
    line: int
    numbers: tuple[str, ...]
    text: str

    @property
    def module(self) -> str:
        """The module, as the index names it; of a C++ source, its file."""
        inner = self.path.relative_to(SOURCE)
        return str(inner.with_suffix("") if inner.suffix == ".py" else inner).replace("/", ".")


def defined() -> list[str]:
    """Numbers of all formulas, in the order of the pages."""
    pages = [INDEX, *sorted(set(DOCS.glob("*.md")) - {INDEX})]
    return [number for page in pages for number in _TAG.findall(page.read_text())]


def index() -> dict[str, tuple[str, str]]:
    """Name of each formula, and the modules that cite it, as the index has them."""
    return {number: (name, where) for number, name, where in _ROW.findall(INDEX.read_text())}


def words(name: str) -> list[str]:
    """The words in italics of a formula's name."""
    return re.findall(r"\*([^*]+)\*", name)


def citations() -> list[Citation]:
    """Every citation in the package, ranges as all of their numbers."""
    known = defined()
    found = []
    for path in sorted(SOURCE.rglob("*")):
        if path.suffix not in {".py", ".hpp", ".cpp"}:
            continue
        for line, text in _python(path) if path.suffix == ".py" else _cpp(path):
            for letter, first, suffix, last in _CITED.findall(text):
                span = range(int(first), int(last) + 1) if last else ()
                numbers = [n for n in known if _CITED.fullmatch(n) and _within(n, letter, span)]
                found.append(
                    Citation(path, line, tuple(numbers) or (letter + first + suffix,), text)
                )
    return found


def _within(number: str, letter: str, span: range | tuple[()]) -> bool:
    return number[0] == letter and int(re.sub(r"\D", "", number)) in span


def _python(path: Path) -> Iterator[tuple[int, str]]:
    """Docstrings, with the names of what they describe, and runs of comment lines."""
    source = path.read_text()

    def strings(node: ast.AST, name: str) -> Iterator[tuple[int, str]]:
        name = getattr(node, "name", name)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                yield child.lineno, f"{name}: {child.value.value!s}"
            yield from strings(child, name)

    yield from strings(tree(path), path.stem)
    comments = [
        (token.start[0], token.string)
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    yield from _runs(comments)


def _cpp(path: Path) -> Iterator[tuple[int, str]]:
    """Runs of comment lines."""
    lines = enumerate(path.read_text().splitlines(), start=1)
    yield from _runs([(n, line.partition("//")[2]) for n, line in lines if "//" in line])


def _runs(comments: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    for _, run in groupby(enumerate(comments), lambda item: item[1][0] - item[0]):
        lines = [comment for _, comment in run]
        yield lines[0][0], "\n".join(text for _, text in lines)


def drawn() -> str:
    """The page with the index as it should stand: the modules as they cite today."""
    where: dict[str, set[str]] = {}
    for citation in citations():
        for number in citation.numbers:
            where.setdefault(number, set()).add(f"`{citation.module}`")

    def row(match: re.Match[str]) -> str:
        number, name, _ = match.groups()
        return f"| {number} | {name} | {', '.join(sorted(where.get(number, set())))} |"

    return _ROW.sub(row, INDEX.read_text())


if __name__ == "__main__":
    INDEX.write_text(drawn())
