"""Run all benchmarks, one after another, and print what they print; RESULTS.md keeps the figures.

python -m benchmarks [--quick] [NAME ...]
"""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

from benchmarks.workloads import ROOT, parse

NAMES = (
    *("sweep", "peers", "residual", "degrees", "scale", "cold", "floor"),
    *("integrate", "real", "crowds", "shared", "objects", "density", "adaptive", "teaching"),
)


def main() -> None:
    """Print the results of those named, or of all."""
    names = {"nargs": "*", "metavar": "NAME", "help": f"some of {', '.join(NAMES)}"}
    options = parse(__doc__, ("names", names))
    flags = ["--quick"] if options.quick else []
    sections = []
    for name in options.names or NAMES:
        print(f"{name} ...", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", f"benchmarks.{name}", *flags]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        sections.append(done.stdout.strip())
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            sections.append(f"`benchmarks.{name}` stopped: {last}")
    made = " ".join(["python -m benchmarks", *sys.argv[1:]])
    print("\n\n".join([f"Made by `{made}` on {datetime.now(UTC):%Y-%m-%d}.", *sections]))


if __name__ == "__main__":
    main()
