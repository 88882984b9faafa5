"""Output: files and sets of files, written under another name and put in place as a whole.

At any time, even after a kill, there is the old file or the new one. What a killed run leaves under
a temporary name (``.NAME.….part``) is removed by the next one that writes there.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from functools import reduce
from operator import and_
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from voxpop.errors import DataError


def require_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written to, before any work is done; create nothing."""
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder}: is a file; name a directory to write to")
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise DataError(f"{folder}: cannot be written to: no permission for {there}")


def make_folder(folder: Path) -> None:
    """Make a folder for output, or say why it cannot be made."""
    require_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot be made: {error.strerror}") from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary name beside ``path`` to write to, and move it there if all went well.

    The mode of a file that is replaced is kept. A link is followed, and stays. A pipe or a
    terminal is written to at the end; a disk, a socket or a directory is refused.
    """
    target = _followed(path)
    if not target.parent.is_dir():
        raise DataError(f"{path}: cannot be written: no folder {path.parent}")
    try:
        if _is_stream(target, path):
            with TemporaryDirectory() as folder:
                content = Path(folder) / f"content{path.suffix}"
                yield content
                with content.open("rb") as file, _open_stream(target) as stream:
                    shutil.copyfileobj(file, stream)
            return
        with _locked_temporary(target.parent, target) as temporary:
            yield temporary
            _keep_mode(temporary, target)
            temporary.replace(target)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror or error}") from None


@contextmanager
def replacing_folder(folder: Path, names: Collection[str]) -> Iterator[Path]:
    """Give an empty folder for files of these names; together they replace those in ``folder``.

    A folder that holds nothing else is replaced in one step. In any other (it has files of the
    user's, it is the current one, the system cannot swap folders) the files are replaced one by
    one, and a kill meanwhile leaves some of both sets.
    """
    require_folder(folder)
    target = _followed(folder)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        inside = target.is_dir() and _is_shared(target, names)
        place = target if inside else target.parent
        with _locked_temporary(place, target, names) as new:
            try:
                yield new
            except DataError as error:  # nobody knows the temporary name
                raise DataError(str(error).replace(str(new), str(folder))) from None
            _keep_modes(new, target)
            if not target.exists():
                new.rename(target)
            elif not inside and _swap(new, target):
                # Files that somebody has put there in the meantime stay.
                _empty(new, names, target)
            else:
                for file in sorted(new.iterdir()):
                    if (target / file.name).is_dir() or file.is_dir():
                        _remove(target / file.name)
                    file.replace(target / file.name)
                    names = {*names} - {file.name}
                for name in names:
                    _remove(target / name)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise DataError(f"{folder}: cannot be written: {error.strerror or error}") from None


def _is_shared(folder: Path, names: Collection[str]) -> bool:
    """Return whether a folder must stay: it holds more than these files, or is in use."""
    return (
        not {entry.name for entry in folder.iterdir()} <= {*names}
        or Path.cwd().is_relative_to(folder)
        or folder.is_mount()
        or not os.access(folder.parent, os.W_OK)
    )


def _followed(path: Path) -> Path:
    """Follow links to the file itself. A name in /proc is an open file rather than a link."""
    for _ in range(40):
        folder = path.parent.resolve()
        if folder.is_relative_to("/proc") or not path.is_symlink():
            return folder / path.name
        path = path.parent / path.readlink()
    raise DataError(f"{path}: cannot be written: its links lead in a circle")


def _is_stream(target: Path, path: Path) -> bool:
    """Return whether to write to what is there instead of replacing it; refuse what is neither."""
    if not target.exists():
        return False
    mode = target.stat().st_mode
    if stat.S_ISREG(mode):
        return target.parent.is_relative_to("/proc")
    if not (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
        kinds = ((stat.S_ISDIR, "directory"), (stat.S_ISBLK, "disk"), (stat.S_ISSOCK, "socket"))
        kind = next((name for test, name in kinds if test(mode)), "special file")
        raise DataError(f"{path}: is a {kind}; name a file to write to")
    return True


def _open_stream(target: Path) -> IO[bytes]:
    """Open what is written to; a file that this process has open continues where it is."""
    if target.parent == Path(f"/proc/{os.getpid()}/fd"):
        return os.fdopen(os.dup(int(target.name)), "wb")
    return target.open("ab")


@contextmanager
def _locked_temporary(
    place: Path, target: Path, names: Collection[str] | None = None
) -> Iterator[Path]:
    """Make a temporary file, or a folder for files of these names; nothing is left behind.

    It is locked, so that another process can distinguish it from the leftovers of a killed one.
    """
    _remove_leftovers(place, target, names)
    new = place / f".{target.name}.{os.urandom(4).hex()}.part{target.suffix}"
    # Never readable by more people than the file that it will replace.
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o666
    descriptor = None
    try:
        # Until it is locked, another process may take it for a leftover and remove it.
        while descriptor is None or not new.exists():
            if names is None:
                descriptor = os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode | 0o600)
            else:
                new.mkdir()
                descriptor = os.open(new, os.O_RDONLY)
            _lock(descriptor, wait=True)
        yield new
    finally:
        if names is None:
            new.unlink(missing_ok=True)
        else:
            _empty(new, names)
        if descriptor is not None:
            os.close(descriptor)


def _remove_leftovers(place: Path, target: Path, names: Collection[str] | None) -> None:
    """Remove what killed runs have left: temporaries that no process holds."""
    for left in place.glob(f"{_literal('.' + target.name)}.*.part{_literal(target.suffix)}"):
        with suppress(OSError):
            descriptor = os.open(left, os.O_RDONLY)
            try:
                if _lock(descriptor, wait=False):
                    if names is not None:
                        _empty(left, names)
                    else:
                        left.unlink()
            finally:
                os.close(descriptor)


def _literal(name: str) -> str:
    return "".join(f"[{mark}]" if mark in "*?[" else mark for mark in name)


def _lock(descriptor: int, wait: bool) -> bool:
    """Lock an open file or folder; False if another process holds it, or that is unknown."""
    try:
        import fcntl
    except ImportError:  # pragma: no cover - Windows has no such locks: leftovers stay
        return wait
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return wait
    return True


def _empty(folder: Path, names: Collection[str], others_to: Path | None = None) -> None:
    """Remove a folder with files of these names; others are moved, or stay with the folder."""
    with suppress(OSError):
        for entry in folder.iterdir():
            if entry.name in names:
                _remove(entry)
            elif entry.name.startswith(".") and ".part" in entry.name:
                entry.unlink()  # a file of the set that was being written
            elif others_to is not None:
                entry.rename(others_to / entry.name)
        folder.rmdir()


def _remove(entry: Path) -> None:
    """Remove a file of a set, or a table in parts, which is a folder; if it is there."""
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry)
    else:
        entry.unlink(missing_ok=True)


def _keep_mode(new: Path, old: Path) -> None:
    """Give a new file or folder the mode of the old one, and its owner where that is allowed."""
    if old.exists():
        there = old.stat()
        if hasattr(os, "chown"):
            with suppress(PermissionError):
                os.chown(new, there.st_uid, there.st_gid)
        new.chmod(stat.S_IMODE(there.st_mode))


def _keep_modes(new: Path, old: Path) -> None:
    """Keep the modes of a set; a new file in it is as private as the most private of the others."""
    if not old.is_dir():
        return
    modes = [f.stat().st_mode for f in old.iterdir() if f.is_file()]
    for file in new.rglob("*"):
        if file.parent == new and file.is_file() and (old / file.name).is_file():
            _keep_mode(file, old / file.name)
        elif file.is_dir():
            mode = reduce(and_, modes, file.stat().st_mode)
            file.chmod(stat.S_IMODE(mode | (mode & 0o444) >> 2))
        else:
            file.chmod(stat.S_IMODE(reduce(and_, modes, file.stat().st_mode)))
    _keep_mode(new, old)


_EXCHANGE = 2  # RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS
_HERE = -100  # AT_FDCWD


def _swap(one: Path, other: Path) -> bool:
    """Let two folders change places in one step; False where the system cannot."""
    names = os.fsencode(one), os.fsencode(other)
    try:
        system = ctypes.CDLL(None)
        if sys.platform == "darwin":  # pragma: no cover - where the tests run on a Mac
            return bool(system.renamex_np(*names, _EXCHANGE) == 0)
        return bool(system.renameat2(_HERE, names[0], _HERE, names[1], _EXCHANGE) == 0)
    except (AttributeError, OSError, TypeError):  # pragma: no cover - no such call
        return False
