"""Faults: kill the service at random moments while people answer, then look whether anything broke.

``python -m tests.serve_faults --kills 50 --seed 1 --database sqlite`` kills the web process and the
inference process that often each, with ``kill -9``. ``--fault`` picks others: a full disk, a
restart of the database (PostgreSQL), two servers at once. Afterwards: nothing acknowledged is
lost, no pair of task and worker is there twice, nobody is paid twice, the budget is kept, and the
events have no gap. Everything stays on this machine, in a temporary folder, and is bounded in time.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import select

from tests.postgres import PostgreSQL
from voxpop.service.api.state import add_token
from voxpop.service.check import check
from voxpop.service.database import Database
from voxpop.service.schema import answer, campaign, credit

PRICE = 3
# Bytes of the disk that becomes full: PostgreSQL's own files, and room for some answers.
_DISK = 160 << 20
# Seconds: a machine that does other work beside may take long to start a process.
_PATIENCE = 300.0
_NO_LIMITS = {
    f"VOXPOP_SERVE_{name}_LIMIT": "1000000/minute" for name in ("TOKEN", "ADDRESS", "ENTER")
}


def free_port() -> int:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return int(door.getsockname()[1])


@dataclass
class Process:
    """A process of the service that may be killed and started again."""

    command: list[str]
    log: Path
    running: subprocess.Popen[bytes] | None = None
    largest_file: int | None = None

    def start(self) -> None:
        def limit() -> None:
            if self.largest_file is not None:
                hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
                resource.setrlimit(resource.RLIMIT_FSIZE, (self.largest_file, hard))

        with self.log.open("ab") as log:
            self.running = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=log, stderr=log,
                env={**os.environ, **_NO_LIMITS}, preexec_fn=limit,
            )  # fmt: skip

    def kill(self) -> None:
        assert self.running is not None
        self.running.kill()
        self._ended()

    def stop(self) -> None:
        if self.running is not None:
            self.running.terminate()
            self._ended()

    def _ended(self) -> None:
        assert self.running is not None
        self.running.wait(_PATIENCE)
        if self.running.stdin is not None:
            self.running.stdin.close()
        self.running = None


def ask(port: int, method: str, path: str, token: str = "", body: Any = None) -> tuple[int, Any]:
    """Send one request over a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        content = None if body is None else json.dumps(body)
        connection.request(method, f"/api/v1{path}", content, headers)
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read() or b"null")
    finally:
        connection.close()


@dataclass
class Site:
    """A database, one or two web processes on it, and an inference process."""

    url: str
    folder: Path
    n_web: int = 1
    n_tasks: int = 400
    web: list[Process] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    owner: str = ""
    slug: str = "faults"
    invite: str = ""

    def __post_init__(self) -> None:
        for i in range(self.n_web):
            port = free_port()
            command = [sys.executable, "-m", "voxpop", "serve", self.url, "--no-inference"]
            self.web.append(Process([*command, "--port", str(port)], self.folder / f"web{i}.log"))
            self.ports.append(port)
        self.inference = Process(
            [sys.executable, "-m", "voxpop.service.inference", self.url],
            self.folder / "inference.log",
        )

    def start(self) -> None:
        with Database.open(self.url) as database:
            self.owner = add_token(database, "owner")
        for i in range(self.n_web):
            self.start_web(i)
        self.inference.start()

    def start_web(self, i: int) -> None:
        self.web[i].start()
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                ask(self.ports[i], "GET", "/campaigns", self.owner)
                return
            except OSError:
                running = self.web[i].running
                told = self.web[i].log.read_text()[-2000:]
                assert running is not None
                assert running.poll() is None, f"the service ended: {told}"
                assert time.monotonic() < deadline, f"the service does not answer: {told}"
                time.sleep(0.05)

    def owner_asks(self, method: str, path: str, body: Any = None) -> Any:
        """As the owner, until it is done: whatever is asked here may be asked twice."""
        for _ in range(200):
            try:
                status, found = ask(self.ports[0], method, path, self.owner, body)
            except (OSError, http.client.HTTPException):
                status, found = 503, None
            if status < 300 or (status == 409 and method == "POST"):
                return found
            assert status == 503, (status, found)
            time.sleep(0.1)
        raise AssertionError(f"{method} {path}: the service did not come back")

    def prepare(self, budget: int) -> None:
        self.owner_asks(
            "POST", "/campaigns",
            {"slug": self.slug, "title": "Faults",
             "question": {"kind": "number", "text": "How old?"}, "budget": budget,
             "rules": {"price": PRICE, "practice": 0, "answers_per_task": 6, "lease_seconds": 5}},
        )  # fmt: skip
        tasks = [{"name": f"t{k}", "content": {"text": str(k)}} for k in range(self.n_tasks)]
        self.owner_asks("POST", f"/campaigns/{self.slug}/tasks", tasks)
        self.owner_asks("PATCH", f"/campaigns/{self.slug}", {"state": "open"})
        made = self.owner_asks("POST", f"/campaigns/{self.slug}/links", {"kind": "invite"})
        self.invite = made["token"]

    def stop(self) -> None:
        for one in (*self.web, self.inference):
            one.stop()


@dataclass
class Crowd:
    """People who answer, each in a thread, and what they were told is stored."""

    site: Site
    seed: int
    n_workers: int = 8
    acknowledged: dict[str, float] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        self.lock = threading.Lock()
        self.threads = [
            threading.Thread(target=self._work, args=(k,), daemon=True)
            for k in range(self.n_workers)
        ]
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join(_PATIENCE)

    def wait_for(self, n: int, seconds: float) -> None:
        """Let so many more answers be acknowledged."""
        deadline, target = time.monotonic() + seconds, len(self.acknowledged) + n
        while len(self.acknowledged) < target:
            assert time.monotonic() < deadline, (
                f"{len(self.acknowledged)} acknowledged, {target} expected; {self.refused}; "
                f"{self.problems}"
            )
            time.sleep(0.02)

    def _ask(self, rng: random.Random, *request: Any) -> tuple[int, Any]:
        """Ask any server until one replies; None when all is over."""
        while not self.over.is_set():
            try:
                status, found = ask(rng.choice(self.site.ports), *request)
            except (OSError, http.client.HTTPException):
                self._count("no reply")
            else:
                if status != 503:
                    return status, found
                self._count(found["reason"])
            time.sleep(0.1)
        return 0, None

    def _count(self, reason: str) -> None:
        with self.lock:
            self.refused[reason] += 1

    def _work(self, k: int) -> None:
        rng = random.Random(self.seed * 1000 + k)
        body = {"invite": self.site.invite, "provider": "link", "params": {}}
        status, entered = self._ask(rng, "POST", f"/c/{self.site.slug}/enter", "", body)
        token = entered["worker_token"] if status == 200 else ""
        while not self.over.is_set():
            status, found = self._ask(rng, "POST", "/next", token)
            if status != 200:
                if status:
                    self.problems.append(f"next: {status} {found}")
                return
            if found["offer"] is None:
                self._count(found["reason"])
                time.sleep(0.05)
                continue
            self._answer(rng, token, found["offer"]["id"])

    def _answer(self, rng: random.Random, token: str, offer: str) -> None:
        value = round(rng.uniform(0, 100), 3)
        if rng.random() < 0.15:
            self._two_tabs(rng, token, offer, value)
            return
        self._send(rng, token, offer, value)

    def _send(self, rng: random.Random, token: str, offer: str, value: float) -> None:
        path, body = f"/offers/{offer}/answer", {"value": [value], "lead_ms": 500}
        status, found = self._ask(rng, "PUT", path, token, body)
        with self.lock:
            if status == 200:
                before = self.acknowledged.setdefault(offer, value)
                if before != value:
                    self.problems.append(f"{offer}: {before} and {value} were acknowledged")
            elif status not in (0, 409, 410):
                self.problems.append(f"answer: {status} {found}")
            elif status:
                self.refused[found["reason"]] += 1

    def _two_tabs(self, rng: random.Random, token: str, offer: str, value: float) -> None:
        """Two values for one offer at once: one of them is taken, at most."""
        tabs = [
            threading.Thread(
                target=self._send, args=(random.Random(rng.random()), token, offer, value + k)
            )
            for k in range(2)
        ]
        for tab in tabs:
            tab.start()
        for tab in tabs:
            tab.join()


def findings(site: Site, crowd: Crowd) -> list[str]:
    """Whatever should not be so in the database, given what was acknowledged."""
    found = [*crowd.problems]
    with Database.open(site.url) as database:
        found += check(database)
        with database.connect() as connection:
            stored = {
                row.offer: row.value
                for row in connection.execute(select(answer.c.offer, answer.c.value))
            }
            pairs = Counter(connection.execute(select(answer.c.task, answer.c.worker)).all())
            paid = connection.execute(select(credit.c.amount)).scalars().all()
            row = connection.execute(select(campaign)).one()
    lost = [k for k, value in crowd.acknowledged.items() if stored.get(k) != [value]]
    if lost:
        found.append(f"{len(lost)} acknowledged answers are lost or changed: {lost[:3]}")
    if any(n > 1 for n in pairs.values()):
        found.append("a worker's answer to a task is there twice")
    if sum(paid) != PRICE * len(stored) or row.spent != sum(paid):
        found.append(f"{len(stored)} answers, {sum(paid)} paid, {row.spent} spent")
    if row.budget is not None and row.spent + row.reserved > row.budget:
        found.append("the budget is passed")
    return found


def report(site: Site, crowd: Crowd, say: Callable[[str], None]) -> None:
    with Database.open(site.url) as database, database.connect() as connection:
        n = len(connection.execute(select(answer.c.offer)).all())
        seq = connection.execute(select(campaign.c.seq)).scalar_one()
    say(
        f"{len(crowd.acknowledged)} acknowledged, {n} stored "
        f"({n - len(crowd.acknowledged)} without a reply that arrived), {seq} events; "
        f"refused or not replied: {dict(crowd.refused)}"
    )


# ---------------------------------------------------------------- the faults


def kills(site: Site, crowd: Crowd, n: int, rng: random.Random) -> None:
    """Kill the web process and inference so many times each, in random order."""
    order = ["web"] * n + ["inference"] * n
    rng.shuffle(order)
    for what in order:
        time.sleep(rng.uniform(0.0, 0.5))
        if what == "web":
            i = rng.randrange(site.n_web)
            site.web[i].kill()
            site.start_web(i)
            crowd.wait_for(rng.randint(1, 20), _PATIENCE)
        else:
            site.inference.kill()
            site.inference.start()
            crowd.wait_for(rng.randint(1, 10), _PATIENCE)


def full_disk(site: Site, crowd: Crowd, server: PostgreSQL | None) -> None:
    """No file may grow: answers are refused, not lost; later the service goes on by itself."""
    running = site.web[0].running
    assert running is not None
    assert site.n_web == 1
    if server is None:
        largest = max(path.stat().st_size for path in Path(site.url).parent.glob("campaign.db*"))
        resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (largest + 20_000, -1))
    else:
        ballast = server.fill()
    deadline = time.monotonic() + _PATIENCE
    while not crowd.refused["storage"]:
        assert time.monotonic() < deadline, "the disk did not become full"
        time.sleep(0.02)
    n = len(crowd.acknowledged)
    time.sleep(0.5)
    if server is None:
        resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (-1, -1))
    else:
        ballast.unlink()
        server.go_on()
    crowd.wait_for(20, _PATIENCE)
    assert len(crowd.acknowledged) > n


def restart(server: PostgreSQL, crowd: Crowd, n: int) -> None:
    """Stop the database in the midst of it, as a crash would, and start it again."""
    for _ in range(n):
        server.stop(at_once=True)
        time.sleep(0.2)
        server.start()
        crowd.wait_for(20, _PATIENCE)


def second_server(site: Site) -> str:
    """Start a second server on a SQLite file; it must refuse in one line."""
    command = [sys.executable, "-m", "voxpop", "serve", site.url, "--port", str(free_port())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE)
    assert done.returncode == 1, done
    (line,) = done.stderr.strip().splitlines()
    assert "is open in another process; a campaign has one writer" in line
    return line


def use_up_the_budget(site: Site, crowd: Crowd) -> None:
    """Leave money for a few more answers only, and let everybody try to get it."""
    for left in (40, 60, 100, 200):
        row = site.owner_asks("GET", f"/campaigns/{site.slug}")
        budget = row["spent"] + row["reserved"] + left
        try:
            site.owner_asks("PATCH", f"/campaigns/{site.slug}", {"budget": budget})
            break
        except AssertionError:
            continue  # more was spent meanwhile than is left
    deadline = time.monotonic() + _PATIENCE
    while not crowd.refused["budget"]:
        assert time.monotonic() < deadline, "the budget was not used up"
        time.sleep(0.02)


def run(
    database: str,
    fault: str,
    n: int,
    seed: int,
    say: Callable[[str], None],
    server: PostgreSQL | None = None,
) -> list[str]:
    """Let a fault happen while people answer, and return what is wrong afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="voxpop-faults-"))
    own = None
    try:
        if database == "postgresql":
            disk = _DISK if fault == "disk" else None
            alone = server is None or fault in ("restart", "disk")
            own = PostgreSQL(durable=True, disk=disk) if alone else None
            server = own or server
            assert server is not None
            url = server.make_database(f"faults_{seed}_{fault}_{random.randrange(10**9)}")
        else:
            url = str(folder / "campaign.db")
        two = fault == "servers" and database == "postgresql"
        site = Site(url, folder, n_web=2 if two else 1, n_tasks=max(400, 100 * n))
        crowd = Crowd(site, seed)
        site.start()
        try:
            site.prepare(budget=PRICE * site.n_tasks * 6)
            crowd.start()
            crowd.wait_for(10, _PATIENCE)
            if fault == "kills":
                kills(site, crowd, n, random.Random(seed))
            elif fault == "disk":
                full_disk(site, crowd, server)
            elif fault == "restart":
                assert server is not None
                restart(server, crowd, n)
            elif two:
                kills(site, crowd, n, random.Random(seed))
            else:
                say(second_server(site))
            use_up_the_budget(site, crowd)
            crowd.stop()
        finally:
            crowd.over.set()
            site.stop()
        report(site, crowd, say)
        return findings(site, crowd)
    finally:
        if own is not None:
            own.remove()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=5, help="of each process, or restarts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--fault", choices=["kills", "disk", "restart", "servers"], default="kills")
    given = parser.parse_args()
    if (given.fault, given.database) == ("restart", "sqlite"):
        parser.error("--fault restart is for the other database")
    found = run(given.database, given.fault, given.kills, given.seed, print)
    for line in found:
        print(line)
    print("broken" if found else "nothing acknowledged is lost, no errors found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
