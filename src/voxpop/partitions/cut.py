"""Cut: from files of any size to parts, by DuckDB, in bounded memory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

import numpy as np

from voxpop.arrays import Floats, Index
from voxpop.data.columns import resolve_column, resolve_roles, tidy_ids
from voxpop.data.duck import in_quotes, open_memory
from voxpop.data.library_errors import reason
from voxpop.data.many_files import FileStream
from voxpop.data.tables import FrameTable, open_table
from voxpop.data.truths import truth_columns
from voxpop.errors import DataError, shorten
from voxpop.inference.schedule import Whole
from voxpop.partitions.parts import PLAIN_IDS, WORKERS, Parts, part_name
from voxpop.partitions.store import Store
from voxpop.words import counted

if TYPE_CHECKING:
    import duckdb

# Bytes that an answer takes while its part is worked on: its values, its messages and copies.
_BYTES_PER_ANSWER = 400
# Parts are small enough that this many of them would fit at once.
_MARGIN = 4
# DuckDB needs some memory whatever the data, and gets this share of what there is.
_LEAST_MEMORY, _SHARE = 192 << 20, 0.5
# Squared differences of larger values would overflow float64, as for `Answers`.
_LARGEST_VALUE = 1e100


@dataclass(frozen=True, kw_only=True)
class Source:
    """What to read, and how: the options of :func:`voxpop.read_answers` for tables."""

    path: str
    task: str | None = None
    worker: str | None = None
    values: tuple[str, ...] | None = None
    gold: str | tuple[str, ...] | None = None


def cut(
    source: Source, where: str, memory: int, n_parts: int | None = None, rounding: bool = False
) -> Parts:
    """Cut answers by task into parts under the folder ``where``, in about ``memory`` bytes.

    ``rounding`` also finds the variance of the answers' rounding.
    """
    if "://" in where:
        scratch = Path(mkdtemp(prefix="voxpop-cut-"))
    else:
        scratch = Path(where) / "cut"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
    try:
        with _connect(source.path, scratch, memory) as connection:
            table = FileStream(source.path, connection)
            return _Cutting(source, table, connection, where, scratch).run(
                memory, n_parts, rounding
            )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _connect(path: str, scratch: Path, memory: int) -> Iterator[duckdb.DuckDBPyConnection]:
    """Connect to DuckDB with a memory limit; report errors in one line."""
    import duckdb

    limit = max(int(memory * _SHARE), _LEAST_MEMORY)
    with open_memory() as connection:
        connection.execute(f"SET memory_limit = '{limit >> 20}MB'")
        connection.execute(f"SET temp_directory = '{str(scratch / 'spill').replace(chr(39), '')}'")
        connection.execute("SET preserve_insertion_order = false")
        try:
            yield connection
        except (duckdb.IOException, duckdb.OutOfMemoryException) as error:
            why = str(error).strip().splitlines()[0]
            raise DataError(
                f"answers could not be cut into parts: {why}; free space in {scratch.parent}, or "
                "give more --memory"
            ) from None
        except duckdb.Error as error:
            raise DataError(f"{path}: cannot be read: {reason(error)}") from None


class _Cutting:
    """One cutting: columns found, rows spread over parts, workers numbered, parts written."""

    def __init__(
        self,
        source: Source,
        table: FileStream,
        connection: duckdb.DuckDBPyConnection,
        where: str,
        scratch: Path,
    ) -> None:
        self._source, self._table, self._run = source, table, connection.execute
        self._connection = connection
        self._where, self._store, self._scratch = where, Store(where), scratch
        gold = [source.gold] if isinstance(source.gold, str) else list(source.gold or ())
        self._gold = [name for name in gold if name in table.columns]
        self._gold_file = gold[0] if gold and not self._gold else None
        beginning = FrameTable(table.beginning())
        beginning.name = source.path
        self._task, self._worker, self._values = resolve_roles(
            beginning, source.task, source.worker, source.values, self._gold
        )
        table.refuse_types((self._task, self._worker), (*self._values, *self._gold))

    def run(self, memory: int, n_parts: int | None, rounding: bool) -> Parts:
        """Write all parts."""
        n = self._number("SELECT count(*) FROM raw")
        if n_parts is None:
            n_parts = max(1, -(-n * _BYTES_PER_ANSWER * _MARGIN // memory))
        self._spread(n_parts)
        self._check()
        self._kind = {role: self._id_kind(role) for role in ("task", "worker")}
        degree = self._number_workers()
        steps = self._rounding(n) if rounding else None
        self._take_gold_file()
        folders = sorted((self._scratch / "rows").glob("part=*"))
        found = [self._write(part, rows) for part, rows in enumerate(folders)]
        if self._has_gold and not any(n_gold for _, _, n_gold in found):
            raise DataError(f"gold: none of its tasks is among the answers' tasks ({self._task})")
        columns = {"task": self._task, "worker": self._worker, "value": ", ".join(self._values)}
        whole = Whole(
            n_workers=len(degree),
            dimension=len(self._values),
            per_worker=float(np.median(degree)),
            most_answers=int(degree.max()),
            open_degrees=tuple(sorted({size for _, sizes, _ in found for size in sizes})),
            has_gold=self._has_gold,
        )
        parts = Parts(
            where=self._where,
            n_parts=len(found),
            n_answers=n,
            n_tasks=sum(n_tasks for n_tasks, _, _ in found),
            value_names=tuple(self._values),
            columns=columns,
            whole=whole,
            id_kinds=self._kind,
            rounding=steps,
        )
        parts.save_degrees(degree)
        parts.save()
        return parts

    def _spread(self, n_parts: int) -> None:
        """Write rows to one folder per part: the only time that the files are read."""
        spelled = self._table.spelled
        numbers = [f"TRY_CAST({spelled(name)} AS DOUBLE) AS v{j}"
                   for j, name in enumerate(self._values)]  # fmt: skip
        numbers += [f"TRY_CAST({spelled(name)} AS DOUBLE) AS g{j}"
                    for j, name in enumerate(self._gold)]  # fmt: skip
        task, worker = (self._table.spelled_id(name) for name in (self._task, self._worker))
        rows = self._scratch / "rows"
        self._run(
            f"COPY (SELECT {task} AS task, {worker} AS worker, {', '.join(numbers)}, "
            f"hash({task}) % {n_parts} AS part FROM raw) TO {in_quotes(rows)} "
            "(FORMAT parquet, PARTITION_BY (part), OVERWRITE_OR_IGNORE)"
        )
        self._run(
            f"CREATE VIEW spread AS SELECT * FROM read_parquet({in_quotes(rows / '*/*.parquet')}, "
            "hive_partitioning = true)"
        )

    def _check(self) -> None:
        """Refuse rows without an id or a number, as `read_answers` does."""
        columns = [("task", self._task), ("worker", self._worker)]
        columns += [(f"v{j}", name) for j, name in enumerate(self._values)]
        for role, name in columns:
            absent = self._number(f"SELECT count(*) FROM spread WHERE {role} IS NULL")
            is_empty = f"{self._table.spelled_id(name)} IS NULL"
            empty = self._number(f"SELECT count(*) FROM raw WHERE {is_empty}") if absent else 0
            if empty:
                raise DataError(
                    f"{self._source.path}: column {name!r} is empty in {counted(empty, 'row')}"
                    f"{self._table.without(name)}; drop those rows or fill them in"
                )
        for j, name in enumerate(self._values):
            bad = f"v{j} IS NULL OR NOT isfinite(v{j}) OR abs(v{j}) > {_LARGEST_VALUE}"
            count = self._number(f"SELECT count(*) FROM spread WHERE {bad}")
            if count:
                written = self._table.spelled(name)
                shown = self._run(
                    f"SELECT {written}::VARCHAR FROM raw WHERE coalesce(NOT isfinite(TRY_CAST("
                    f"{written} AS DOUBLE)) OR abs(TRY_CAST({written} AS DOUBLE)) > "
                    f"{_LARGEST_VALUE}, true) LIMIT 1"
                ).fetchone()
                raise DataError(
                    f"{self._source.path}: {counted(count, 'row')} of column {name!r} with no "
                    f"finite number of at most {_LARGEST_VALUE:g}, such as {shown and shown[0]!r}; "
                    "drop or correct them"
                )

    def _id_kind(self, role: str) -> str:
        """Treat ids as integers where a text file has only integers, as `read_answers` does."""
        kind = str(self._run(f"SELECT typeof({role}) FROM spread LIMIT 1").fetchall()[0][0])
        name = self._task if role == "task" else self._worker
        if kind == "VARCHAR" and self._table.may_be_integers(name):
            odd = f"TRY_CAST({role} AS BIGINT)::VARCHAR IS DISTINCT FROM {role}"
            if not self._number(f"SELECT count(*) FROM spread WHERE {odd}"):
                return "BIGINT"
        return kind

    def _number_workers(self) -> Index:
        """Number the workers in the order of their ids, and count their answers."""
        kind = self._kind["worker"]
        self._run(
            f"CREATE TEMP TABLE workers AS SELECT id, n, (row_number() OVER (ORDER BY id) - 1)"
            f"::INTEGER AS code FROM (SELECT worker::{kind} AS id, count(*) AS n FROM spread "
            "GROUP BY 1)"
        )
        self._copy("SELECT id, n FROM workers ORDER BY code", WORKERS)
        (degree,) = self._fetch("SELECT n FROM workers ORDER BY code")
        return np.asarray(degree, dtype=np.int64)

    def _take_gold_file(self) -> None:
        """Take known truths from a separate file by the text of their ids."""
        self._has_gold = bool(self._gold)
        if self._gold_file is None:
            return
        table = open_table(self._gold_file)
        task = resolve_column(table, "task", None)
        codes, ids, _ = tidy_ids(*table.ids(task))
        columns = truth_columns(table, tuple(self._values), task)
        truths: dict[str, Any] = {"gold_id": np.array([str(i) for i in ids[codes]], dtype=object)}
        truths |= {f"g{j}": table.numbers(name, True) for j, name in enumerate(columns)}
        if len(ids) < len(codes):
            twice = ids[np.bincount(codes) > 1]
            raise DataError(f"gold: task {shorten(twice)} occurs more than once")
        self._connection.register("truth_columns", truths)
        self._run("CREATE TEMP TABLE truths AS SELECT * FROM truth_columns")
        self._has_gold = True

    def _write(self, part: int, rows: Path) -> tuple[int, set[int], int]:
        """Write the arrays of a part; return its number of tasks, open degrees, and gold tasks."""
        d, of = len(self._values), self._kind
        values = ", ".join(f"v{j}" for j in range(d))
        gold = "".join(f", g{j}" for j in range(d)) if self._has_gold else ""
        joined = f"LEFT JOIN truths ON task::{of['task']}::VARCHAR = gold_id"
        self._run(
            f"CREATE OR REPLACE TEMP TABLE part AS SELECT task::{of['task']} AS id, code, "
            f"{values}{gold} FROM read_parquet({in_quotes(rows / '*.parquet')}) JOIN workers ON "
            f"worker::{of['worker']} = workers.id {joined if self._gold_file else ''}"
        )
        columns = self._fetch(
            f"SELECT dense_rank() OVER (ORDER BY id) - 1 AS task, code, {values}{gold} FROM part "
            "ORDER BY task, code"
        )
        shutil.rmtree(rows)
        task, worker = columns[0], columns[1].astype(np.int32)
        repeated = (np.diff(task) == 0) & (np.diff(worker) == 0)
        if repeated.any():
            self._refuse_repeats()
        first = np.flatnonzero(np.diff(task, prepend=-1))
        known = np.zeros(len(first), dtype=bool)
        if self._has_gold:
            truths = self._truths(np.stack(columns[2 + d :], axis=1), first, task)
            known = ~np.isnan(truths[:, 0])
            self._store.write_array(part_name(part, "gold.npy"), truths)
        value = np.stack(columns[2 : 2 + d], axis=1)
        arrays = {"worker": worker, "value": value, "first": np.append(first, len(task))}
        for name, array in arrays.items():
            self._store.write_array(part_name(part, f"{name}.npy"), array)
        self._write_ids(part)
        degree = np.diff(arrays["first"])
        return len(first), set(np.unique(degree[~known]).tolist()), int(known.sum())

    def _write_ids(self, part: int) -> None:
        """Write the ids of the tasks of a part, for :meth:`Parts.task_ids`."""
        query = "SELECT DISTINCT id FROM part ORDER BY id"
        if self._kind["task"] in PLAIN_IDS:
            self._store.keep(part_name(part, "ids"), self._fetch(query)[0])
        else:
            self._copy(query, part_name(part, "tasks.parquet"))

    def _truths(self, rows: Floats, first: Index, task: Index) -> Floats:
        """Reduce known truths of the rows to one for each task, NaN where there is none."""
        known = ~np.isnan(rows).all(axis=1)
        truths = np.full((len(first), rows.shape[1]), np.nan)
        truths[task[known]] = rows[known]
        partly = np.isnan(truths).any(axis=1) & ~np.isnan(truths).all(axis=1)
        if (rows[known] != truths[task[known]]).any() or partly.any() or np.isinf(truths).any():
            raise DataError(
                "gold of a task differs between its rows, or does not give every coordinate as a "
                "finite number; give one truth for each task"
            )
        return truths

    def _refuse_repeats(self) -> None:
        task, worker, n = self._run(
            "SELECT part.id, workers.id, count(*) FROM part JOIN workers USING (code) "
            "GROUP BY ALL HAVING count(*) > 1 LIMIT 1"
        ).fetchall()[0]
        raise DataError(
            f"worker {shorten([worker])} answered task {shorten([task])} {n} times; combine "
            "repeated answers first, or use --engine local with --duplicates mean or last"
        )

    def _rounding(self, n: int) -> float:
        """Do as ``rounding_variance`` does, in DuckDB."""
        steps = []
        for j in range(len(self._values)):
            self._run(
                f"CREATE OR REPLACE TEMP TABLE counts AS SELECT v{j} AS v, count(*) AS n "
                "FROM spread GROUP BY 1"
            )
            if 2 * self._number("SELECT count(*) FROM counts") > n:
                return 0.0
            self._run(
                "CREATE OR REPLACE TEMP TABLE gaps AS SELECT gap FROM (SELECT v - lag(v) OVER "
                "(ORDER BY v) AS gap FROM counts WHERE n >= 0.5 * (SELECT avg(n) FROM counts)) "
                "WHERE gap IS NOT NULL"
            )
            n_gaps = self._number("SELECT count(*) FROM gaps")
            if n_gaps:
                middle = f"LIMIT {2 - n_gaps % 2} OFFSET {(n_gaps - 1) // 2}"
                (gaps,) = self._fetch(f"SELECT gap FROM gaps ORDER BY gap {middle}")
                steps.append(float(gaps.mean()))
        return min(steps) ** 2 / 12.0 if steps else 0.0

    def _copy(self, query: str, name: str) -> None:
        local = self._scratch / "table.parquet"
        self._run(f"COPY ({query}) TO {in_quotes(local)} (FORMAT parquet)")
        self._store.put(local, name)

    def _number(self, query: str) -> int:
        return int(self._run(query).fetchall()[0][0])

    def _fetch(self, query: str) -> list[Any]:
        found = self._run(query).fetchnumpy()
        return [_filled(column) for column in found.values()]


def _filled(column: Any) -> Any:
    """Replace missing values by NaN."""
    return column.filled(np.nan) if isinstance(column, np.ma.MaskedArray) else column
