"""Database: SQLite in a file or PostgreSQL by URL, opened, locked, and brought up to date."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from alembic import command as alembic
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, event, func, insert, inspect, select
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError, TimeoutError

from voxpop.data.formats.sql import safe_url
from voxpop.errors import ConfigError, DataError
from voxpop.service import schema

# Keys of PostgreSQL's advisory locks, in a space of our own.
_LOCK_SPACE = 0x766F78
_MIGRATE, _INFERENCE = 1, 2


class Lock:
    """A lock on a database, held until it is closed or its process ends."""

    def __init__(self, file: IO[bytes] | None = None, connection: Connection | None = None) -> None:
        self._file = file
        self._connection = connection

    def held(self) -> bool:
        """Whether the lock is still held: a server that restarts forgets its locks."""
        if self._connection is None:
            return self._file is not None
        try:
            self._connection.exec_driver_sql("SELECT 1")
        except SQLAlchemyError:
            return False
        return not self._connection.invalidated

    def close(self) -> None:
        """Release the lock."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._connection is not None:
            with suppress(SQLAlchemyError):
                # Closing a connection also releases its locks, but a moment later.
                self._connection.exec_driver_sql("SELECT pg_advisory_unlock_all()")
                self._connection.invalidate()
                self._connection.close()
            self._connection = None

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Database:
    """The service's database, and connections to it.

    ``Database.open("ages.db")`` makes a new file with today's tables, or opens one that has them;
    ``Database.open("postgresql://…")`` does the same with an empty database. One with older tables
    is refused: ``Database.migrate`` brings it up to date.
    """

    def __init__(self, url: str, engine: Engine, path: Path | None) -> None:
        self.url = url
        self.engine = engine
        self.path = path
        self.dialect = engine.dialect.name
        self.secret = b""
        """What hides the ids of people and signs sessions; made with the database."""

    # ------------------------------------------------------------ opening

    @classmethod
    def open(cls, url: str | os.PathLike[str]) -> Database:
        """Open a database whose tables are today's; a new one gets them."""
        database = cls._connect(os.fspath(url))
        try:
            with database._naming():
                database._check_version()
                database.secret = database._read_secret()
        except BaseException:
            database.close()
            raise
        return database

    @classmethod
    def migrate(cls, url: str | os.PathLike[str]) -> tuple[str | None, str]:
        """Bring the tables up to date; return the version before and after."""
        database = cls._connect(os.fspath(url))
        try:
            with database._naming(), database.lock():
                return database.version(), database._upgrade()
        finally:
            database.close()

    @classmethod
    def _connect(cls, url: str) -> Database:
        if url.startswith(("postgresql://", "postgres://", "postgresql+psycopg://")):
            return cls(url, _postgresql(url), None)
        if "://" in url and not url.startswith("sqlite://"):
            raise ConfigError(
                f"{safe_url(url)}: expected a file name or postgresql://…, not this kind of URL"
            )
        path = Path(url.removeprefix("sqlite:///").removeprefix("sqlite://"))
        if path.is_dir():
            raise ConfigError(f"{path}: is a folder; expected the name of a database file")
        if not path.absolute().parent.is_dir():
            raise ConfigError(f"{path}: there is no folder {path.absolute().parent}; make it first")
        return cls(str(path), _sqlite(path), path)

    @property
    def name(self) -> str:
        """The database's name, without a password."""
        return safe_url(self.url)

    @contextmanager
    def _naming(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            told = " ".join(str(error.orig or error).split())[:200]
            raise DataError(f"{self.name}: cannot be used: {told}") from None

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ connections

    def connect(self) -> Connection:
        """A connection for reading, in one transaction."""
        return self.engine.connect()

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """A transaction that writes: committed at the end, or rolled back as a whole."""
        with (
            self.engine.connect().execution_options(voxpop_writes=True) as connection,
            connection.begin(),
        ):
            yield connection

    # ------------------------------------------------------------ locks

    def lock(self) -> Lock:
        """Become the only server of a SQLite file; PostgreSQL may have many, and takes no lock."""
        if self.path is None:
            return Lock()
        return _lock_file(self.path, "lock")

    def lead(self) -> Lock | None:
        """Become the one that learns the model, or None while another process is it."""
        if self.path is not None:
            try:
                return _lock_file(self.path, "inference-lock")
            except DataError:
                return None
        connection = self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            taken = select(func.pg_try_advisory_lock(_LOCK_SPACE, _INFERENCE))
            if connection.execute(taken).scalar_one():
                return Lock(connection=connection)
        except BaseException:
            connection.close()
            raise
        connection.close()
        return None

    # ------------------------------------------------------------ versions

    def version(self) -> str | None:
        """The version of the tables; None where there are none."""
        with self.connect() as connection:
            version = MigrationContext.configure(connection).get_current_revision()
            if version is None and inspect(connection).get_table_names():
                raise DataError(f"{self.name}: is not a database of voxpop serve")
        return version

    def _check_version(self) -> None:
        version, newest = self.version(), newest_version()
        if version is None:
            with self.lock():
                self._upgrade()
        elif version != newest:
            if version in known_versions():
                raise DataError(
                    f"{self.name}: has tables of version {version}, this voxpop expects {newest}; "
                    f"run: voxpop serve migrate {self.name}"
                )
            raise DataError(
                f"{self.name}: was made by a newer voxpop (version {version} of its tables; "
                f"this one knows {newest}); update voxpop"
            )

    def _upgrade(self, target: str = "head") -> str:
        config = _alembic_config()
        quiet = logging.getLogger("alembic")
        level = quiet.level
        quiet.setLevel(logging.WARNING)
        try:
            with self.begin() as connection:
                self._take_turns(connection)
                config.attributes["connection"] = connection
                alembic.upgrade(config, target)
        finally:
            quiet.setLevel(level)
        return newest_version() if target == "head" else target

    def _take_turns(self, connection: Connection) -> None:
        """Let servers that start on the same empty database wait for each other."""
        if self.path is None:
            connection.execute(select(func.pg_advisory_xact_lock(_LOCK_SPACE, _MIGRATE)))

    # ------------------------------------------------------------ what is in it

    def _read_secret(self) -> bytes:
        setting = schema.setting
        read = select(setting.c.value).where(setting.c.name == "secret")
        with self.connect() as connection:
            found = connection.execute(read).scalar()
        if found is None:
            with self.begin() as connection:
                self._take_turns(connection)
                found = connection.execute(read).scalar()
                if found is None:
                    found = secrets.token_hex(32)
                    connection.execute(insert(setting).values(name="secret", value=found))
        return bytes.fromhex(found)


def is_outage(error: Exception) -> bool:
    """Whether the error is the database's, and not the query's."""
    return isinstance(error, OperationalError | TimeoutError) or (
        isinstance(error, DBAPIError) and error.connection_invalidated
    )


def outage_of(error: Exception) -> str:
    """Return why a database is unavailable: only the first line, since others may quote a row."""
    original = error.orig if isinstance(error, DBAPIError) else None
    said = str(original).strip().splitlines() if original else []
    return said[0][:200] if said else type(error).__name__


def _alembic_config() -> Config:
    config = Config()
    config.set_main_option("script_location", "voxpop.service:migrations")
    config.set_main_option("path_separator", "os")
    return config


def newest_version() -> str:
    """The version of the tables that this voxpop makes."""
    head = ScriptDirectory.from_config(_alembic_config()).get_current_head()
    assert head is not None
    return head


def known_versions() -> list[str]:
    """All versions of the tables, oldest first."""
    steps = ScriptDirectory.from_config(_alembic_config()).walk_revisions()
    return [step.revision for step in steps][::-1]


def _sqlite(path: Path) -> Engine:
    # It holds a secret, and people's answers. Where it cannot be made, SQLite says so in a moment.
    with suppress(OSError):
        path.touch(mode=0o600)
    engine = create_engine(
        # Answers and identities of people must not appear in a log.
        f"sqlite:///{path}",
        connect_args={"timeout": 30},
        hide_parameters=True,
    )

    def prepare(connection: Any, _: object) -> None:
        # SQLAlchemy's own BEGIN, below, decides what a transaction is, not the driver.
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    def begin(connection: Connection) -> None:
        # A writer that begins as a reader may find at its first write that it is too late.
        writes = connection.get_execution_options().get("voxpop_writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", begin)
    return engine


def _postgresql(url: str) -> Engine:
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise ConfigError(
            "PostgreSQL needs a driver; install it with: pip install 'voxpop[postgres]'"
        ) from None
    _, _, rest = url.partition("://")
    try:
        return create_engine(
            f"postgresql+psycopg://{rest}",
            pool_pre_ping=True,
            hide_parameters=True,
            connect_args={"connect_timeout": 10},
        )
    except (SQLAlchemyError, ValueError):
        raise ConfigError(f"{safe_url(url)}: is not a URL of a PostgreSQL database") from None


def _lock_file(path: Path, ending: str) -> Lock:
    """Lock a file beside the database: closing the database's own would drop SQLite's locks."""
    try:
        file = path.with_name(f"{path.name}.{ending}").open("ab")
    except OSError as error:
        raise DataError(f"{path}: cannot be locked: {error.strerror or error}") from None
    try:
        import fcntl

        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # pragma: no cover - Windows: SQLite's own locks still keep order
        pass
    except OSError:
        file.close()
        raise DataError(f"{path}: is open in another process; a campaign has one writer") from None
    return Lock(file=file)
