"""In and out of the users' tools: one file per tool, detected from what a file holds.

Documents are read whole (JSON, XML, Python literals); tables are known by their columns.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from voxpop.data.files import is_text
from voxpop.data.formats import coco, cvat, label_studio, mturk, sureal, toloka, wide, zooniverse
from voxpop.data.formats.base import Export
from voxpop.data.formats.parsing import load_json
from voxpop.data.formats.sql import is_url as is_url
from voxpop.data.formats.sql import write_result as write_result
from voxpop.data.formats.writing import training_columns as training_columns
from voxpop.data.many_files import several_files
from voxpop.data.numerals import Spelling
from voxpop.data.tables import open_table, write_table
from voxpop.data.unpack import decode, peek
from voxpop.errors import ConfigError, DataError

if TYPE_CHECKING:
    from voxpop.results.result import Result

FORMATS: dict[str, str] = {
    "long": "one answer per row: CSV, TSV, Parquet, JSON lines, .xlsx, .ods; frames, LLM judges",
    "wide": "a row per task, a column per worker",
    "label-studio": "Label Studio JSON: number, rating, rectangle, keypoint",
    "cvat": "CVAT XML 1.1 for images, one file per job: box, points, skeleton",
    "coco": "COCO JSON with an annotator field, or one file per person: bbox, keypoints",
    "mturk": "Mechanical Turk batch results CSV",
    "toloka": "Toloka results TSV",
    "zooniverse": "Zooniverse classifications CSV",
    "sureal": "sureal data set, .json or .py (never run)",
}
"""Every format that is read, by name."""

WRITERS: dict[str, str] = {
    "label-studio": "tasks with predictions, to import",
    "cvat": "annotations.xml, to upload",
    "coco": "annotations with score and sd",
    "mturk": "the batch with Approve and Reject filled in, and a bonus list",
    "sureal": "output.json",
    "training": "task, value, sd and sample_weight, as CSV, Parquet or JSON lines",
}
"""Every format that is written, by name."""

_TABLES: dict[str, ModuleType] = {tool.NAME: tool for tool in (mturk, toloka, zooniverse)}
_SINGLE: dict[str, ModuleType] = {tool.NAME: tool for tool in (label_studio, sureal)}
_SEVERAL: dict[str, ModuleType] = {tool.NAME: tool for tool in (cvat, coco)}


def sniff(source: object) -> str:
    """Detect the format of a file, a folder, a list of files or a data frame."""
    return detect(source)[0]


def detect(
    source: object, plain: bool = False, spelling: Spelling | None = None
) -> tuple[str, object]:
    """Detect the format, and open a table; ``plain`` takes every table as long."""
    paths = files_of(source)
    beginning = peek(paths[0]) if paths else b""
    kind = _document_format(paths[0], beginning) if paths else None
    if paths and len(paths) > 1 and kind not in _SEVERAL:
        raise DataError(
            f"{paths[0]}: only CVAT jobs and personal COCO files can be read several at a time"
        )
    if kind is not None:
        return kind, source
    table = open_table(source, beginning, spelling)
    tool = next((name for name, tool in _TABLES.items() if tool.fits(table.columns)), None)
    if plain or (tool is None and not wide.fits(table)):
        return "long", table
    return tool or wide.NAME, table


def files_of(source: object) -> list[Path] | None:
    """List the files of a source: itself, those of a list, or the exports in a folder."""
    if isinstance(source, list | tuple) and all(isinstance(s, str | os.PathLike) for s in source):
        if not source:
            raise DataError("expected at least one file, got an empty list")
        return [Path(item) for item in source]
    if not isinstance(source, str | os.PathLike) or several_files(os.fspath(source)) is not None:
        return None
    path = Path(source)
    if not path.is_dir():
        return [path]
    found = sorted(p for p in path.rglob("*") if p.suffix.lower() in (".xml", ".json"))
    if not found:
        raise DataError(f"{path}: is a directory without .xml or .json files; name one file")
    return found


def _document_format(path: Path, beginning: bytes) -> str | None:
    """Name the format of a document; None for a table."""
    name = path.name.lower().removesuffix(".gz")
    if name.endswith(".py"):
        return sureal.NAME if path.is_file() else None
    text = decode(beginning)
    if cvat.fits(text):
        return cvat.NAME
    if not text.lstrip().startswith(("{", "[")) or not name.endswith(".json"):
        return None
    try:
        document = load_json(path)  # all of it: the keys may be anywhere
    except DataError:
        return None  # perhaps JSON lines; reading them shows what is wrong
    return next((m.NAME for m in (label_studio, coco, sureal) if m.fits(document)), None)


def collect(
    source: object,
    format: str,
    task: str | None,
    spelling: Spelling | None = None,
    names: bool = False,
) -> Export:
    """Read the answers to all questions of a tool's export."""
    if format not in FORMATS:
        raise ConfigError(f"no format {format!r}; choose one of {', '.join(FORMATS)}")
    paths = files_of(source)
    found: Export
    if format in _SEVERAL or format in _SINGLE:
        if paths is None:
            raise DataError(f"{format} is read from a file, got {type(source).__name__}")
        if format in _SEVERAL:
            found = _SEVERAL[format].collect(paths)
        else:
            found = _SINGLE[format].collect(_only(paths, format), task, names)
        return found
    path = _only(paths, format) if paths else None
    if format == wide.NAME and path and is_text(path):
        bare = wide.collect_bare(path, spelling or Spelling())
        if bare is not None:
            return bare
    table = open_table(path or source, spelling=spelling)
    found = (wide if format == wide.NAME else _TABLES[format]).collect(table, task)
    found.notes = [*table.notes, *found.notes]
    return found


def _only(paths: Sequence[Path], format: str) -> Path:
    if len(paths) > 1:
        raise DataError(f"{format} is read from one file, got {len(paths)}")
    return paths[0]


def export_result(
    result: Result,
    out: Path,
    to: str,
    source: object = None,
    *,
    task: str | None = None,
    question: str | None = None,
    reasons: Mapping[str, str] | None = None,
    bonuses: Mapping[str, float] | None = None,
) -> str:
    """Write a result in the format of a tool, and say in a few words what was written.

    Parameters
    ----------
    to
        One of ``voxpop.WRITERS``.
    source
        The export that the answers came from: it has ids, sizes and names that a result lacks. COCO
        and training labels need none.
    task, question
        As given to :func:`voxpop.read_answers` for that export.
    reasons, bonuses
        Mechanical Turk: why the work of a worker is rejected, and the bonus of a worker for every
        approved assignment.
    """
    if to not in WRITERS:
        raise ConfigError(f"no format {to!r} to write; choose one of {', '.join(WRITERS)}")
    if to == "training":
        write_table(training_columns(result), out)
        return f"{len(result.task_ids)} labels with sd and sample_weight"
    paths = [] if source is None else files_of(source) or []
    if not paths and to != "coco":
        raise ConfigError(f"writing {to} needs the export the answers came from, as source")
    if to in _SEVERAL:
        return (cvat.write if to == cvat.NAME else coco.write)(result, paths, out)
    path = _only(paths, to)
    if to == "mturk":
        return mturk.review(open_table(path), out, reasons or {}, bonuses)
    if to == "sureal":
        return sureal.write(result, path, out, task)
    return label_studio.write(result, path, out, task, question)
