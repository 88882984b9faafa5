"""From a file, a frame or a database to ``Answers``, and from a table of truths to arrays."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from voxpop.arrays import Codes, Floats, Ids
from voxpop.data.answers import Answers, Duplicates
from voxpop.data.formats import is_url, open_source, read_export, read_query, table_format
from voxpop.data.formats.base import ReadingOptions
from voxpop.data.formats.marks import marks_of_table, pairs_of
from voxpop.data.ids import Positions
from voxpop.data.objects import Matching, Objects
from voxpop.data.tables import (
    Table,
    ids_of_rows,
    matrix,
    open_table,
    resolve_column,
    resolve_values,
)
from voxpop.errors import ConfigError, DataError, shorten


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
        a database, with ``query``.
    task
        Column of the task ids; in a tool's export, the field that names the tasks.
    worker
        Column of the worker ids.
    values
        One column, or several for points, boxes and other vectors.
    gold
        Known truths: a column (or one per coordinate) of the same table, empty where unknown;
        or another table or path with a task and the value columns; or a mapping from task to
        truth.
    duplicates
        What to do when a worker answered a task more than once: ``"error"`` (unless the table
        has a column ``run``, or the format has repetitions: then their mean), ``"mean"`` or
        ``"last"``.
    format
        One of ``voxpop.FORMATS``, if the wrong one is detected; ``"long"`` is a plain table.
    question
        Which question of an export that holds several.
    missing
        Numbers of a wide table that mean no answer, like -1.
    objects
        How to match boxes or points into objects, when images hold several of them. A tool's
        export in which somebody drew two is matched with the defaults.
    looked
        A table of task and worker: who looked at what, for those who marked nothing.
    query
        SELECT, or name of a table, for a database.
    """
    options = ReadingOptions(
        task=task,
        worker=worker,
        values=values,
        gold=gold,
        duplicates=duplicates,
        format=format,
        question=question,
        missing=missing,
        objects=objects,
        looked=looked,
        query=query,
    )
    if not isinstance(source, Answers):
        return read_with_objects(source, options)[0]
    if any(item is not None and item != () for item in options.values()):
        raise ConfigError(
            "these answers have been read already; name columns, gold and duplicates when "
            "reading the table"
        )
    return source


def read_with_objects(source: object, options: ReadingOptions) -> tuple[Answers, Objects | None]:
    """Read like :func:`read_answers`; also return the objects where marks were matched."""
    name, opened = _open(source, options)
    if name == "long":
        table = open_table(opened)
        if options["objects"] is not None:
            return marks_of_table(table, options).answers(options["objects"], None)
        return _read_long(table, options), None
    if options["worker"] is not None or options["values"] is not None:
        raise ConfigError(
            f"worker and values are columns of a plain table; in {name} choose a question"
        )
    export = read_export(opened, name, options)
    if options["looked"] is not None:
        export = replace(export, looked=export.looked | pairs_of(options["looked"]))
    answers, found = export.answers(options["objects"], options["duplicates"])
    if options["gold"] is not None:
        truths = read_truth(options["gold"], answers.task_ids, answers.value_names, needed="gold")
        answers = replace(answers, gold=truths)
    return answers, found


def _open(source: object, options: ReadingOptions) -> tuple[str, object]:
    """Detect the format, and open a table once, since that reads it."""
    # Named columns mean a plain table.
    plain = options["worker"] is not None or options["values"] is not None
    if is_url(source):
        if options["query"] is None:
            raise ConfigError("a database needs a query: a SELECT, or the name of a table")
        table = read_query(str(source), options["query"])
        return options["format"] or ("long" if plain else table_format(table)), table
    if options["query"] is not None:
        raise ConfigError("query is for databases; a source like sqlite:///crowd.db is one")
    return open_source(source, plain) if options["format"] is None else (options["format"], source)


def _read_long(table: Table, options: ReadingOptions) -> Answers:
    task = resolve_column(table, "task", options["task"])
    worker = resolve_column(table, "worker", options["worker"])
    gold = _gold_columns(table, options["gold"])
    taken = {task, worker, *gold}
    asked = [options["values"]] if isinstance(options["values"], str) else options["values"]
    values = resolve_values(table, asked, taken)
    for other in values:
        if other in taken:
            raise DataError(f"column {other!r} cannot be both the value and a task, worker or gold")
    task_codes, task_ids = table.ids(task)
    worker_codes, worker_ids = table.ids(worker)
    value = matrix(table, values)
    truths: Floats | None = None
    if gold:
        truths = _gold_of_rows(table, gold, task_codes, task_ids)
    elif options["gold"] is not None:
        truths = read_truth(options["gold"], task_ids, tuple(values), needed="gold")
    runs = "run" in {name.lower() for name in table.columns} - {name.lower() for name in values}
    answers = Answers.from_codes(
        task_codes,
        task_ids,
        worker_codes,
        worker_ids,
        value,
        value_names=tuple(values),
        gold=truths,
        duplicates=options["duplicates"] or ("mean" if runs else "error"),
        frame_kind=table.kind,
        columns={"task": task, "worker": worker, "value": ", ".join(values)},
    )
    if runs and options["duplicates"] is None and answers.n_edges < len(value):
        told = f"{len(value)} runs are {answers.n_edges} answers: repeated runs count as their mean"
        return replace(answers, notes=(told,))
    return answers


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
        columns = _truth_columns(table, value_names, column)
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


def _truth_columns(table: Table, value_names: tuple[str, ...], task: str) -> list[str]:
    """Find the truth by the answers' own names, as ``truth`` or ``gold``, or like an answer."""
    if set(value_names) <= set(table.columns):
        return list(value_names)
    by_lower = {name.lower(): name for name in reversed(table.columns)}
    for name in ("truth", "gold"):
        if name in by_lower and len(value_names) == 1:
            return [by_lower[name]]
    return resolve_values(table, None, {task})


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
        if gold in table.columns:
            return [gold]
        if not Path(gold).exists():
            raise DataError(
                f"gold {gold!r} is neither a column ({shorten(table.columns, 12)}) nor a file"
            )
        return []
    if isinstance(gold, Sequence) and not isinstance(gold, os.PathLike):
        return [resolve_column(table, "gold", name) for name in gold]
    return []


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
