"""From a file, a frame or a database to ``Answers``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, cast

import numpy as np

from voxpop.arrays import Codes, Floats, Ids, Index
from voxpop.data.answers import Answers, Duplicates
from voxpop.data.columns import (
    CONTENTS,
    find_column,
    find_vector,
    ids_of_rows,
    resolve_column,
    resolve_roles,
    tidy_ids,
)
from voxpop.data.files import refuse_missing
from voxpop.data.formats import collect, detect
from voxpop.data.formats.base import Export, Mark
from voxpop.data.formats.sql import is_url, read_query
from voxpop.data.numerals import Spelling
from voxpop.data.objects import Matching
from voxpop.data.tables import Table, coordinate_names, matrix, open_table
from voxpop.data.truths import beside, read_truth
from voxpop.errors import ConfigError, DataError, shorten


class ReadingOptions(TypedDict, total=False):
    """How to read answers: the arguments of :func:`voxpop.read_answers`, which explains them."""

    task: str | None
    worker: str | None
    values: str | Sequence[str] | None
    gold: object
    duplicates: Duplicates | None
    format: str | None
    question: str | None
    missing: Sequence[float | str] | float | str
    decimal: str | None
    thousands: str | None
    sheet: str | None
    names: bool
    objects: Matching | None
    looked: object
    query: str | None


def read_answers(
    source: object,
    task: str | None = None,
    worker: str | None = None,
    values: str | Sequence[str] | None = None,
    gold: object = None,
    *,
    duplicates: Duplicates | None = None,
    format: str | None = None,
    question: str | None = None,
    missing: Sequence[float | str] | float | str = (),
    decimal: str | None = None,
    thousands: str | None = None,
    sheet: str | None = None,
    names: bool = False,
    objects: Matching | None = None,
    looked: object = None,
    query: str | None = None,
) -> Answers:
    """Read answers from a table, a tool's export, a data frame or a database.

    The format is detected from what the file holds, and columns that are not named are guessed
    from the names that tools give them; ``answers.notes``, ``answers.columns`` and its ``repr``
    show which columns were used.

    Parameters
    ----------
    source
        Path to CSV, TSV, Parquet, JSON lines (also gzipped) or a workbook (.xlsx, .ods), or to the
        export of a tool; a folder or list of CVAT jobs or COCO files; a pandas, polars or pyarrow
        table, a Hugging Face ``Dataset``, or a mapping from names to columns; or the URL of a
        database, with ``query``: a SELECT, or the name of a table.
    task, worker
        Columns of the ids; in a tool's export, ``task`` is the field that names the tasks.
    values
        One column, or several for points, boxes and other vectors; or one of lists or arrays.
    gold
        Known truths: a column (or one per coordinate) of the same table, empty where unknown; or
        another table or path with a task and the value columns; or a mapping from task to truth.
    duplicates
        What to do when a worker answered a task more than once: ``"error"``, ``"mean"`` or
        ``"last"``. By default the same answer again is left out, and a different one is an error;
        where the table has a column ``run`` or the format has repetitions, their mean is taken.
    format, question
        One of ``voxpop.FORMATS``, if the wrong one is detected; ``"long"`` is a plain table. And a
        question, where an export holds several.
    missing
        ``"drop"`` leaves out, and counts, rows without an answer: empty, N/A, don't know. Any other
        number or word, such as -1 or ``"no idea"``, then means no answer, too.
    decimal, thousands, sheet
        Marks like ``","``, where the numbers are ambiguous; the sheet of a workbook.
    names
        Call the workers of a Label Studio export by their e-mail addresses instead of their ids.
    objects, looked
        How to match boxes or points into objects, when images hold several of them; and a table
        of tasks and the workers who looked at them, even without marking anything. A tool's export
        in which somebody drew two is matched with the defaults.
    """
    options = locals().copy()
    return _read(options.pop("source"), cast("ReadingOptions", options))


def _read(source: object, options: ReadingOptions) -> Answers:
    if isinstance(source, Answers):
        if any(item not in (None, (), False) for item in options.values()):
            raise ConfigError(
                "these answers have been read already; name columns, gold and duplicates when "
                "reading the table"
            )
        return source
    spelling = spelling_of(options)
    if is_url(source):
        if options["query"] is None:
            raise ConfigError("a database needs a query: a SELECT, or the name of a table")
        source = read_query(str(source), options["query"], spelling)
    elif options["query"] is not None:
        raise ConfigError("query is for databases; a source like sqlite:///crowd.db is one")
    # Named columns mean a plain table.
    plain = options["worker"] is not None or options["values"] is not None
    format = options["format"]
    if format is None:
        format, source = detect(source, plain, spelling)
    if format == "long":
        return _read_long(open_table(source, spelling=spelling), options)
    if plain:
        raise ConfigError(
            f"worker and values are columns of a plain table; in {format} choose a question"
        )
    export = collect(source, format, options["task"], spelling, options["names"])
    export.looked |= _pairs(options["looked"], options)
    answers = export.answers(options["question"], options["objects"], options["duplicates"])
    if options["gold"] is None:
        return answers
    return replace(answers, gold=_gold_beside(answers.task_ids, answers.value_names, options))


def spelling_of(options: Mapping[str, Any]) -> Spelling:
    """Take from the options of reading how the table writes its numbers."""
    missing = options["missing"]
    listed = (missing,) if isinstance(missing, str | int | float) else tuple(missing)
    return Spelling(options["decimal"], options["thousands"], listed, options["sheet"])


# The number of the id in each row, and the ids by their numbers.
_Numbered = tuple[Codes, Ids]


def _read_long(table: Table, options: ReadingOptions) -> Answers:
    asked = [options["values"]] if isinstance(options["values"], str) else options["values"]
    if options["objects"] is not None:
        task = resolve_column(table, "task", options["task"])
        worker = resolve_column(table, "worker", options["worker"])
        marks = _read_marks(table, task, worker, asked, options)
        return marks.answers(None, options["objects"], None)
    gold = _gold_columns(table, options["gold"])
    task, worker, values = resolve_roles(table, options["task"], options["worker"], asked, gold)
    rows = _long_rows(table, task, worker, values)
    names = coordinate_names(values, rows.value)
    truths: Floats | None = None
    if gold:
        truths = _gold_of_rows(table, gold, rows)
    elif options["gold"] is not None:
        truths = _gold_beside(rows.task[1], names, options, task)
    runs = "run" in {name.lower() for name in table.columns} - {name.lower() for name in values}
    answers = Answers.from_codes(
        *rows.task,
        *rows.worker,
        rows.value,
        value_names=names,
        gold=truths,
        duplicates=options["duplicates"] or ("mean" if runs else None),
        rows=table.rows(rows.kept),
    )
    columns = {"task": task, "worker": worker, "value": ", ".join(values)}
    notes = [*table.notes, *rows.notes, *answers.notes]
    n = len(rows.kept)
    if runs and options["duplicates"] is None and answers.n_edges < n:
        notes.append(f"{n} runs are {answers.n_edges} answers: repeated runs are averaged")
    contents = _contents(table, {task, worker, *gold, *values}, rows)
    answers = replace(answers, columns=columns, contents=contents, notes=tuple(notes))
    return replace(answers, frame_kind=table.kind)


class _LongRows(NamedTuple):
    """Rows of a long table that hold an answer, by their positions, and the notes."""

    task: _Numbered
    worker: _Numbered
    value: Floats
    kept: Index
    notes: list[str]


def _long_rows(table: Table, task: str, worker: str, values: Sequence[str]) -> _LongRows:
    """Read ids and values; leave out rows without an answer if requested."""
    drops = table.spelling.drops
    where = "" if table.name == "the table" else f"{table.name}: "
    ids: list[_Numbered] = []
    notes: list[str] = []
    for role, column in (("task", task), ("worker", worker)):
        codes, distinct, trimmed = tidy_ids(*table.ids(column, missing_ok=drops))
        if not drops:
            refuse_missing(codes < 0, column, where, table.rows)
        if trimmed:
            notes.append(
                f"trimmed white space around {len(trimmed)} {role} id{'s' * (len(trimmed) > 1)}: "
                f"{shorten(trimmed)}"
            )
        ids.append((codes, distinct))
    value = matrix(table, values, missing_ok=drops)
    there = (ids[0][0] >= 0) & (ids[1][0] >= 0) & ~np.isnan(value).any(axis=1)
    if not drops or there.all():
        return _LongRows(ids[0], ids[1], value, np.arange(len(value)), notes)
    gone = np.flatnonzero(~there)
    many = "rows" if len(gone) > 1 else "row"
    notes.append(f"left out {len(gone)} {many} without an answer: row {shorten(table.rows(gone))}")
    if not there.any():
        raise DataError(f"{where}there are no answers; all {len(gone)} rows are without one")
    tasks, workers = (_used(codes[there], distinct) for codes, distinct in ids)
    return _LongRows(tasks, workers, value[there], np.flatnonzero(there), notes)


def _used(codes: Codes, ids: Ids) -> tuple[Codes, Ids]:
    """Keep the ids that occur."""
    there = np.bincount(codes, minlength=len(ids)) > 0
    return (np.cumsum(there) - 1)[codes].astype(np.int32), ids[there]


def _gold_beside(
    task_ids: Ids, names: tuple[str, ...], options: ReadingOptions, task: str | None = None
) -> Floats:
    """Read the known truths of another table or a mapping."""
    return read_truth(
        options["gold"],
        task_ids,
        names,
        "gold",
        task=options["task"] or task,
        spelling=spelling_of(options),
    )


def _contents(table: Table, taken: set[str], of: _LongRows) -> dict[Any, str]:
    """Find what the tasks show, in a column that is not needed otherwise."""
    column = find_column([name for name in table.columns if name not in taken], CONTENTS)
    if column is None:
        return {}
    (task, task_ids), texts = of.task, table.texts(column)
    found: dict[Any, str] = {}
    for identity, row in zip(task_ids[task].tolist(), of.kept.tolist(), strict=True):
        text = texts[row]
        if text is not None:
            found.setdefault(identity, text)
    return found


def _read_marks(
    table: Table, task: str, worker: str, asked: Sequence[str] | None, options: ReadingOptions
) -> Export:
    """Read the rows of a long table as boxes or points, several of a worker in an image."""
    columns = _shape_columns(table, asked)
    name = ", ".join(columns)
    boxes = _corners(table, columns)
    label = find_column(table.columns, ("label", "category", "class"))
    labels = [""] * len(boxes) if label is None else table.texts(label)
    found = Export(format="long", path=table.name, fields={"task": task, "worker": worker})
    if options["gold"] is not None:
        truths = beside(options["gold"], table.spelling)
        known = _corners(truths, _shape_columns(truths, columns))
        for image, at in zip(ids_of_rows(truths, "task", task), known, strict=True):
            found.add(name, at, Mark(image, None), gold=True)
    ids = ids_of_rows(table, "task", task), ids_of_rows(table, "worker", worker)
    for image, person, at, text in zip(*ids, boxes, labels, strict=True):
        found.add(name, at, Mark(image, person), text or "")
    found.looked = _pairs(options["looked"], options)
    found.notes = table.notes
    return found


def _shape_columns(table: Table, asked: Sequence[str] | None) -> list[str]:
    if asked is None:
        columns = find_vector(table.columns)
    else:
        columns = [resolve_column(table, "value", name) for name in asked]
    if len(columns) not in (2, 4):
        raise DataError(
            f"objects are boxes (4 columns) or points (2), got {shorten(columns, 5) or 'none'}; "
            "name them with values= (command line: --value)"
        )
    return columns


def _corners(table: Table, columns: Sequence[str]) -> list[tuple[float, ...]]:
    value = matrix(table, columns)
    if [name.lower() for name in columns[2:]] == ["width", "height"]:
        value[:, 2:] += value[:, :2]
    return [tuple(row) for row in value.tolist()]


def _pairs(looked: object, options: ReadingOptions) -> set[tuple[Any, Any]]:
    """Read a table of task and worker: who looked at what."""
    if looked is None:
        return set()
    table = open_table(looked)
    roles = {"task": options["task"], "worker": options["worker"]}
    return set(zip(*(ids_of_rows(table, role, name) for role, name in roles.items()), strict=True))


def long_columns(answers: Answers) -> dict[str, Any]:
    """Return answers as the columns of a long table: task, worker, values, gold where known."""
    names = [
        f"value_{name}" if name in ("task", "worker") else name for name in answers.value_names
    ]
    columns: dict[str, Any] = {
        "task": answers.task_ids[answers.task],
        "worker": answers.worker_ids[answers.worker],
    }
    columns |= dict(zip(names, answers.value.T, strict=True))
    if answers.gold is not None:
        of = ["gold"] if len(names) == 1 else [f"gold_{name}" for name in names]
        columns |= dict(zip(of, answers.gold[answers.task].T, strict=True))
    return columns


def _gold_columns(table: Table, gold: object) -> list[str]:
    """Return the columns of this table that hold gold; none when gold is a table of its own."""
    if isinstance(gold, str):
        if gold not in table.columns and not Path(gold).exists():
            raise DataError(
                f"gold {gold!r} is neither a column ({shorten(table.columns, 12)}) nor a file"
            )
        return [gold] if gold in table.columns else []
    listed = gold if isinstance(gold, Sequence) else ()
    return [resolve_column(table, "gold", name) for name in listed]


def _gold_of_rows(table: Table, columns: Sequence[str], of: _LongRows) -> Floats:
    """Reduce a gold column with one entry per answer to one truth per task."""
    task, task_ids = of.task
    rows = matrix(table, columns, missing_ok=True)[of.kept]
    gold = np.full((len(task_ids), rows.shape[1]), np.nan)
    known = ~np.isnan(rows).all(axis=1)
    gold[task[known]] = rows[known]
    differ = known & (rows != gold[task]).any(axis=1)
    if differ.any():
        raise DataError(
            f"gold of task {shorten(task_ids[np.unique(task[differ])])} differs between its rows"
        )
    return gold
