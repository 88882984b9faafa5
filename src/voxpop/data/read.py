"""From a file, a frame or a database to ``Answers``, and from a table of truths to arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, cast

import numpy as np

from voxpop.arrays import Codes, Floats, Ids
from voxpop.data.answers import Answers, Duplicates
from voxpop.data.formats import collect, detect
from voxpop.data.formats.base import Export, Mark
from voxpop.data.formats.sql import is_url, read_query
from voxpop.data.ids import Positions
from voxpop.data.objects import Matching
from voxpop.data.tables import (
    Table,
    find_column,
    find_vector,
    ids_of_rows,
    matrix,
    open_table,
    resolve_column,
    resolve_values,
)
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
    missing: Sequence[float]
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
    missing: Sequence[float] = (),
    objects: Matching | None = None,
    looked: object = None,
    query: str | None = None,
) -> Answers:
    """Read answers from a table, a tool's export, a data frame or a database.

    The format is detected from what the file holds, and columns that are not named are guessed
    from the names that tools give them; ``answers.notes``, ``answers.columns`` and its ``repr``
    tell what was taken for what.

    Parameters
    ----------
    source
        Path to CSV, TSV, Parquet or JSON lines (also gzipped), or to the export of a tool; a
        folder or list of CVAT jobs or COCO files; a pandas, polars or pyarrow table; or the URL of
        a database, with ``query``: a SELECT, or the name of a table.
    task, worker
        Columns of the ids; in a tool's export, ``task`` is the field that names the tasks.
    values
        One column, or several for points, boxes and other vectors.
    gold
        Known truths: a column (or one per coordinate) of the same table, empty where unknown; or
        another table or path with a task and the value columns; or a mapping from task to truth.
    duplicates
        What to do when a worker answered a task more than once: ``"error"``, ``"mean"`` or
        ``"last"``. By default an error, but the mean where the table has a column ``run`` or the
        format has repetitions.
    format
        One of ``voxpop.FORMATS``, if the wrong one is detected; ``"long"`` is a plain table.
    question
        Which question of an export that holds several.
    missing
        Numbers of a wide table that mean no answer, like -1.
    objects, looked
        How to match boxes or points into objects, when images hold several of them; and a table
        of task and worker, who looked at what, for those who marked nothing. A tool's export in
        which somebody drew two is matched with the defaults.
    """
    options = locals().copy()
    return _read(options.pop("source"), cast("ReadingOptions", options))


def _read(source: object, options: ReadingOptions) -> Answers:
    if isinstance(source, Answers):
        if any(item is not None and item != () for item in options.values()):
            raise ConfigError(
                "these answers have been read already; name columns, gold and duplicates when "
                "reading the table"
            )
        return source
    if is_url(source):
        if options["query"] is None:
            raise ConfigError("a database needs a query: a SELECT, or the name of a table")
        source = read_query(str(source), options["query"])
    elif options["query"] is not None:
        raise ConfigError("query is for databases; a source like sqlite:///crowd.db is one")
    # Named columns mean a plain table.
    plain = options["worker"] is not None or options["values"] is not None
    format = options["format"]
    if format is None:
        format, source = detect(source, plain)
    if format == "long":
        return _read_long(open_table(source), options)
    if plain:
        raise ConfigError(
            f"worker and values are columns of a plain table; in {format} choose a question"
        )
    export = collect(source, format, options["task"], options["missing"])
    export.looked |= _pairs(options["looked"])
    answers = export.answers(options["question"], options["objects"], options["duplicates"])
    if options["gold"] is None:
        return answers
    truths = read_truth(options["gold"], answers.task_ids, answers.value_names, needed="gold")
    return replace(answers, gold=truths)


def _read_long(table: Table, options: ReadingOptions) -> Answers:
    task = resolve_column(table, "task", options["task"])
    worker = resolve_column(table, "worker", options["worker"])
    asked = [options["values"]] if isinstance(options["values"], str) else options["values"]
    if options["objects"] is not None:
        marks = _read_marks(table, task, worker, asked, options)
        return marks.answers(None, options["objects"], None)
    gold = _gold_columns(table, options["gold"])
    taken = {task, worker, *gold}
    values = resolve_values(table, asked, taken)
    for other in values:
        if other in taken:
            raise DataError(f"column {other!r} cannot be both the value and a task, worker or gold")
    tasks, workers, value = table.ids(task), table.ids(worker), matrix(table, values)
    truths: Floats | None = None
    if gold:
        truths = _gold_of_rows(table, gold, *tasks)
    elif options["gold"] is not None:
        truths = read_truth(options["gold"], tasks[1], tuple(values), needed="gold")
    runs = "run" in {name.lower() for name in table.columns} - {name.lower() for name in values}
    duplicates = options["duplicates"] or ("mean" if runs else "error")
    answers = Answers.from_codes(
        *tasks, *workers, value, value_names=tuple(values), gold=truths, duplicates=duplicates
    )
    columns = {"task": task, "worker": worker, "value": ", ".join(values)}
    answers = replace(answers, frame_kind=table.kind, columns=columns)
    if runs and options["duplicates"] is None and answers.n_edges < len(value):
        told = f"{len(value)} runs are {answers.n_edges} answers: repeated runs count as their mean"
        return replace(answers, notes=(told,))
    return answers


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
        truths = open_table(options["gold"])
        known = _corners(truths, _shape_columns(truths, columns))
        for image, at in zip(ids_of_rows(truths, "task"), known, strict=True):
            found.add(name, at, Mark(image, None), gold=True)
    ids = ids_of_rows(table, "task", task), ids_of_rows(table, "worker", worker)
    for image, person, at, text in zip(*ids, boxes, labels, strict=True):
        found.add(name, at, Mark(image, person), text or "")
    found.looked = _pairs(options["looked"])
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


def _pairs(looked: object) -> set[tuple[Any, Any]]:
    """Read a table of task and worker: who looked at what."""
    if looked is None:
        return set()
    table = open_table(looked)
    return set(zip(ids_of_rows(table, "task"), ids_of_rows(table, "worker"), strict=True))


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


def read_truth(
    source: object,
    task_ids: Ids,
    value_names: tuple[str, ...],
    needed: str = "truth",
) -> Floats:
    """Read one vector per task and align it with ``task_ids``; NaN where there is none.

    ``source`` is a mapping, a path, or a data frame with a task column and the value columns of
    the answers (or, for numbers, a column named like one).
    """
    if isinstance(source, Mapping):
        if not source:
            raise DataError(f"{needed}: is empty")
        ids, rows = [*source], [np.atleast_1d(item) for item in source.values()]
        try:
            value = np.array(rows, dtype=np.float64).reshape(len(rows), -1)
        except (TypeError, ValueError):
            raise DataError(f"{needed}: expected numbers, got {shorten(source.values())}") from None
    else:
        table = open_table(source)
        column = resolve_column(table, "task", None)
        columns = truth_columns(table, value_names, column)
        codes, distinct = table.ids(column)
        if len(distinct) < len(codes):
            twice = distinct[np.bincount(codes) > 1]
            raise DataError(f"{needed}: task {shorten(twice)} occurs more than once")
        # A truth may be missing for some tasks.
        ids, value = list(distinct), matrix(table, columns, missing_ok=True)
    if value.shape[1] != len(value_names):
        raise DataError(
            f"{needed}: expected {len(value_names)} coordinates ({', '.join(value_names)}), "
            f"got {value.shape[1]}"
        )
    aligned, n_found = _align(ids, value, task_ids)
    if n_found == 0:
        raise DataError(
            f"{needed}: none of its tasks ({shorten(ids)}) is among the answers' tasks "
            f"({shorten(task_ids)})"
        )
    return aligned


def read_variances(source: object, worker_ids: Ids) -> Floats:
    """Read one positive variance for every worker, from a mapping or a table, in order of ids."""
    if isinstance(source, Mapping):
        ids, number = [*source], [*source.values()]
    else:
        table = open_table(source)
        column = resolve_column(table, "variance", "variance")
        ids, number = ids_of_rows(table, "worker"), table.numbers(column).tolist()
    variance, _ = _align(ids, np.array(number, dtype=np.float64), worker_ids)
    if np.isnan(variance).any():
        missing = worker_ids[np.isnan(variance)]
        raise DataError(f"variances: there is none for worker {shorten(missing)}")
    if not (np.isfinite(variance).all() and (variance > 0).all()):
        raise DataError("variances: expected positive finite numbers")
    return variance


def read_by_worker(source: object, column: str) -> dict[str, str]:
    """Read one text per worker from a table with that column."""
    table = open_table(source)
    workers = table.texts(resolve_column(table, "worker", None))
    texts = table.texts(resolve_column(table, column, column))
    return {str(w): t or "" for w, t in zip(workers, texts, strict=True) if w is not None}


def truth_columns(table: Table, value_names: tuple[str, ...], task: str) -> list[str]:
    """Find the truth by the answers' own names, as ``truth`` or ``gold``, or like an answer."""
    if set(value_names) <= set(table.columns):
        return list(value_names)
    named = find_column(table.columns, ("truth", "gold")) if len(value_names) == 1 else None
    return resolve_values(table, None, {task}) if named is None else [named]


def _align(ids: Sequence[Any], value: Floats, known: Ids) -> tuple[Floats, int]:
    """Put values in the order of the known ids, NaN where there is none; count those found."""
    positions = Positions(known)
    places = [(positions.get(identity), row) for row, identity in enumerate(ids)]
    found = [(place, row) for place, row in places if place is not None]
    aligned = np.full((len(known), *value.shape[1:]), np.nan)
    for place, row in found:
        aligned[place] = value[row]
    return aligned, len(found)


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


def _gold_of_rows(table: Table, columns: Sequence[str], task: Codes, task_ids: Ids) -> Floats:
    """Reduce a gold column with one entry per answer to one truth per task."""
    rows = matrix(table, columns, missing_ok=True)
    gold = np.full((len(task_ids), len(columns)), np.nan)
    known = ~np.isnan(rows).all(axis=1)
    gold[task[known]] = rows[known]
    differ = known & (rows != gold[task]).any(axis=1)
    if differ.any():
        raise DataError(
            f"gold of task {shorten(task_ids[np.unique(task[differ])])} differs between its rows"
        )
    return gold
