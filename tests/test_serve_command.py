"""`voxpop serve` as a user has it: the first minute, ports, a second server, signals, no extra."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner

pytest.importorskip("fastapi", reason="the extra serve is not installed")

import voxpop as vp
from tests.dockerfile import documented_arguments, instructions
from voxpop.cli import main
from voxpop.cli.serve import serve
from voxpop.service.serve import Child, is_loopback, listen

MINUTE = 60.0


class Running:
    """A `voxpop serve` in a process of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "voxpop", "serve", *arguments],
            cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.said = ""
        assert self.process.stderr is not None
        while "voxpop runs at" not in self.said:
            line = self.process.stderr.readline()
            assert line, self.said
            self.said += line
        found = re.search(r"voxpop runs at (http://\S+?)/ ", self.said)
        assert found is not None
        self.url = found[1]
        self._wait()

    @property
    def link(self) -> str:
        """The owner link, as it was printed."""
        found = re.search(r"http://\S+/login\?token=\S+", self.said)
        assert found is not None, self.said
        return found[0]

    def _wait(self) -> None:
        while time.monotonic() < self.began + MINUTE:
            try:
                with urlopen(f"{self.url}/readyz", timeout=5):
                    return
            except OSError:
                time.sleep(0.05)
        raise AssertionError("the service did not get ready")

    def post(self, path: str, body: Any, token: str | None = None, method: str = "POST") -> Any:
        headers = {"Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        content = json.dumps(body).encode()
        request = Request(f"{self.url}/api/v1{path}", content, headers, method=method)
        with urlopen(request, timeout=20) as reply:
            return json.loads(reply.read())

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it by a signal; return its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.said += self.process.communicate(timeout=30)[1]
        return self.process.returncode


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[Running]:
    found = Running(folder, *arguments)
    try:
        yield found
    finally:
        if found.process.poll() is None:
            found.process.kill()
            found.process.communicate()


def test_the_help_shows_the_options_of_running_too() -> None:
    text = CliRunner().invoke(main, ["serve", "--help"]).output
    running = CliRunner().invoke(main, ["serve", "run", "--help"]).output
    flags = re.findall(r"--[a-z-]+", running.partition("Options:")[2])
    assert len(set(flags)) > 8
    assert set(flags) <= set(re.findall(r"--[a-z-]+", text.partition("Options:")[2]))
    documented = (Path(__file__).parent.parent / "docs/commands.md").read_text()
    assert all(f"`{flag}`" in documented for flag in flags)


@pytest.mark.slow
def test_the_first_minute(tmp_path: Path) -> None:
    """From the command to an answer in the summary, with estimates from inference, in a minute."""
    with serving(tmp_path, "new.db") as service:
        client = vp.Client(service.link).create(
            "Ages of trees", {"kind": "number", "text": "How old?"}, rules={"practice": 0}
        )
        client.add_tasks([f"tree {k}" for k in range(3)])
        invite = client.link().partition("invite=")[2]
        before = client.summary()
        entered = service.post("/c/ages-of-trees/enter", {"invite": invite})
        token = entered["worker_token"]
        offer = service.post("/next", {}, token)["offer"]
        answer = {"value": [80], "lead_ms": 900}
        service.post(f"/offers/{offer['id']}/answer", answer, token, "PUT")
        while client.summary()["n_answers"] == before["n_answers"]:
            assert time.monotonic() < service.began + MINUTE
        assert time.monotonic() < service.began + MINUTE
        # Inference follows: the estimate of the task that was answered.
        while client.estimates().empty or client.summary()["inference"] != "running":
            assert time.monotonic() < service.began + 2 * MINUTE
            time.sleep(0.2)
        row = client.estimates().set_index("name").loc["tree 0"]
        assert row["estimate"] == pytest.approx([80.0])
        # Ctrl-C is a success; the owner link is not shown again.
        assert service.stop(signal.SIGINT) == 0
        assert "everything that was acknowledged is in the database" in service.said
    with serving(tmp_path, "new.db") as service:
        assert "owner link" not in service.said
        assert (
            vp.Client(service.url, client._wire.token, "ages-of-trees").summary()["n_answers"] == 1
        )
        assert service.stop(signal.SIGTERM) == 0


@pytest.mark.slow
def test_a_second_server_and_a_taken_port(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 8000))
            taken.listen()
        except OSError:
            pass  # somebody else has it: as good
        with serving(tmp_path, "a.db", "--no-inference") as service:
            assert (
                f"port 8000 is taken; using port {service.url.rpartition(':')[2]}" in service.said
            )
            second = subprocess.run(
                [sys.executable, "-m", "voxpop", "serve", "a.db", "--no-inference"],
                cwd=tmp_path, capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert second.returncode == 1
            assert second.stderr == (
                "Error: a.db: is open in another process; a campaign has one writer\n"
            )
            with urlopen(f"{service.url}/healthz") as reply:
                assert reply.status == 200


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--host", "0.0.0.0", "a.db"], "add --public-url"),
        (["mysql://x/y"], "expected a file name or postgresql://"),
        (["no/such/folder/a.db"], "make it first"),
        (["check", "none.db"], "none.db: no such file"),
        (["migrate", "none.db"], "none.db: no such file"),
        (["backup", "none.db", "b.db"], "none.db: no such file"),
        (["a.db", "--public-url", "ask.example.org"], "public_url must be like https://"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["serve", *arguments])
    assert done.exit_code == 1
    assert said in done.stderr
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1


def test_a_file_that_is_no_database_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.db").write_text("hello " * 1000)
    done = CliRunner().invoke(main, ["serve", "text.db"])
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: text.db: ")
    assert done.stderr.count("\n") == 1


def test_the_dockerfile_copies_what_is_there_and_runs_a_command_that_is() -> None:
    """No Docker here: what it copies exists and is let through, and its command is understood."""
    root = Path(__file__).parents[1]
    lines = instructions((root / "Dockerfile").read_text())
    told = dict(lines)
    copied = [
        name
        for word, rest in lines
        if word == "COPY" and not rest.startswith("--from")
        for name in rest.split()[:-1]
    ]
    ignored = (root / ".dockerignore").read_text().splitlines()
    assert ignored[1] == "*"
    assert sorted(copied) == sorted(line[1:] for line in ignored if line.startswith("!"))
    assert all((root / name).exists() for name in copied)
    assert {"README.md", "LICENSE"} <= set(copied), "pyproject.toml names them"
    voxpop, group, command, *arguments = json.loads(told["ENTRYPOINT"]) + json.loads(told["CMD"])
    assert (voxpop, group, command) == ("voxpop", "serve", "run")
    # What the docs give to the image stands in place of CMD, as Docker has it.
    fixed = json.loads(told["ENTRYPOINT"])[3:]
    for said in (arguments, [*fixed, *documented_arguments()]):
        given = serve.commands["run"].make_context("run", list(said)).params
        assert given["database"].startswith(told["WORKDIR"] + "/")
        assert given["port"] == int(told["EXPOSE"])
        assert f"127.0.0.1:{given['port']}/readyz" in told["HEALTHCHECK"]
        assert not is_loopback(given["host"])
        assert given["public_url"]


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["voxpop.cli.serve"]
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "limits" else name)
    done = CliRunner().invoke(main, ["serve", "a.db"])
    assert done.exit_code == 1
    assert done.stderr == ("Error: voxpop serve needs more packages: pip install 'voxpop[serve]'\n")


def test_migrate_check_and_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from voxpop.service.database import Database

    monkeypatch.chdir(tmp_path)
    Database.open("a.db").close()
    for arguments, said in (
        (["migrate", "a.db"], "already"),
        (["check", "a.db"], "no errors found"),
        (["backup", "a.db", "b.db"], "wrote b.db"),
        (["check", "b.db"], "no errors found"),
    ):
        done = CliRunner().invoke(main, ["serve", *arguments])
        assert (done.exit_code, said in done.stderr) == (0, True), done.stderr
    assert CliRunner().invoke(main, ["serve", "backup", "a.db", "b.db"]).exit_code == 1


def test_a_dead_child_is_started_again_and_stopped_in_the_end(tmp_path: Path) -> None:
    """It ends with its parent's pipe: nothing is left behind when the parent is killed."""
    script = tmp_path / "child.py"
    script.write_text("import sys; sys.stdin.read()")
    child = Child(command=[sys.executable, str(script)], shortest_wait=0.01)
    child.start()
    seen: set[int] = set()
    until = time.monotonic() + MINUTE
    while len(seen) < 3 and time.monotonic() < until:
        process = child.process
        if process is not None and process.pid not in seen:
            seen.add(process.pid)
            os.kill(process.pid, signal.SIGKILL)
        time.sleep(0.01)
    assert len(seen) == 3
    child.stop()
    assert child.process is not None
    assert child.process.poll() is not None
    n = child.n_starts
    time.sleep(0.1)
    assert child.n_starts == n


def test_hosts_and_ports() -> None:
    assert [is_loopback(h) for h in ("127.0.0.1", "::1", "localhost")] == [True] * 3
    assert [is_loopback(h) for h in ("0.0.0.0", "10.0.0.1", "ask.example.org", "::")] == [False] * 4
    taken = pytest.raises(vp.ConfigError, match="give another --port")
    with listen("127.0.0.1", 0) as ears, taken:
        listen("127.0.0.1", ears.getsockname()[1])
    with pytest.raises(vp.ConfigError):
        listen("127.0.0.1", 99999)
