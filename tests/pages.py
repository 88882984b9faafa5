"""Pages of the documentation, run as a reader would: block after block, in one folder.

``sh`` blocks are commands, ``python`` blocks one session, a block with a caption is a file to save.
A ``text`` block right after a block is what it prints. There, a line ``…`` stands for any lines, a
``…`` within a line for anything, and numbers may differ in their last digits; with the class
``figures-vary``, they may be any, as where a handful of answers decide which model is taken.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voxpop.cli import main

_FENCE = re.compile(
    r"^```(?:\{code-block\} )?(?P<language>\w+)\n"
    r"(?P<options>(?::[\w-]+:[^\n]*\n)*)(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?(?!\w)")
# Lines of tables grow and shrink with the digits in them.
_FRAME = re.compile("[\\s━─┏┓┗┛┡┩└┘┬┴┳┻╇╈┼│┃╂]+")
_NEAR = 0.02


@dataclass(frozen=True, kw_only=True)
class Block:
    """One block of a page: what to run or save, and what it prints where that is shown."""

    language: str
    text: str
    where: str
    file: str | None = None
    shown: str | None = None
    vary: bool = False

    def differences(self, printed: str) -> str:
        """Say where what is printed is not what the page shows."""
        return "" if self.shown is None else differences(self.shown, printed, self.vary)


def blocks_of(path: Path) -> list[Block]:
    """Return the blocks of a page or the cells of a notebook, in their order."""
    return list(_cells(path) if path.suffix == ".ipynb" else _blocks(path))


def _blocks(path: Path) -> Iterator[Block]:
    page = path.read_text(encoding="utf-8")
    found = list(_FENCE.finditer(page))
    after = [*found[1:], None]
    for fence, following in zip(found, after, strict=True):
        caption = re.search(r":caption: (.*)", fence["options"])
        shown, vary = None, False
        if following is not None and following["language"] == "text":
            between = page[fence.end() : following.start()].strip()
            if not between and ":caption:" not in following["options"]:
                shown, vary = following["text"], "figures-vary" in following["options"]
        yield Block(
            language=fence["language"],
            text=fence["text"].lstrip("\n"),
            where=f"{path.name}, line {page.count(chr(10), 0, fence.start()) + 1}",
            file=caption[1].strip() if caption else None,
            shown=shown,
            vary=vary,
        )


def _cells(path: Path) -> Iterator[Block]:
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"], start=1):
        if cell["cell_type"] == "code":
            outputs = [o.get("text") or o["data"]["text/plain"] for o in cell["outputs"]]
            yield Block(
                language="python",
                text="".join(cell["source"]),
                where=f"{path.name}, cell {number}",
                shown="\n".join("".join(lines) for lines in outputs) if outputs else None,
            )


class Session:
    """What a page does, one block after the other; runs in the current folder."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}

    def run(self, block: Block) -> str:
        """Run a block, or save its file; return what it prints."""
        if block.file is not None:
            Path(block.file).write_text(block.text, encoding="utf-8")
            return ""
        if block.language == "python":
            return self.run_python(block.text, block.where)
        if block.language == "sh":
            return "".join(
                self.run_command(line)
                for line in block.text.replace("\\\n", " ").splitlines()
                if line.strip() and not line.startswith("#")
            )
        return ""

    def run_python(self, text: str, where: str) -> str:
        """Run Python and, as a notebook does, print the value of the last line."""
        tree = ast.parse(text, where)
        last = tree.body[-1] if tree.body else None
        if isinstance(last, ast.Expr):
            tree.body.pop()
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(tree, where, "exec"), self.names)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), where, "eval"), self.names)
                if value is not None:
                    print(value if hasattr(value, "to_string") else repr(value))
        return out.getvalue()

    def run_command(self, line: str) -> str:
        """Run a command on a terminal; ours without starting Python anew."""
        words = shlex.split(line, comments=True)
        if words == ["pip", "install", "."]:
            return install()
        if words[0] != "voxpop" or {"|", "<", ">", "&&"} & set(words):
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            done = subprocess.run(
                ["/bin/sh", "-ec", line], env={**os.environ, "PATH": path},
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True,
            )  # fmt: skip
            code, printed = done.returncode, done.stdout
        else:
            terminal = _Terminal()
            talk = _Talk(terminal)
            with contextlib.redirect_stdout(terminal), contextlib.redirect_stderr(talk):
                try:
                    main.main(words[1:], prog_name="voxpop")
                except SystemExit as ended:
                    code = int(ended.code or 0)
            printed = _COLOUR.sub("", terminal.getvalue())
        assert (code != 0) == printed.startswith("Error: "), f"{line}\n{printed}"
        return printed


def install() -> str:
    """Install the current folder where it is: as pip does, but without network and environment."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    name, version = project["name"].replace("-", "_"), project["version"]
    info = Path(f"{name}-{version}.dist-info")
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{entry} = {value}" for entry, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return ""


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class _Talk(io.TextIOBase):
    """Standard error, to the same screen; no terminal, so that no progress bar is drawn."""

    def __init__(self, screen: io.StringIO) -> None:
        self.screen = screen

    def write(self, text: str) -> int:
        return self.screen.write(text)


def differences(shown: str, printed: str, vary: bool = False) -> str:
    """Say where what is printed is not what the page shows; empty where it is."""
    want = [line for line in map(_plain, shown.splitlines()) if line]
    got = [line for line in map(_plain, printed.splitlines()) if line]
    at = 0
    for k, line in enumerate(want):
        if line == "…":
            if k + 1 == len(want):
                return ""
            while at < len(got) and not _alike(want[k + 1], got[at], vary):
                at += 1
        elif at < len(got) and _alike(line, got[at], vary):
            at += 1
        else:
            return f"shown:   {line}\nprinted: {got[at] if at < len(got) else 'nothing more'}"
    return "" if at == len(got) else f"printed, but not shown: {got[at]}"


def _plain(line: str) -> str:
    return _FRAME.sub(" ", line).strip()


def _alike(want: str, got: str, vary: bool) -> bool:
    if "…" in want:
        pattern = ".*".join(_NUMBER.sub("0", part) for part in _escaped(want))
        return re.fullmatch(pattern, _NUMBER.sub("0", got)) is not None
    if _NUMBER.sub("0", want) != _NUMBER.sub("0", got):
        return False
    pairs = zip(_NUMBER.findall(want), _NUMBER.findall(got), strict=True)
    return vary or all(a == b or _near(a, b) for a, b in pairs)


def _escaped(line: str) -> list[str]:
    return [re.escape(_NUMBER.sub("0", part)) for part in line.split("…")]


def _near(shown: str, printed: str) -> bool:
    a, b = (float(text.replace(",", "")) for text in (shown, printed))
    digit = 10.0 ** -len(shown.partition(".")[2].partition("e")[0])
    return abs(a - b) <= _NEAR * abs(a) + (digit if "." in shown else 0)
