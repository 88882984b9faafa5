"""A folder that all processes of a run reach: local, or in an object store through fsspec."""

from __future__ import annotations

import os
import pickle
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from voxpop.data.output import replacing
from voxpop.errors import ConfigError, DataError

# Bytes of a checksum, and bytes that are looked at together.
_SEAL, _AT_ONCE = 4, 1 << 22


class Store:
    """Files by name; each is written under a temporary name, and appears whole or not at all."""

    def __init__(self, where: str) -> None:
        self.where, self._remote = where, "://" in where
        self._files: Any = None
        if self._remote:
            try:
                import fsspec
            except ImportError:
                raise ConfigError(f"{where}: needs fsspec; install 'voxpop[cluster]'") from None
            self._files, self._root = fsspec.core.url_to_fs(where)
        else:
            self._root = where

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def exists(self, name: str) -> bool:
        """Return whether a file is there."""
        path = self._path(name)
        return bool(self._files.exists(path)) if self._remote else Path(path).exists()

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if it does not exist."""
        try:
            if self._remote:
                return bytes(self._files.cat_file(self._path(name)))
            return Path(self._path(name)).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Write a file, or replace it."""
        with self._writing(name) as file:
            file.write(content)

    @contextmanager
    def _writing(self, name: str) -> Iterator[BinaryIO]:
        if self._remote:
            # An object store shows an object when all of it is there.
            memory = BytesIO()
            yield memory
            self._files.pipe_file(self._path(name), memory.getvalue())
            return
        path = Path(self._path(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary, temporary.open("wb") as file:
            yield file

    def keep(self, name: str, content: object) -> None:
        """Write an object, with a checksum before it."""
        with self._writing(name) as file:
            sealed = _Sealed(file)
            pickle.dump(content, sealed, pickle.HIGHEST_PROTOCOL)
            sealed.seal()

    def kept(self, name: str) -> Any:
        """Return an object that was kept; one that is damaged is never looked into."""
        try:
            with self._opened(name) as file:
                if _is_sealed(file):
                    return pickle.load(file)
        except FileNotFoundError:
            pass
        raise DataError(
            f"{self._path(name)}: is missing or damaged; remove the folder of the run, and "
            "start again"
        )

    def _opened(self, name: str) -> BinaryIO:
        if self._remote:
            return BytesIO(self.read(name) or b"")
        return Path(self._path(name)).open("rb")

    def write_array(self, name: str, array: NDArray[Any]) -> None:
        """Write an array as a ``.npy`` file."""
        with self._writing(name) as file:
            np.save(file, array, allow_pickle=False)

    def read_array(self, name: str) -> NDArray[Any]:
        """Return an array that was written."""
        return np.asarray(np.load(BytesIO(self.read(name) or b"")))

    def fetch(self, name: str, scratch: Path) -> Path:
        """Return a local path of a file: itself, or a copy in ``scratch``, made once."""
        if not self._remote:
            return Path(self._path(name))
        copy = scratch / name
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            with replacing(copy) as temporary:
                self._files.get_file(self._path(name), os.fspath(temporary))
        return copy

    def put(self, local: Path, name: str) -> None:
        """Copy a local file here."""
        if self._remote:
            self._files.put_file(os.fspath(local), self._path(name))
        else:
            self.write(name, local.read_bytes())

    def remove(self) -> None:
        """Remove all files."""
        if self._remote:
            self._files.rm(self._root, recursive=True)


class _Sealed:
    """A file whose content gets a checksum before it, and is never in memory a second time.

    Tables of all workers pass here in every step.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._sum = file, 0
        file.write(bytes(_SEAL))

    def write(self, content: bytes) -> int:
        """Write what comes next."""
        self._sum = zlib.crc32(content, self._sum)
        return self._file.write(content)

    def seal(self) -> None:
        """Put the checksum before all that was written."""
        self._file.seek(0)
        self._file.write(self._sum.to_bytes(_SEAL, "big"))


def _is_sealed(file: BinaryIO) -> bool:
    """Return whether a file is as it was sealed, and leave it where its content begins."""
    seal, found = file.read(_SEAL), 0
    while content := file.read(_AT_ONCE):
        found = zlib.crc32(content, found)
    file.seek(_SEAL)
    return seal == found.to_bytes(_SEAL, "big")
