"""Serve: the processes of the service, started by one command and stopped together.

The web process runs here; inference is a child that is started again, more and more slowly, when
it dies. The child reads a pipe that this process holds: when this process is killed, the pipe
closes and the child ends too.
"""

from __future__ import annotations

import ipaddress
import logging
import signal
import socket
import subprocess
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType

import uvicorn
from fastapi import FastAPI

from voxpop.errors import ConfigError
from voxpop.service.api.app import create_app, owner_link
from voxpop.service.api.settings import Settings
from voxpop.service.logs import log, start_logging

DEFAULT_PORT = 8000
_LONGEST_WAIT = 60.0
_SETTLED = 60.0
_GRACE = 10.0


@dataclass(kw_only=True)
class Child:
    """A child process that is kept running: restarted after 1 s, 2 s, 4 s … when it ends."""

    command: list[str]
    shortest_wait: float = 1.0
    process: subprocess.Popen[bytes] | None = None
    n_starts: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Start it, and a thread that watches it."""
        self._thread = threading.Thread(target=self._watch, name="inference watch", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        wait = self.shortest_wait
        while not self._stop.is_set():
            began = time.monotonic()
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE)
            self.n_starts += 1
            status = self.process.wait()
            self._close_pipe()
            if self._stop.is_set():
                return
            wait = self.shortest_wait if time.monotonic() - began > _SETTLED else wait
            log("inference ended", logging.WARNING, status=status, restart_in_s=wait)
            self._stop.wait(wait)
            wait = min(2 * wait, _LONGEST_WAIT)

    def _close_pipe(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()

    def stop(self) -> None:
        """End it: by a signal, and by force when it takes too long."""
        self._stop.set()
        process = self.process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(_GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._thread is not None:
            self._thread.join(_GRACE)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int | None) -> socket.socket:
    """Listen at a port; without one at 8000, or at any that is free where that is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in (DEFAULT_PORT, 0) if port is None else (port,):
        # By its protocol asyncio knows that replies in several pieces must not wait for each other:
        # without it every second one takes 40 ms.
        made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((host, number))
        except (OSError, OverflowError) as error:
            made.close()
            if port is None and number:
                continue
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(
                f"cannot listen on {host}, port {number}: {reason}; give another --port"
            ) from None
        made.listen(2048)
        return made
    raise AssertionError  # the last port is any: it was returned, or refused above


class _Server(uvicorn.Server):
    """uvicorn, ended by a signal as a success, and telling live streams to end first."""

    def __init__(self, config: uvicorn.Config, closing: Callable[[], None]) -> None:
        super().__init__(config)
        self._closing = closing

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End on a signal; a second one ends at once."""
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop taking requests and finish those that are under way."""
        self._closing()
        super().handle_exit(sig, frame)


def serve(
    database_url: str,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    public_url: str | None = None,
    settings: Settings | None = None,
    open_browser: bool = False,
    new_link: bool = False,
    revoke_links: bool = False,
    inference: bool = True,
    log_requests: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Run the service until a signal ends it.

    Parameters
    ----------
    database_url
        A file of SQLite, made where there is none, or ``postgresql://…``.
    host, port
        Where to listen. Beyond this machine only with a ``public_url``.
    open_browser
        Open the owner's page in a browser.
    new_link
        Make another owner link, also where one was made before.
    revoke_links
        End all earlier owner links and the logins by them, and make another one.
    inference
        Start the inference process; without it, tasks with the fewest answers come first.
    say
        Called with messages for the owner: the address and, once, the owner link.
    """
    if not is_loopback(host) and public_url is None:
        raise ConfigError(
            f"--host {host} lets other machines connect; add --public-url, the https address that "
            "people use"
        )
    start_logging(level=logging.INFO if log_requests else logging.WARNING)
    with listen(host, port) as ears:
        taken = ears.getsockname()[1]
        local = f"http://{f'[{host}]' if ':' in host else host}:{taken}"
        given = replace(settings or Settings.from_environment(), public_url=public_url or local)
        app = create_app(database_url, settings=given)
        if port is None and taken != DEFAULT_PORT:
            say(f"port {DEFAULT_PORT} is taken; using port {taken}")
        link = owner_link(app, renew=new_link, revoke=revoke_links)
        _greet(given, link, say)
        if open_browser:
            page = link or given.url("/")
            threading.Timer(0.5, webbrowser.open, (page,)).start()
        command = [sys.executable, "-m", "voxpop.service.inference", database_url]
        _run(app, ears, Child(command=command) if inference else None)
    say("stopped; everything that was acknowledged is in the database")


def _run(app: FastAPI, ears: socket.socket, child: Child | None) -> None:
    """Run the web process here, and its child, until a signal ends both."""
    config = uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False,
        timeout_graceful_shutdown=5, timeout_keep_alive=30, ws="none",
    )  # fmt: skip
    if child is not None:
        child.start()
    try:
        _Server(config, app.state.service.close_streams).run(sockets=[ears])
    finally:
        if child is not None:
            child.stop()


def _greet(settings: Settings, link: str | None, say: Callable[[str], None]) -> None:
    if link is not None:
        say("owner link, shown only once (--new-link makes another):")
        say(f"  {link}")
    say(f"voxpop runs at {settings.url('/')} (Ctrl-C stops it)")
