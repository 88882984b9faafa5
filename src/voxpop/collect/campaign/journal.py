"""Journal: the changes of a campaign in an append-only file that survives a crash at any byte.

Each line is a record: a checksum, then JSON. It is written and flushed to the disk before its
answers count as added, and earlier lines never change (write-ahead logging). A crash therefore
leaves all acknowledged records and at most one incomplete line, which the next reader drops. A line
that has its end but not its checksum is damage, wherever it stands, and the file is refused.
Beliefs are not stored, because they follow from the answers.
"""

from __future__ import annotations

import json
import os
import warnings
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import BytesIO, FileIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from voxpop.collect.campaign.learned import LearnedNoise
from voxpop.collect.campaign.ledger import Ledger
from voxpop.collect.planning.learn_crowd import LearnedCrowd
from voxpop.data.output import replacing
from voxpop.errors import DataError, DataWarning, require, shorten
from voxpop.models.model import Model

Record = dict[str, Any]
# Answers in one record of a saved campaign.
_PER_RECORD = 10_000


class Journal:
    """The journal of a campaign, locked against other writers; without a path it keeps nothing."""

    def __init__(self, path: Path | None = None) -> None:
        self._file = None if path is None else _open_locked(path)
        self._interrupted = False

    def read(self) -> list[Record]:
        """Read all records; an incomplete one was never acknowledged, and is cut off."""
        assert self._file is not None
        records, length = _whole_records(self._file.read(), Path(self._file.name))
        _truncate(self._file, length)
        return records

    @contextmanager
    def recording(self, record: Record) -> Iterator[None]:
        """Write a record, then apply it to memory; if that fails, the two may differ."""
        require(
            not self._interrupted, "a change of the campaign was interrupted; open or load it again"
        )
        if self._file is not None:
            _append(self._file, record)
        try:
            yield
        except BaseException:
            self._interrupted = True
            self.close()
            raise

    def writes_to(self, path: Path) -> bool:
        """Return whether the journal is open in this file."""
        return self._file is not None and path.exists() and path.samefile(self._file.name)

    def close(self) -> None:
        """Release the file; further changes stay in memory."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _append(file: FileIO, record: Record) -> None:
    """Write a record; when this returns, it is on the disk."""
    line, start = memoryview(_line(record)), file.tell()
    try:
        while line:
            line = line[file.write(line) :]
        os.fsync(file.fileno())
    except BaseException:
        # After a full disk or Ctrl-C, remove the incomplete record.
        _truncate(file, start)
        raise


def _truncate(file: FileIO, length: int) -> None:
    file.truncate(length)
    file.seek(length)


def create_journal(path: Path, records: Iterable[Record]) -> None:
    """Write a new journal, all or nothing; an existing file is left unchanged."""
    # Unlike a rename, a hard link fails if another process has created the file meanwhile.
    with TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        new = Path(folder) / "new"
        write_journal(new, records)
        with suppress(FileExistsError):
            os.link(new, path)
    _sync_folder(path.parent)


def write_journal(path: Path, records: Iterable[Record]) -> None:
    """Write a whole journal, replacing the file, all or nothing."""
    with ExitStack() as held:
        if path.exists():
            # A process that has it open would keep writing to the deleted file.
            held.enter_context(_open_locked(path))
        with replacing(path) as temporary, temporary.open("wb") as file:
            for record in records:
                file.write(_line(record))
            file.flush()
            os.fsync(file.fileno())
    _sync_folder(path.parent)


def read_journal(path: Path) -> list[Record]:
    """Read all complete records."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    return _whole_records(content, path)[0]


def _whole_records(content: bytes, path: Path) -> tuple[list[Record], int]:
    """Parse records up to the first incomplete one; return them and their length in bytes."""
    lines = BytesIO(content).readlines()
    records: list[Record] = []
    for number, line in enumerate(lines, 1):
        record = _parse(line)
        if record is None:
            if records and not _may_be_torn(line, is_last=number == len(lines)):
                raise DataError(
                    f"{path}: line {number} is whole but damaged, so this is not an interrupted "
                    "write; restore the file from a copy"
                )
            if records:
                warnings.warn(
                    f"{path}: the last line is torn (interrupted write) and was ignored",
                    DataWarning,
                    stacklevel=5,
                )
            break
        records.append(record)
    if not records or records[0].get("campaign") != 1:
        raise DataError(f"{path}: is not a campaign of this version of voxpop")
    if not any("model" in record for record in records):
        raise DataError(
            f"{path}: is cut off before its noise model, so it cannot be read; "
            "restore the file from a copy"
        )
    return records, sum(len(line) for line in lines[: len(records)])


def _may_be_torn(line: bytes, is_last: bool) -> bool:
    """Tell whether an interrupted write can have left such a line.

    A line is written from its start, so that one with its end is whole, and broken since. Only when
    the power fails may the end be on the disk before the middle: zeros are there then.
    """
    return is_last and (not line.endswith(b"\n") or b"\0" in line)


def _line(record: Record) -> bytes:
    """Encode a record; refuse ids that JSON would change."""
    parts = [
        record,
        *(record.get(part, {}) for part in ("answers", "gold", "retracted", "learned")),
    ]
    ids = [i for part in parts for name in ("tasks", "task", "worker") for i in part.get(name, ())]
    strange = [i for i in ids if type(i) is not int and type(i) is not str]
    if strange:
        raise DataError(
            "ids of a campaign that is kept in a file must be text or whole numbers, "
            f"got {shorten(strange)}"
        )
    text = json.dumps(record, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _parse(line: bytes) -> Record | None:
    """Parse a line; None if it is incomplete."""
    checksum, _, text = line.partition(b" ")
    if not text.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(text[:-1]):
        return None
    record = json.loads(text)
    return record if isinstance(record, dict) else None


def _open_locked(path: Path) -> FileIO:
    """Open a file for writing, exclusively."""
    while True:
        try:
            file = FileIO(path, "r+b")
        except OSError as error:
            raise DataError(f"{path}: cannot be opened: {error.strerror or error}") from None
        try:
            _lock(file.fileno(), path)
            # The file may have been replaced between opening and locking.
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except BaseException:
            file.close()
            raise
        file.close()


def _lock(descriptor: int, path: Path) -> None:
    try:
        import fcntl
    except ImportError:  # pragma: no cover - Windows does not replace open files
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise DataError(f"{path}: is open in another process; a campaign has one writer") from None


def _sync_folder(folder: Path) -> None:
    """Flush the name of a new file to the disk, where folders can be opened."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def campaign_records(
    ledger: Ledger, model: Model, trust: float, noise: LearnedNoise | None
) -> Iterator[Record]:
    """Return the records that recreate a campaign."""
    yield {"campaign": 1, "value_names": list(ledger.value_names)}
    yield model_record(model, trust, noise)
    tasks, workers = list(ledger.tasks), list(ledger.workers)
    yield {"tasks": tasks}
    known = np.flatnonzero(ledger.is_gold)
    if len(known):
        truth = ledger.gold[known].tolist()
        yield {"gold": {"task": [tasks[i] for i in known], "value": truth}}
    for start in range(0, ledger.n_edges, _PER_RECORD):
        part = slice(start, start + _PER_RECORD)
        yield {
            "answers": {
                "task": [tasks[i] for i in ledger.task[part]],
                "worker": [workers[u] for u in ledger.worker[part]],
                "value": ledger.value[part].tolist(),
            }
        }


def model_record(model: Model, trust: float, noise: LearnedNoise | None = None) -> Record:
    """Return the record of a noise model; a flat prior has no variance, as JSON has no infinity.

    The rest that the default has learned is beside it; versions up to 0.1 read the model alone.
    """
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
        **({} if noise is None else {"learned": noise.to_dict()}),
    }


def crowd_in(records: list[Record]) -> tuple[LearnedCrowd, LearnedNoise | None]:
    """Return the noise model given or learned last, and the trust in it."""
    (*_, last) = (record for record in records if "model" in record)
    stored = last["model"]
    model = Model(**{**stored, "prior_variance": stored["prior_variance"] or np.inf})
    trust = float(last.get("trust", 1.0))  # absent in files of earlier versions
    learned = last.get("learned")
    noise = None if learned is None else LearnedNoise.from_dict(model, learned)
    return LearnedCrowd(model, np.empty(0), trust), noise
