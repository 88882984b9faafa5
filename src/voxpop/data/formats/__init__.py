"""In and out of the users' tools: one file per tool, found out from what a file holds.

``documents`` are read whole (JSON, XML, Python literals); ``tables`` are known by their columns.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from voxpop.data.files import open_bytes
from voxpop.data.formats import coco, cvat, label_studio, mturk, sureal, toloka, wide, zooniverse
from voxpop.data.formats.back import training_columns as training_columns
from voxpop.data.formats.base import Collector, Export, Wishes, load_json
from voxpop.data.formats.sql import is_url as is_url
from voxpop.data.formats.sql import read_query as read_query
from voxpop.data.formats.sql import write_result as write_result
from voxpop.data.tables import Table, open_table, write_table
from voxpop.errors import ConfigError, DataError

if TYPE_CHECKING:
    from voxpop.results.result import Result

FORMATS: dict[str, str] = {
    "long": "one answer per row: CSV, TSV, Parquet, JSON lines; crowd-kit frames, LLM judges",
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

_TABLES: dict[str, Callable[[Table, object, Wishes], Collector]] = {
    "wide": wide.collect,
    "mturk": mturk.collect,
    "toloka": toloka.collect,
    "zooniverse": zooniverse.collect,
}
_SINGLE: dict[str, Callable[[Path, Wishes], Collector]] = {
    "label-studio": label_studio.collect,
    "sureal": sureal.collect,
}
_SEVERAL: dict[str, Callable[[Sequence[Path], Wishes], Collector]] = {
    "cvat": cvat.collect,
    "coco": coco.collect,
}
# A document is known by its beginning, but its keys may stand anywhere.
_BEGINNING = 4096


def sniff(source: object) -> str:
    """Find out the format of a file, a folder, a list of files or a data frame."""
    paths = files_of(source)
    kind = None if paths is None else sniff_document(paths)
    return kind or sniff_table(open_table(source))


def sniff_document(paths: Sequence[Path]) -> str | None:
    """Name the format of documents by the first of them; None where it is a table."""
    kind = _sniff_document(paths[0])
    if kind not in _SEVERAL and len(paths) > 1:
        raise DataError(
            f"{paths[0]}: several files are read where each is a CVAT job or a person's COCO file"
        )
    return kind


def files_of(source: object) -> list[Path] | None:
    """List the files of a source: itself, those of a list, or the exports in a folder."""
    if isinstance(source, list | tuple) and all(isinstance(s, str | os.PathLike) for s in source):
        if not source:
            raise DataError("expected at least one file, got an empty list")
        return [Path(item) for item in source]
    if not isinstance(source, str | os.PathLike):
        return None
    path = Path(source)
    if not path.is_dir():
        return [path]
    found = sorted(p for p in path.rglob("*") if p.suffix.lower() in (".xml", ".json"))
    if not found:
        raise DataError(f"{path}: is a directory without .xml or .json files; name one file")
    return found


def _sniff_document(path: Path) -> str | None:
    """Name the format of a document; None for a table."""
    if not path.is_file():
        return None
    name = path.name.lower().removesuffix(".gz")
    if name.endswith(".py"):
        return sureal.NAME
    try:
        with open_bytes(path) as file:
            beginning = file.read(_BEGINNING)
    except (OSError, EOFError):
        return None  # told when it is read
    wide_text = beginning[:2] in (b"\xff\xfe", b"\xfe\xff")
    text = beginning.decode("utf-16" if wide_text else "utf-8-sig", "replace")
    if cvat.fits(text):
        return cvat.NAME
    if not text.lstrip().startswith(("{", "[")) or not name.endswith(".json"):
        return None
    try:
        document = load_json(path)
    except DataError:
        return None  # perhaps JSON lines; told when it is read as such
    for name, module in {"label-studio": label_studio, "coco": coco, "sureal": sureal}.items():
        if module.fits(document):
            return name
    return None


def sniff_table(table: Table) -> str:
    """Name the format of a table by its columns; ``long`` unless another is beyond doubt."""
    known = {"mturk": mturk.fits, "toloka": toloka.fits, "zooniverse": zooniverse.fits}
    for name, fits in known.items():
        if fits(table.columns):
            return name
    return "wide" if wide.fits(table) else "long"


def read_export(source: object, format: str, wishes: Wishes) -> Export:
    """Read one question of a tool's export."""
    return _collect(source, format, wishes).export(wishes.question)


def _collect(source: object, format: str, wishes: Wishes) -> Collector:
    if format not in FORMATS:
        raise ConfigError(f"no format {format!r}; choose one of {', '.join(FORMATS)}")
    paths = files_of(source)
    if format in _SEVERAL or format in _SINGLE:
        if paths is None:
            raise DataError(f"{format} is read from a file, got {type(source).__name__}")
        if format in _SEVERAL:
            return _SEVERAL[format](paths, wishes)
        return _SINGLE[format](_only(paths, format), wishes)
    named = getattr(source, "path", "the table")  # a file that is open already, or a frame
    where: object = named if paths is None else _only(paths, format)
    if format == "wide" and paths is not None and _is_text(paths[0]) and wide.is_bare(paths[0]):
        return wide.collect_bare(paths[0], wishes)
    table = source if isinstance(source, Table) else open_table(source if paths is None else where)
    return _TABLES[format](table, where, wishes)


def _only(paths: Sequence[Path], format: str) -> Path:
    if len(paths) > 1:
        raise DataError(f"{format} is read from one file, got {len(paths)}")
    return paths[0]


def _is_text(path: Path) -> bool:
    suffixes = {suffix.lower() for suffix in path.suffixes}
    return path.is_file() and not suffixes & {".parquet", ".pq", ".json", ".jsonl", ".ndjson"}


def export_result(
    result: Result,
    out: Path,
    to: str,
    source: object = None,
    *,
    wishes: Wishes | None = None,
    reasons: Mapping[str, str] | None = None,
    bonuses: Mapping[str, float] | None = None,
) -> str:
    """Write a result in the format of a tool, and say in a few words what was written.

    ``source`` is the export that the answers came from: ids, sizes and names that a result does
    not have are taken from it. COCO and training labels can do without.
    """
    if to not in WRITERS:
        raise ConfigError(f"no format {to!r} to write; choose one of {', '.join(WRITERS)}")
    if to == "training":
        write_table(training_columns(result), out)
        return f"{len(result.task_ids)} labels with sd and sample_weight"
    paths = [] if source is None else files_of(source) or []
    if not paths and to != "coco":
        raise ConfigError(f"writing {to} needs the export the answers came from, as source")
    asked = wishes or Wishes()
    if to == "mturk":
        return mturk.review(open_table(_only(paths, to)), out, reasons or {}, bonuses)
    if to in _SEVERAL:
        return (cvat.write if to == "cvat" else coco.write)(result, paths, out, asked)
    write = label_studio.write if to == "label-studio" else sureal.write
    return write(result, _only(paths, to), out, asked)
