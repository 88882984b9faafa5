"""Journal: what happened in a campaign, in a file that survives being cut off at any byte.

One line per record, a checksum and then JSON. A record is there when its line is whole: it is
written and forced to the disk before its answers count as added, and nothing before it is ever
changed. So whatever kills the writer leaves all records that were acknowledged and at most one
torn line after them, which the next reader leaves out. Beliefs are not kept: they follow from the
answers.
"""

from __future__ import annotations

import json
import os
import warnings
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from io import FileIO
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from voxpop.collect.campaign.ledger import Ledger
from voxpop.data.files import replacing
from voxpop.errors import DataError, DataWarning, shorten
from voxpop.models.model import Model

Record = dict[str, Any]
# Answers in one record of a saved campaign.
_PER_RECORD = 10_000


class Journal:
    """A journal open for appending; nobody else may open it meanwhile.

    ``records`` are those that were there.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._length = path, 0
        self._file = _open_locked(path)
        try:
            self.records, length = _whole_records(self._file.read(), path)
            # What is torn was never acknowledged.
            self._cut(length)
        except BaseException:
            self._file.close()
            raise

    def append(self, record: Record) -> None:
        """Write a record; when this returns, it is on the disk."""
        line = memoryview(_line(record))
        start = self._length
        try:
            while line:
                line = line[self._file.write(line) :]
            os.fsync(self._file.fileno())
        except BaseException:
            # A full disk, or Ctrl-C: the record is not there, and the next one finds a clean end.
            self._cut(start)
            raise
        self._length = self._file.tell()

    def _cut(self, length: int) -> None:
        self._file.truncate(length)
        self._length = self._file.seek(length)

    def close(self) -> None:
        """Let others open it."""
        self._file.close()


def create_journal(path: Path, records: Iterable[Record]) -> None:
    """Write a new journal, all or nothing; one that is there is left as it is."""
    # Under a name of its own first: a link cannot take the place of what somebody else made
    # meanwhile, as a renamed file would.
    with TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        new = Path(folder) / "new"
        write_journal(new, records)
        with suppress(FileExistsError):
            os.link(new, path)
    _sync_folder(path.parent)


def write_journal(path: Path, records: Iterable[Record]) -> None:
    """Write a whole journal in the place of what was there, all or nothing."""
    with ExitStack() as held:
        if path.exists():
            # Whoever has it open would go on writing to a file without a name.
            held.enter_context(_open_locked(path))
        with replacing(path) as temporary, temporary.open("wb") as file:
            for record in records:
                file.write(_line(record))
            file.flush()
            os.fsync(file.fileno())
    _sync_folder(path.parent)


def read_journal(path: Path) -> list[Record]:
    """Read all whole records."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    return _whole_records(content, path)[0]


def _whole_records(content: bytes, path: Path) -> tuple[list[Record], int]:
    """Parse records up to the first torn one; say how long they are together."""
    lines = content.splitlines(keepends=True)
    records: list[Record] = []
    for number, line in enumerate(lines, 1):
        record = _parse(line)
        if record is None:
            if any(_parse(later) is not None for later in lines[number:]):
                raise DataError(
                    f"{path}: line {number} is damaged, and lines after it are not: not what an "
                    "interrupted write leaves; restore the file from a copy"
                )
            if records:
                warnings.warn(
                    f"{path}: its last line is torn, by an interrupted write; it is left out",
                    DataWarning,
                    stacklevel=5,
                )
            break
        records.append(record)
    if not records or records[0].get("campaign") != 1:
        raise DataError(f"{path}: is no campaign of this version of voxpop")
    return records, sum(len(line) for line in lines[: len(records)])


def check_ids(ids: Iterable[object]) -> None:
    """Refuse ids that would come back from JSON as something else."""
    strange = [i for i in ids if type(i) is not int and type(i) is not str]
    if strange:
        raise DataError(
            "ids of a campaign that is kept in a file must be text or whole numbers, "
            f"got {shorten(strange)}"
        )


def _line(record: Record) -> bytes:
    text = json.dumps(record, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _parse(line: bytes) -> Record | None:
    """Read a line; None where it is not whole."""
    checksum, _, text = line.partition(b" ")
    if not text.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(text[:-1]):
        return None
    record = json.loads(text)
    return record if isinstance(record, dict) else None


def _open_locked(path: Path) -> FileIO:
    """Open a file that nobody else has open so."""
    while True:
        file = FileIO(path, "r+b")
        try:
            _lock(file.fileno(), path)
            # Between opening and locking another one may have taken its place.
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except BaseException:
            file.close()
            raise
        file.close()


def _lock(descriptor: int, path: Path) -> None:
    try:
        import fcntl
    except ImportError:  # pragma: no cover - Windows does not replace open files anyway
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise DataError(f"{path}: is open in another process; a campaign has one writer") from None


def _sync_folder(folder: Path) -> None:
    """Force the name of a new file to the disk too, where folders can be opened."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def records_of(ledger: Ledger, model: Model, trust: float) -> Iterator[Record]:
    """Tell all that a campaign has been told."""
    yield {"campaign": 1, "value_names": list(ledger.value_names)}
    yield model_record(model, trust)
    tasks, workers = ledger.tasks.ids, ledger.workers.ids
    check_ids(chain(tasks, workers))
    yield {"tasks": tasks}
    known = np.flatnonzero(~np.isnan(ledger.gold[:, 0]))
    if len(known):
        gold = ledger.gold[known].tolist()
        yield {"gold": {"task": [tasks[i] for i in known], "value": gold}}
    for start in range(0, ledger.n_edges, _PER_RECORD):
        part = slice(start, start + _PER_RECORD)
        yield {
            "answers": {
                "task": [tasks[i] for i in ledger.task[part]],
                "worker": [workers[u] for u in ledger.worker[part]],
                "value": ledger.value[part].tolist(),
            }
        }


def ids_in(record: Record) -> Iterator[Any]:
    """Return all ids that a record names."""
    for part in (record.get("answers", {}), record.get("gold", {})):
        yield from part.get("task", ())
        yield from part.get("worker", ())
    yield from record.get("tasks", ())


def model_record(model: Model, trust: float) -> Record:
    """Write down a noise model; JSON has no infinity, so a flat prior has no variance."""
    flat = np.isinf(model.prior_variance)
    return {
        "model": {
            "support": list(model.support),
            "weights": list(model.weights or ()),
            "prior_mean": np.asarray(model.prior_mean).tolist(),
            "prior_variance": None if flat else model.prior_variance,
            "dimension": model.dimension,
        },
        "trust": trust,
    }


def last_model(records: list[Record]) -> tuple[Model, float]:
    """Return the noise model that holds, the last one learned, and the trust in it."""
    (*_, last) = (record for record in records if "model" in record)
    told = last["model"]
    model = Model(**{**told, "prior_variance": told["prior_variance"] or np.inf})
    return model, float(last.get("trust", 1.0))  # files of earlier versions do not tell
