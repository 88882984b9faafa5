"""The steps of the Dockerfile without Docker: python -m tests.dockerfile --python /usr/bin/python3

In a temporary folder that stands for the image's root: what is copied, what pip installs (from the
network) with nothing else on the path but the system's compiler, the command that the docs start it
with, as a user without rights where the interpreter is for all, and the check of its health. What
needs Debian's packages or makes the user is left out: apt-get, useradd and chown are said, not run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs" / "how-to" / "serve-for-a-team.md"
LEFT_OUT = ("apt-get", "rm -rf /var", "useradd", "mkdir /data", "chown")
NOBODY, PATIENCE = 65534, 120.0


def instructions(text: str) -> list[tuple[str, str]]:
    """The lines of a Dockerfile as (instruction, what it is told)."""
    lines = re.sub(r"\\\n", " ", text).splitlines()
    told = [line.partition(" ") for line in lines if line and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in told]


def documented_arguments() -> list[str]:
    """What the docs tell `docker run` to give to the image: all after its name."""
    (line,) = re.findall(r"^ +docker run (.+)$", DOCS.read_text(), re.MULTILINE)
    words = str(line).split()
    return words[words.index("voxpop") + 1 :]


@dataclass
class Image:
    """A folder that stands for the root of an image, and what the Dockerfile has said so far."""

    root: Path
    python: str = sys.executable
    work: str = "/"
    path: str = "/usr/bin:/bin"
    told: dict[str, str] = field(default_factory=dict)

    def here(self, text: str) -> str:
        """A text with the image's folders as they are called here."""
        return re.sub(r"(?<![\w/.:])/(source|voxpop|data)\b", rf"{self.root}/\1", text)

    def environment(self) -> dict[str, str]:
        """Nothing but where programs are, and pip's own settings."""
        kept = {name: item for name, item in os.environ.items() if name.startswith("PIP_")}
        home = {"HOME": str(self.root)} | {k: os.environ[k] for k in ("LANG",) if k in os.environ}
        return {**kept, **home, "PATH": self.path}

    def follow(self, word: str, rest: str) -> None:
        """Do what one instruction says."""
        self.told[word] = rest
        if word == "WORKDIR":
            self.work = self.here(rest)
            Path(self.work).mkdir(exist_ok=True)
        elif word == "ENV" and rest.startswith("PATH="):
            self.path = self.here(rest.removeprefix("PATH=")).replace("$PATH", self.path)
        elif word == "COPY" and not rest.startswith("--from"):
            *names, target = rest.split()
            for name in names:
                source, place = ROOT / name, Path(self.work, target)
                if source.is_dir():
                    shutil.copytree(source, place, ignore=shutil.ignore_patterns("*.so"))
                else:
                    shutil.copy(source, place)
        elif word == "RUN":
            for command in rest.split(" && "):
                if command.startswith(LEFT_OUT):
                    print("left out:", command)
                else:
                    print("run:", command, flush=True)
                    plain = self.here(command).replace("python ", f"{self.python} ", 1)
                    subprocess.run(
                        plain, shell=True, check=True, cwd=self.work, env=self.environment()
                    )

    def start(self, arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
        """Run the entry point with arguments, as a user without rights where there may be one."""
        command = json.loads(self.told["ENTRYPOINT"]) + arguments
        with log.open("wb") as out:
            return subprocess.Popen(
                [self.here(word) for word in command], cwd=self.work, stdin=subprocess.DEVNULL,
                stdout=out, stderr=out, env=self.environment(),
                user=self.user(),
            )  # fmt: skip

    def user(self) -> int | None:
        """A user without rights, where there may be one and the interpreter is for all."""
        if os.geteuid() != 0:
            return None
        try:
            program = self.root / "voxpop" / "bin" / "python"
            subprocess.run([program, "-c", ""], user=NOBODY, cwd="/", check=True)
        except PermissionError:
            return None
        return NOBODY

    def is_healthy(self) -> bool:
        """What HEALTHCHECK finds."""
        command = json.loads(self.told["HEALTHCHECK"].partition("CMD ")[2])
        done = subprocess.run(command, env=self.environment(), capture_output=True, check=False)
        return done.returncode == 0


def main() -> None:
    """Build, start, check and stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="The interpreter of the image.")
    given = parser.parse_args()
    with TemporaryDirectory() as name:
        root = Path(name).resolve()
        root.chmod(0o755)
        image = Image(root, given.python)
        for word, rest in instructions((ROOT / "Dockerfile").read_text()):
            image.follow(word, rest)
        (root / "data").mkdir(exist_ok=True)
        if (user := image.user()) is not None:
            os.chown(root / "data", user, user)
        print("as user", user)
        for arguments in (documented_arguments(), json.loads(image.told["CMD"])):
            began, log = time.monotonic(), root / "log"
            with image.start(arguments, log) as process:
                while not image.is_healthy():
                    assert process.poll() is None, log.read_text()
                    assert time.monotonic() < began + PATIENCE, log.read_text()
                    time.sleep(0.3)
                print(f"healthy after {time.monotonic() - began:.1f} s:", *arguments)
                process.terminate()
            print(re.sub("token=.*", "token=…", log.read_text()))
            assert process.returncode == 0
        assert (root / "data" / "campaign.db").stat().st_size


if __name__ == "__main__":
    main()
