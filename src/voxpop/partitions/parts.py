"""Parts: answers cut by task, each part in a few arrays on disk, and the facts about all parts."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats, Ids, Index
from voxpop.data.answers import Answers
from voxpop.data.tables import open_table
from voxpop.inference.schedule import Whole
from voxpop.partitions.store import Store

FACTS, WORKERS = "parts/facts.json", "parts/workers.parquet"
# Kinds of ids that are kept as they are, which spares opening a database for each part.
PLAIN_IDS = ("BIGINT", "VARCHAR")
_DEGREES = "parts/worker_degree.npy"


def part_name(part: int, what: str) -> str:
    """Name the file of a part that holds its ``worker``, ``value``, ``first``, ``gold`` or ids."""
    return f"parts/{part:05d}.{what}"


@dataclass(frozen=True, kw_only=True)
class Parts:
    """All answers of a run, in ``n_parts`` parts that hold all answers of a task each.

    Workers are numbered in the order of their ids, tasks within a part likewise. ``where`` is the
    folder of the run.
    """

    where: str
    n_parts: int
    n_answers: int
    n_tasks: int
    value_names: tuple[str, ...]
    columns: dict[str, str]
    whole: Whole
    id_kinds: dict[str, str] = field(default_factory=dict)
    rounding: float | None = None
    """Variance of the rounding of answers; None where it was not asked for."""

    def save(self) -> None:
        """Write the facts: with them, the parts are complete."""
        self.store.write(FACTS, (json.dumps(asdict(self), indent=2) + "\n").encode())

    @classmethod
    def load(cls, where: str) -> Parts | None:
        """Read what :meth:`save` wrote; None if it did not."""
        found = Store(where).read(FACTS)
        if found is None:
            return None
        facts = json.loads(found)
        whole = facts.pop("whole")
        whole["open_degrees"] = tuple(whole["open_degrees"])
        facts["value_names"] = tuple(facts["value_names"])
        return cls(**facts | {"whole": Whole(**whole), "where": where})

    @property
    def store(self) -> Store:
        """The folder of the run."""
        return Store(self.where)

    @property
    def dimension(self) -> int:
        """Number of coordinates of an answer."""
        return len(self.value_names)

    @property
    def n_workers(self) -> int:
        """Number of workers."""
        return self.whole.n_workers

    @cached_property
    def worker_degree(self) -> Index:
        """Number of answers of each worker."""
        return self.store.read_array(_DEGREES)

    def save_degrees(self, degree: Index) -> None:
        """Write the number of answers of each worker."""
        self.store.write_array(_DEGREES, degree)

    def worker_ids(self, scratch: Path) -> Ids:
        """Ids of the workers."""
        table = open_table(self.store.fetch(WORKERS, scratch))
        return table.ids("id")[1]

    def task_ids(self, part: int, scratch: Path) -> Ids:
        """Ids of the tasks of a part."""
        if self.id_kinds.get("task") in PLAIN_IDS:
            found: Ids = self.store.kept(part_name(part, "ids"))
            return found
        table = open_table(self.store.fetch(part_name(part, "tasks.parquet"), scratch))
        return table.ids("id")[1]

    def answers(
        self, part: int, scratch: Path, on_scale: bool = False, hidden: int | None = None
    ) -> Answers:
        """The answers of a part; its tasks and all workers have their numbers for ids.

        They are as given or, once they have been put there, ``on_scale``, and without the known
        truths of a fold that is ``hidden``.
        """

        def array(what: str, mapped: bool = True) -> NDArray[Any]:
            path = self.store.fetch(part_name(part, f"{what}.npy"), scratch)
            return np.asarray(np.load(path, mmap_mode="r" if mapped else None))

        first = array("first", mapped=False)
        there = "on-scale." if on_scale else ""
        gold: Floats | None = array(f"{there}gold") if self.whole.has_gold else None
        if gold is not None and hidden is not None:
            gold = np.where(array("fold")[:, None] == hidden, np.nan, gold)
        tasks = np.arange(len(first) - 1, dtype=np.int32)
        return Answers(
            task_ids=np.arange(len(first) - 1),
            worker_ids=np.arange(self.n_workers),
            task=np.repeat(tasks, np.diff(first)),
            worker=array("worker"),
            value=array(f"{there}value"),
            value_names=self.value_names,
            gold=gold,
            columns=self.columns,
        )
