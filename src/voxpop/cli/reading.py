"""How commands read answers: one set of options, files or standard input, and messages."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from voxpop.errors import VoxpopError, require
from voxpop.words import counted

if TYPE_CHECKING:
    from voxpop.arrays import Floats
    from voxpop.data.answers import Answers

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]


def say(message: str) -> None:
    """Print a message on standard error, where no data goes."""
    click.echo(message, err=True)


def together(*options: Decorator) -> Decorator:
    """Combine several options into one decorator, shown in this order."""
    return lambda command: reduce(lambda made, option: option(made), options[::-1], command)


def _missing(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> tuple[Any, ...]:
    """Parse numbers; any other text stays as it is."""
    found: list[float | str] = []
    for text in given:
        try:
            found.append(float(text))
        except ValueError:
            found.append(text)
    return tuple(found)


reading_options = together(
    click.option("--from", "format", help="Format; see `voxpop formats`.  [default: detected]"),
    click.option("--task", help="Column of the task ids.  [default: guessed]"),
    click.option("--worker", help="Column of the worker ids.  [default: guessed]"),
    click.option("--value", "values", multiple=True, help="Column of values; repeat for vectors."),
    click.option("--gold", multiple=True, help="Known truths: a file or column; repeatable."),
    click.option(
        "--duplicates",
        type=click.Choice(["error", "mean", "last"]),
        help="What to do if a worker answers a task twice.  [default: error unless the same]",
    ),
    click.option("--question", help="Question to read, if an export has several."),
    click.option(
        "--missing",
        multiple=True,
        callback=_missing,
        help="Value that means no answer, or drop to leave out rows without one; repeatable.",
    ),
    click.option(
        "--decimal", type=click.Choice([".", ","]), help="Decimal mark.  [default: guessed]"
    ),
    click.option(
        "--thousands",
        type=click.Choice([",", ".", " ", "'"]),
        help="Thousands separator.  [default: guessed]",
    ),
    click.option("--sheet", help="Sheet of a workbook.  [default: the first]"),
    click.option("--names", is_flag=True, help="Label Studio: e-mail addresses instead of ids."),
    click.option("--objects", "match", is_flag=True, help="Match boxes or points into objects."),
    click.option(
        "--iou-threshold", type=float, help="Minimum overlap of two boxes.  [default: 0.5]"
    ),
    click.option("--distance-threshold", type=float, help="Maximum distance of two points."),
    click.option(
        "--quorum", type=float, help="Share of viewers who must mark an object.  [default: 0.5]"
    ),
    click.option(
        "--looked", help="File of task and worker: who looked, even if they marked nothing."
    ),
    click.option("--query", help="Table or SELECT to read, if the input is a database URL."),
)
"""How to read answers: for every command that reads them. See :func:`take_answers`."""


def take_answers(settings: dict[str, Any]) -> Callable[[object], Answers]:
    """Use up the :data:`reading_options` in a command's settings, and return the reader."""
    from voxpop.data.objects import Matching
    from voxpop.data.read import ReadingOptions, read_answers

    names = ("iou_threshold", "distance_threshold", "quorum")
    given = {name: settings.pop(name) for name in names}
    thresholds = {name: item for name, item in given.items() if item is not None}
    matched = settings.pop("match") or thresholds
    settings |= {
        "values": settings["values"] or None,
        "gold": one_or_all(settings["gold"]),
        "objects": Matching(**thresholds) if matched else None,
    }
    options = {name: settings.pop(name) for name in ReadingOptions.__annotations__}

    def read(source: object) -> Answers:
        with _open_input(source) as readable:
            return read_answers(readable, **options)

    return read


def one_or_all(given: tuple[str, ...]) -> Any:
    """The values of a repeatable option: the only one, a list of several, or None."""
    return given[0] if len(given) == 1 else list(given) or None


@contextmanager
def _open_input(source: object) -> Iterator[object]:
    """Give the source to read: itself, or a copy of standard input for ``-``."""
    if source != "-":
        yield source
        return
    from tempfile import TemporaryDirectory

    require(sys.stdin is not None, "there is no standard input to read; name a file instead of -")
    content = sys.stdin.buffer.read()
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"stdin{_ending(content)}"
        path.write_bytes(content)
        try:
            yield str(path)
        except VoxpopError as error:
            raise type(error)(str(error).replace(str(path), "stdin")) from None


def _ending(content: bytes) -> str:
    """Name the kind of file that some bytes are, by the first of them."""
    if content.startswith(b"\x1f\x8b"):
        try:
            beginning = zlib.decompressobj(wbits=31).decompress(content, 4096)
        except zlib.error:
            beginning = b""  # reading all of it shows what is wrong
        return f"{_ending(beginning)}.gz"
    if content.startswith((b"PAR1", b"PK")):
        return ".parquet" if content.startswith(b"PAR1") else ".xlsx"
    text = content.lstrip(b"\xef\xbb\xbf \r\n\t")
    if text.startswith(b"{"):
        first, _, rest = text.partition(b"\n")
        return ".jsonl" if first.rstrip().endswith(b"}") and rest.strip() else ".json"
    return {b"[": ".json", b"<": ".xml"}.get(text[:1], ".csv")


def say_read(table: Answers) -> None:
    """Print which columns were taken."""
    from voxpop.data.answers import columns_taken

    say(f"read {counted(table.n_edges, 'answer')}: {columns_taken(table.columns)}")


def say_notes(table: Answers) -> None:
    """Print the notes of reading."""
    for note in table.notes:
        say(note)


def take_truths(settings: Mapping[str, Any]) -> Callable[[str, Answers], Floats]:
    """Return a function that reads truths as the :data:`reading_options` say."""
    from voxpop.data.read import spelling_of
    from voxpop.data.truths import read_truth

    spelling, task = spelling_of(settings), settings["task"]

    def read(source: str, table: Answers) -> Floats:
        column = task or table.columns.get("task")
        names = table.value_names
        return read_truth(source, table.task_ids, names, task=column, spelling=spelling)

    return read
