"""A folder that all processes of a run reach: local, or in an object store through fsspec."""

from __future__ import annotations

import os
import pickle
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxpop.data.output import replacing
from voxpop.errors import ConfigError, DataError

_SEAL = 4


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

    def write(self, name: str, *content: bytes) -> None:
        """Write a file in one or more pieces, or replace it."""
        if self._remote:
            # An object store shows an object when all of it is there.
            self._files.pipe_file(self._path(name), b"".join(content))
            return
        path = Path(self._path(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary, temporary.open("wb") as file:
            file.writelines(content)

    def keep(self, name: str, content: object) -> None:
        """Write an object, with a checksum before it."""
        body = pickle.dumps(content, pickle.HIGHEST_PROTOCOL)
        self.write(name, _seal(body), body)

    def kept(self, name: str) -> Any:
        """Return an object that was kept; one that is damaged is never looked into."""
        content = self.read(name) or b""
        body = memoryview(content)[_SEAL:]  # a table of all workers is not copied
        if content[:_SEAL] != _seal(body):
            raise DataError(
                f"{self._path(name)}: is missing or damaged; remove the folder of the run, and "
                "start again"
            )
        return pickle.loads(body)

    def write_array(self, name: str, array: NDArray[Any]) -> None:
        """Write an array as a ``.npy`` file."""
        out = BytesIO()
        np.save(out, array, allow_pickle=False)
        self.write(name, out.getvalue())

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


def _seal(body: bytes | memoryview) -> bytes:
    """Checksum that shows damage; tables of all workers pass here in every step."""
    return zlib.crc32(body).to_bytes(_SEAL, "big")
