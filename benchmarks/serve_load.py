"""How long people wait for the service: many of them at once, while the model is being learned.

python -m benchmarks.serve_load [--quick] [--workers 500] [--seconds 60]

A campaign of 10^5 tasks with answers, on SQLite; 500 workers who think about 5 seconds between a
task and its answer; an empty endpoint (/healthz) asked beside them by a client of its own. The
client shares the machine with the service, so its CPU time is told too. Bounded in count and time,
this machine only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from voxpop.service import commands as c
from voxpop.service.api.state import add_token
from voxpop.service.check import check
from voxpop.service.database import Database
from voxpop.service.writer import Writer

THINK = 5.0
SLUG = "load"
_MOST_REQUESTS = 200_000
_CHUNK = 2_000


def fill(database: Database, n_tasks: int, n_answers: int, seed: int) -> str:
    """Make the campaign and the answers that it has already; return a link's token."""
    rng = np.random.default_rng(seed)
    writer = Writer(database)
    (made,) = writer.transact(
        [
            c.CreateCampaign(
                slug=SLUG, title="Load", question={"kind": "number", "text": "How many?"},
                rules={"price": 1, "practice": 0, "gold_share": 0.0, "half_width": 1e-3},
                budget=10**9, state="open",
            )
        ]
    )  # fmt: skip
    assert isinstance(made, c.Created)
    number = made.campaign
    for k in range(0, n_tasks, _CHUNK):
        names = range(k, min(k + _CHUNK, n_tasks))
        tasks = [c.NewTask(name=f"t{i}", content={"text": f"Task {i}"}) for i in names]
        writer.transact([c.AddTasks(campaign=number, tasks=tasks)])
    truth = rng.normal(50, 20, n_tasks)
    sd = rng.choice([1.0, 3.0, 10.0], 200)
    # Whole rounds over the tasks, each worker once a task at most.
    for k in range(0, n_answers, _CHUNK):
        rows = []
        for j in range(k, min(k + _CHUNK, n_answers)):
            task, person = j % n_tasks, (j // n_tasks + 7 * (j % n_tasks)) % 200
            value = float(truth[task] + sd[person] * rng.normal())
            rows.append(
                c.TakeAnswer(
                    campaign=number, source="import", source_id=str(j), task=f"t{task}",
                    external_hmac=f"p{person}", value=[value], version=1,
                )
            )  # fmt: skip
        for reply in writer.transact(rows):
            assert isinstance(reply, c.Answered), reply
    return add_token(database, "campaign_link", campaign=number)


class Connection:
    """A connection that is kept, and as little HTTP as will do: the client must not be the load."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, token: str, body: Any = None) -> tuple[int, Any]:
        """Send a request, and return the status and what came back."""
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self.streams
        content = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
            f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        writer.write(head.encode() + content)
        top = await reader.readuntil(b"\r\n\r\n")
        fields = top.lower().split(b"\r\n")
        length = next(int(f[15:]) for f in fields if f.startswith(b"content-length:"))
        found = await reader.readexactly(length)
        if b"connection: close" in fields:
            writer.close()
            self.streams = None
        return int(top.split(b" ", 2)[1]), json.loads(found or b"null")

    def close(self) -> None:
        """End the connection."""
        if self.streams is not None:
            self.streams[1].close()


class Load:
    """The workers, the empty endpoint's client, and how long each of their requests took."""

    def __init__(self, port: int, invite: str, n_workers: int, seconds: float, seed: int) -> None:
        self.port, self.invite, self.n_workers = port, invite, n_workers
        self.seconds, self.seed = seconds, seed
        self.times: dict[str, list[float]] = defaultdict(list)
        self.failed: dict[str, int] = defaultdict(int)
        self.measuring = False
        self.n_requests = 0

    async def timed(self, what: str, connection: Connection, *request: Any) -> Any:
        """Ask, and keep how long it took; None where it failed."""
        self.n_requests += 1
        began = time.perf_counter()
        try:
            status, found = await connection.ask(*request)
        except (OSError, asyncio.IncompleteReadError):
            status, found, connection.streams = 0, None, None
        if self.measuring:
            self.times[what].append(time.perf_counter() - began)
            if status != 200:
                self.failed[f"{what} {status}"] += 1
        return found if status == 200 else None

    async def work(self, k: int) -> None:
        """One worker: comes in, then a task, a thought, an answer, and so on."""
        rng = random.Random(self.seed * 10_000 + k)
        connection = Connection(self.port)
        # Arrivals are spread, as are the thoughts.
        await asyncio.sleep(rng.uniform(0, 2 * THINK))
        body = {"invite": self.invite, "provider": "link", "params": {}}
        entered = await self.timed("enter", connection, "POST", f"/api/v1/c/{SLUG}/enter", "", body)
        token = entered["worker_token"] if entered else ""
        while self.n_requests < _MOST_REQUESTS:
            found = await self.timed("next", connection, "POST", "/api/v1/next", token)
            await asyncio.sleep(rng.uniform(0.5 * THINK, 1.5 * THINK))
            if found and found["offer"]:
                path = f"/api/v1/offers/{found['offer']['id']}/answer"
                answer = {"value": [round(rng.gauss(50, 20), 2)], "lead_ms": int(THINK * 1000)}
                await self.timed("answer", connection, "PUT", path, token, answer)

    async def empty(self) -> None:
        """Ask the empty endpoint about 20 times a second."""
        connection = Connection(self.port)
        while True:
            await self.timed("empty endpoint", connection, "GET", "/healthz", "")
            await asyncio.sleep(0.05)

    async def run(self, warm_up: float, measured: list[int]) -> dict[str, float]:
        """Run warm-up and measurement; return CPU seconds by process while it was measured."""
        tasks = [asyncio.create_task(self.work(k)) for k in range(self.n_workers)]
        tasks.append(asyncio.create_task(self.empty()))
        await asyncio.sleep(warm_up)
        before, mine = cpu_seconds(measured), time.process_time()
        first = self.n_requests
        self.measuring = True
        await asyncio.sleep(self.seconds)
        self.measuring = False
        spent = {k: v - before.get(k, 0.0) for k, v in cpu_seconds(measured).items()}
        spent["client"] = time.process_time() - mine
        self.n_measured = self.n_requests - first
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return spent


def children(pid: int) -> list[int]:
    """All processes that a process started, and that these started."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *children(child)]
    return found


def cpu_seconds(pids: list[int]) -> dict[str, float]:
    """CPU time of the web process, and of all that it started."""
    ticks = os.sysconf("SC_CLK_TCK")
    found = {}
    for name, members in (("web", pids), ("inference", children(pids[0]))):
        total = 0
        for pid in members:
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            total += int(fields[11]) + int(fields[12])
            # Processes that have ended count for their parent.
            total += 0 if name == "web" else int(fields[13]) + int(fields[14])
        found[name] = total / ticks
    return found


def tell(load: Load, spent: dict[str, float], learned: list[str]) -> None:
    """Print the table and what stands beside it."""
    print("| request | count | p50 ms | p99 ms | longest ms |")
    print("|---|---|---|---|---|")
    for name in ("next", "answer", "empty endpoint"):
        ms = 1000 * np.array(load.times[name] or [np.nan])
        p50, p99 = np.percentile(ms, [50, 99])
        print(f"| {name} | {len(ms)} | {p50:.1f} | {p99:.1f} | {ms.max():.1f} |")
    print(
        f"\n{load.n_measured / load.seconds:.0f} requests/s; web process "
        f"{1000 * spent['web'] / load.n_measured:.2f} ms CPU a request; over the "
        f"{load.seconds:.0f} s: web {spent['web']:.1f} s, inference {spent['inference']:.1f} s, "
        f"client {spent['client']:.1f} s CPU; load average "
        f"{', '.join(f'{one:.1f}' for one in os.getloadavg())}; failed: {dict(load.failed) or 0}"
    )
    told = "; ".join(learned[-3:]) or "still under way at the end"
    print(f"The model was being learned meanwhile: {told}.")


def wait_until_up(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Wait for the service to listen."""
    deadline = time.monotonic() + 120
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the service did not start: {log.read_text()[-500:]}") from None
            time.sleep(0.1)


def main() -> None:
    """Fill a database, serve it, load it, and tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small and short")
    parser.add_argument("--workers", type=int, default=500)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--answers", type=int, default=200_000, help="there before")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.quick:
        given.workers, given.tasks, given.answers, given.seconds = 50, 2_000, 6_000, 15.0
    folder = Path(tempfile.mkdtemp(prefix="voxpop-load-"))
    log = folder / "log"
    try:
        url = str(folder / "load.db")
        with Database.open(url) as database:
            invite = fill(database, given.tasks, given.answers, given.seed)
        with socket.socket() as door:
            door.bind(("127.0.0.1", 0))
            port = door.getsockname()[1]
        limits = {
            f"VOXPOP_SERVE_{name}_LIMIT": "1000000/minute" for name in ("TOKEN", "ADDRESS", "ENTER")
        }
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "voxpop", "serve", url, "--port", str(port)],
                stdout=out, stderr=out, env={**os.environ, **limits},
            )  # fmt: skip
        try:
            wait_until_up(process, port, log)
            load = Load(port, invite, given.workers, given.seconds, given.seed)
            spent = asyncio.run(load.run(3 * THINK, [process.pid]))
        finally:
            process.terminate()
            process.wait(60)
        print("## The service under load (`benchmarks.serve_load`)\n")
        print(
            f"{given.workers} workers, {THINK:.0f} s between a task and its answer, "
            f"{given.tasks} tasks, {given.answers} answers before, SQLite, {os.cpu_count()} cores."
            "\n"
        )
        learned = [
            f"a fit of {json.loads(line)['seconds']} s ended"
            for line in log.read_text().splitlines()
            if '"learned"' in line
        ]
        tell(load, spent, learned)
        with Database.open(url) as database:
            found = check(database)
        print(f"`serve check` afterwards: {found or 'no errors found'}.")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
