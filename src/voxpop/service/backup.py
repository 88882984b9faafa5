"""Backup: a copy of the database as it is at one moment, while the service goes on."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

from sqlalchemy import make_url

from voxpop.data.formats.sql import safe_url
from voxpop.errors import ConfigError, DataError
from voxpop.service.database import Database


def backup(database: Database, target: str | os.PathLike[str]) -> Path:
    """Copy a database into a file that is not there yet, and return its path.

    SQLite's copy is a complete database file: ``voxpop serve COPY`` continues with it.
    PostgreSQL's is what ``pg_restore`` reads.
    """
    path = Path(target)
    if path.exists():
        raise ConfigError(f"{path}: exists already; name a new file")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"{path}: there is no folder {path.absolute().parent}; make it first")
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if database.path is not None:
            _copy_sqlite(database.path, new)
        else:
            _dump_postgresql(database.url, new)
        with new.open("rb") as file:
            os.fsync(file.fileno())
        # Unlike a rename, a link fails if the name has been taken meanwhile.
        os.link(new, path)
    except (OSError, sqlite3.Error) as error:
        told = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: the backup could not be written: {told}") from None
    finally:
        for ending in ("", "-wal", "-shm", "-journal"):
            new.with_name(new.name + ending).unlink(missing_ok=True)
    return path


def _copy_sqlite(source: Path, target: Path) -> None:
    target.touch(mode=0o600)
    with (
        closing(sqlite3.connect(source, timeout=30)) as old,
        closing(sqlite3.connect(target)) as new,
    ):
        # All pages in one step: one read transaction, which writers need not wait for.
        old.backup(new, pages=-1)
        (found,) = new.execute("PRAGMA integrity_check").fetchone()
        if found != "ok":
            raise DataError(f"{source}: is damaged: {found}")


def _dump_postgresql(url: str, target: Path) -> None:
    program = shutil.which("pg_dump") or next(
        (str(one) for one in sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_dump"))[::-1]), None
    )
    if program is None:
        raise ConfigError("a backup of PostgreSQL needs pg_dump (Debian: postgresql-client)")
    parts = make_url(url)
    # The password travels in the environment: everybody can read a command line.
    secret = {} if parts.password is None else {"PGPASSWORD": str(parts.password)}
    plain = parts.set(drivername="postgresql", password=None).render_as_string(hide_password=False)
    done = subprocess.run(
        [program, "--format=custom", "--no-owner", "--file", target, "--dbname", plain],
        env={**os.environ, **secret},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        told = " ".join(done.stderr.split())[:300]
        raise DataError(f"{safe_url(url)}: pg_dump failed: {told}")
