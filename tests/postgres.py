"""A PostgreSQL server of our own for tests: Debian's programs, a folder and a port of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.conftest import skip_without


def server_programs() -> Path | None:
    """Find a PostgreSQL server: where Debian puts it, or on the path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else (Path(on_path).parent if on_path else None)


def _account() -> Any:
    """The user that the server runs as: a server refuses to run as root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        skip_without("postgresql", "PostgreSQL does not run as root, and there is no user postgres")


class PostgreSQL:
    """A running server; ``durable`` keeps what it committed through a kill of its machine.

    ``disk`` gives it a disk of its own of so many bytes, which may become full.
    """

    def __init__(self, durable: bool = False, disk: int | None = None) -> None:
        programs = server_programs()
        if programs is None:
            skip_without("postgresql", "no PostgreSQL server here (Debian: apt install postgresql)")
        self.programs = programs
        self.durable = durable
        self._who: dict[str, Any] = {}
        account = _account()
        # /tmp because the other user must reach the folder.
        self.folder = Path(tempfile.mkdtemp(prefix="voxpop-postgres-", dir="/tmp"))
        self._mounted = disk is not None
        if disk is not None:
            mount = ["mount", "-t", "tmpfs", "-o", f"size={disk}", "none", str(self.folder)]
            if subprocess.run(mount, capture_output=True).returncode:
                self.folder.rmdir()
                skip_without("mount", "a disk of its own needs the right to mount one")
        if account is not None:
            os.chown(self.folder, account.pw_uid, account.pw_gid)
            self._who = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._run("initdb", "-D", self.folder / "data", "-U", "voxpop", "-A", "trust", "-N")
        self._server: subprocess.Popen[bytes] | None = None
        self.start()

    def _run(self, program: str, *arguments: Any) -> None:
        subprocess.run(
            [self.programs / program, *map(str, arguments)],
            check=True,
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **self._who,
        )

    def start(self) -> None:
        """Start the server and wait until it takes connections."""
        options = [] if self.durable else ["-c", "fsync=off"]
        self._server = subprocess.Popen(
            [self.programs / "postgres", "-D", self.folder / "data", "-p", str(self.port),
             "-k", self.folder, "-c", "listen_addresses=127.0.0.1", *options],
            cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **self._who,
        )  # fmt: skip
        deadline = time.monotonic() + 30
        ready: list[str | Path] = [
            self.programs / "pg_isready",
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
        ]
        while subprocess.run(ready, stdout=subprocess.DEVNULL).returncode:
            assert time.monotonic() < deadline, "the server did not start"
            assert self._server.poll() is None, "the server stopped"
            time.sleep(0.05)

    def stop(self, at_once: bool = False) -> None:
        """Stop the server; at once: as after a crash, with recovery at the next start."""
        assert self._server is not None
        self._server.send_signal(signal.SIGQUIT if at_once else signal.SIGINT)
        self._server.wait(timeout=30)
        self._server = None

    def fill(self) -> Path:
        """Fill the disk, and return the file that takes it up."""
        ballast = self.folder / "ballast"
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(1 << 16))
        with ballast.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(512))
        return ballast

    def go_on(self) -> None:
        """Start the server again where it has ended, as whoever looks after it would."""
        if self._server is None or self._server.poll() is not None:
            self.start()

    def make_database(self, name: str) -> str:
        """Make an empty database and return its URL."""
        self._run("createdb", "-h", "127.0.0.1", "-p", self.port, "-U", "voxpop", name)
        return self.url(name)

    def url(self, name: str = "postgres") -> str:
        """The URL of a database."""
        return f"postgresql://voxpop:secret@127.0.0.1:{self.port}/{name}"

    def remove(self) -> None:
        """Stop the server and delete its folder."""
        if self._server is not None:
            self.stop()
        if self._mounted:
            subprocess.run(["umount", str(self.folder)], check=True)
        shutil.rmtree(self.folder, ignore_errors=True)
