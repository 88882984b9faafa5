"""Steps: calls that every part answers, logged, and the state of a part, which follows from them.

A call that changes messages is replayed wherever the state of a part is missing or behind: the
state is a pure function of the part's file and the log, and is never sent anywhere. Steps of a
driver that was killed are found in the log by the one that takes over.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import WorkerSums
from voxpop.data.answers import Answers
from voxpop.inference.message_passing import MessagePassing
from voxpop.inference.moment_matching import MomentMatching
from voxpop.partitions.parts import Parts
from voxpop.partitions.store import Store

Totals = dict[str, NDArray[Any]]
"""What parts answer: whole numbers are summed over the parts, of others the largest is taken."""
Laid = MessagePassing | MomentMatching
"""Messages of a part."""
Kind = Literal["opens", "reopens", "changes", "reads", "answers"]
"""What a call does: it opens new messages, reopens them in another layout, changes them, reads
them, or needs answers alone."""


class Call(NamedTuple):
    """A call to every part: a function of the part, and one that lays out its flat messages.

    The first is absent if the call only opens messages, the second if it leaves the layout.
    """

    kind: Kind
    run: Any = None
    open: Any = None


@dataclass(frozen=True)
class Log:
    """Calls and totals by step, in a folder that all processes reach.

    ``token`` is the log's own, so that no process confuses it with another log.
    """

    where: str
    token: str

    @classmethod
    def begin(cls, where: str) -> Log:
        """Begin a log, or continue the existing one."""
        store = Store(where)
        if not store.exists("token"):
            store.write("token", uuid4().hex.encode())
        return cls(where, (store.read("token") or b"").decode())

    def write(self, at: int, what: str, content: object) -> None:
        """Write the ``call`` or the ``totals`` of a step."""
        Store(self.where).keep(f"{at:05d}.{what}", content)

    def has(self, at: int, what: str) -> bool:
        """Return whether the call or the totals of a step are there."""
        return Store(self.where).exists(f"{at:05d}.{what}")

    def call(self, at: int) -> Call:
        """Return the call of a step."""
        found: Call = _logged(self, at, "call")
        return found

    def totals(self, at: int) -> Totals:
        """Return what all parts answered in a step."""
        found: Totals = _logged(self, at, "totals")
        return found

    def history(self, at: int) -> list[int]:
        """Steps since its opening that lead to the state of a part at step ``at``."""
        found: list[int] = []
        for step in range(at, -1, -1):
            kind = _kind(self, step)
            if kind in ("opens", "reopens", "changes"):
                found.append(step)
            if kind == "opens":
                break
        return found[::-1]


@lru_cache(maxsize=3)
def _logged(log: Log, at: int, what: str) -> Any:
    return Store(log.where).kept(f"{at:05d}.{what}")


@lru_cache(maxsize=4096)
def _kind(log: Log, at: int) -> str:
    return _KINDS.pop((log, at), None) or log.call(at).kind


_KINDS: dict[tuple[Log, int], str] = {}
"""Kinds of calls that were at hand, and need not be read from the log."""


@dataclass(frozen=True)
class Job:
    """A run: its parts and its log, and which answers a fit sees (:meth:`Parts.answers`)."""

    parts: Parts
    log: Log
    on_scale: bool = False
    hidden: int | None = None


def merge(found: Iterable[Totals]) -> Totals:
    """Sum whole numbers, and take the largest of others."""
    merged: Totals = {}
    for totals in found:
        # Those of another process may be read-only.
        merge_into(merged, totals if merged else {name: a.copy() for name, a in totals.items()})
    return merged


def merge_into(merged: Totals, totals: Totals) -> None:
    """Merge what one more part answers, unless it was added to the sums already."""
    for name, array in totals.items():
        if name not in merged:
            merged[name] = array
        elif merged[name] is array:
            continue
        elif array.dtype.kind in "iu":
            merged[name] += array
        else:
            np.maximum(merged[name], array, out=merged[name])


def joined(
    found: Mapping[str, NDArray[Any]], n_parts: int, *names: str
) -> tuple[NDArray[Any], ...]:
    """Join the arrays that the parts returned by :meth:`Part.own`, in the order of parts."""
    parts = range(n_parts)
    return tuple(np.concatenate([found[f"{name}-{part}"] for part in parts]) for name in names)


class Room:
    """Memory for the messages of one part after another.

    Fresh memory for each part, or files mapped into it, would cost more than reading and writing.
    """

    def __init__(self) -> None:
        self._memory = np.empty(0, dtype=np.uint8)
        self._used = 0

    def take_in(self, messages: Laid) -> None:
        """Let messages be kept here, with whatever is here now as their content."""
        arrays = [(owner, name, getattr(owner, name)) for owner, name in messages.state()]
        self._used = sum(array.nbytes for _, _, array in arrays)
        if len(self._memory) < self._used:
            self._memory = np.empty(self._used, dtype=np.uint8)
        start = 0
        for owner, name, array in arrays:
            here = self._memory[start : start + array.nbytes]
            setattr(owner, name, here.view(array.dtype).reshape(array.shape))
            start += array.nbytes

    @property
    def content(self) -> NDArray[np.uint8]:
        """All that is kept here now."""
        return self._memory[: self._used]


class Part:
    """One part of a job in one process: its answers, and its messages in files of ``scratch``.

    While they are worked on, messages are in ``room``. They are added to ``sums`` (m, K), if there
    are some of other parts.
    """

    def __init__(
        self, job: Job, number: int, scratch: Path, room: Room, sums: WorkerSums | None = None
    ) -> None:
        self.job, self.number, self.scratch, self._sums = job, number, scratch, sums
        self._room = room
        self.messages: Any
        self._state = scratch / f"{number:05d}.state"
        self._mark = scratch / f"{number:05d}.mark"

    @property
    def answers(self) -> Answers:
        """Answers of the part, as the fit sees them."""
        job = self.job
        return job.parts.answers(self.number, self.scratch, job.on_scale, job.hidden)

    @property
    def given(self) -> Answers:
        """Answers of the part in the users' units, with all known truths."""
        return self.job.parts.answers(self.number, self.scratch)

    @property
    def store(self) -> Store:
        """The folder of the run."""
        return self.job.parts.store

    def own(self, **arrays: NDArray[Any]) -> Totals:
        """Name arrays by the part, so that they are not summed over the parts: see `joined`."""
        return {f"{name}-{self.number}": array for name, array in arrays.items()}

    def kept(self, what: str) -> str:
        """Name a file of the run for what the fit finds of the part."""
        hidden = self.job.hidden
        return f"tasks/{self.number:05d}{'' if hidden is None else f'-{hidden}'}.{what}"

    def answer(self, at: int, given: Call | None = None) -> Totals:
        """Answer the call of step ``at``, from where the state on disk is.

        The call is ``given`` where it is at hand: what it says of all workers is large.
        """
        log = self.job.log
        call = log.call(at) if given is None else given
        if call.kind == "answers":
            return self._run(call)
        history = log.history(at)
        done, totals = self._read_mark()
        known = done in history
        begun = history[: history.index(done) + 1] if known else history[:1]
        laid = next(step for step in reversed(begun) if _kind(log, step) != "changes")
        self._open(laid, fresh=not known)
        if done == at:
            # Sums are as large as all workers; those that follow from the messages are not kept.
            self._add_to_sums()
            return totals | {"sums": self.messages.sent()}
        for step in history[history.index(done) + 1 if known else 1 :]:
            self._mark.unlink(missing_ok=True)
            if step == at:
                self._add_to_sums()
            totals = self._run(call if step == at else log.call(step))
            with self._state.open("r+b") as file:
                file.write(self._room.content.data)
            self._write_mark(step, totals)
        return self._run(call) if call.kind == "reads" else totals

    def _run(self, call: Call) -> Totals:
        found: Totals = call.run(self)
        return found

    def _add_to_sums(self) -> None:
        if self._sums is not None and self._sums.shape == self.messages.sums.shape:
            self.messages.add_to(self._sums)

    def _open(self, step: int, fresh: bool) -> None:
        """Lay out messages, and read them from the file of the state, or make them flat."""
        self.messages = self.job.log.call(step).open(self.answers)
        self._room.take_in(self.messages)
        if fresh:
            self._mark.unlink(missing_ok=True)
            self._make_file()
            self._room.content[:] = 0
            return
        with self._state.open("rb") as file:
            file.readinto(self._room.content.data)

    def keep(self, messages: Laid) -> None:
        """Replace the messages by those of another layout."""
        before = [getattr(owner, name) for owner, name in messages.state()]
        self._room.take_in(messages)
        for array, (owner, name) in zip(before, messages.state(), strict=True):
            getattr(owner, name)[...] = array
        self.messages = messages
        self._make_file()

    def _make_file(self) -> None:
        self._state.unlink(missing_ok=True)
        with self._state.open("wb") as file:
            # A full disk shows before any work.
            os.posix_fallocate(file.fileno(), 0, max(self._room.content.nbytes, 1))

    def _read_mark(self) -> tuple[int, Totals]:
        """Return the last step that the state has, and its totals; -1 where there is no state."""
        try:
            token, boot, step, totals = pickle.loads(self._mark.read_bytes())
        except (OSError, EOFError, pickle.UnpicklingError):
            return -1, {}
        is_ours = (token, boot) == (self.job.log.token, _boot()) and self._state.exists()
        return (step, totals) if is_ours else (-1, {})

    def _write_mark(self, step: int, totals: Totals) -> None:
        totals = {name: array for name, array in totals.items() if name != "sums"}
        # One process at a time works on a part: locks and leftovers need no care, at every step.
        new = self._mark.with_suffix(".new")
        new.write_bytes(pickle.dumps((self.job.log.token, _boot(), step, totals)))
        new.replace(self._mark)


@lru_cache(maxsize=1)
def _boot() -> str:
    """Name this boot of the machine: writes before a crash may not be on the disk."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        return ""


def answer_parts(
    job: Job, numbers: Iterable[int], at: int, scratch: str, given: Call | None = None
) -> Totals:
    """Answer a call for some parts, one after another."""
    folder = Path(scratch)
    folder.mkdir(parents=True, exist_ok=True)
    if given is not None:
        _KINDS[job.log, at] = given.kind
    try:
        merged, room = dict[str, NDArray[Any]](), Room()
        for number in numbers:
            part = Part(job, number, folder, room, merged.get("sums"))
            merge_into(merged, part.answer(at, given))
        return merged
    finally:
        # Calls hold tables of all workers: those of one step are not kept beside the next's.
        _logged.cache_clear()


class Pool(Protocol):
    """Processes that share the parts."""

    def total(self, job: Job, at: int, call: Call | None = None) -> Totals:
        """Call all parts in a step, and merge their answers; ``call`` saves reading the log."""


class OneByOne:
    """All parts in this process, one after another."""

    def __init__(self, scratch: str) -> None:
        self._scratch = scratch

    def total(self, job: Job, at: int, call: Call | None = None) -> Totals:
        """Ask all parts."""
        return answer_parts(job, range(job.parts.n_parts), at, self._scratch, call)


class Steps:
    """The driver's side of the log: calls get their numbers in turn, and are asked once.

    Which answers the job shows may change before messages are opened anew.
    """

    def __init__(self, job: Job, pool: Pool) -> None:
        self.job, self._pool, self._next = job, pool, 0

    def open(self, lay_out: Callable[[Answers], Laid]) -> None:
        """Start new messages."""
        self._log(Call("opens", open=lay_out))

    def total(
        self,
        run: Callable[[Part], Totals],
        kind: Kind = "answers",
        lay_out: Callable[[Answers], Laid] | None = None,
    ) -> Mapping[str, NDArray[Any]]:
        """Ask all parts, or the log where they have been asked before."""
        call = Call(kind, run, lay_out)
        at, log = self._log(call), self.job.log
        if log.has(at, "totals"):
            return log.totals(at)
        found = self._pool.total(self.job, at, call)
        log.write(at, "totals", found)
        return found

    def _log(self, call: Call) -> int:
        at, self._next = self._next, self._next + 1
        if not self.job.log.has(at, "call"):
            self.job.log.write(at, "call", call)
        return at

    @property
    def last(self) -> int:
        """Number of the last step."""
        return self._next - 1
