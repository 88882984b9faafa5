"""How long until a newcomer has a result? Install, import, help, first result, all cold.

    python -m benchmarks.cold [--quick]

The wheel is built first, which does not count, and installed with pip into fresh environments,
its dependencies from pip's cache. Everything else runs in fresh processes of that environment.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

import voxpop as vp
from benchmarks.workloads import LEVELS, ROOT, parse, print_head, print_table, run_process


def repeat(command: list[str | Path], times: int, cwd: Path) -> list[float]:
    """Wall seconds of a command in so many fresh processes."""
    return [run_process(command, keep_output=False, cwd=cwd).wall for _ in range(times)]


def install(wheel: Path, folder: Path, times: int) -> list[float]:
    """Wall seconds of installing the wheel; the environment of the last time stays."""
    seconds = []
    for _ in range(times):
        run_process([sys.executable, "-m", "venv", "--clear", folder / "venv"])
        pip = [folder / "venv/bin/python", "-m", "pip", "install", "--quiet", wheel]
        seconds.append(run_process(pip).wall)
    return seconds


def main() -> None:
    """Print one row per step."""
    options = parse(__doc__)
    print_head("Cold start", ("pandas", "duckdb", "click"))
    times = 5
    with TemporaryDirectory() as name:
        folder = Path(name)
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
        run_process([*pip, "--wheel-dir", folder, ROOT])
        (wheel,) = folder.glob("*.whl")
        rng = np.random.default_rng(1)
        model = vp.Model(support=LEVELS)
        vp.simulate(model, vp.assign_regular(200, 5, 10, rng), rng).save(folder / "crowd")
        found = {"pip install": install(wheel, folder, 1 if options.quick else times)}
        bin_ = folder / "venv/bin"
        python, voxpop = bin_ / "python", bin_ / "voxpop"
        table = folder / "crowd/answers.csv"
        commands: dict[str, list[str | Path]] = {
            "python -c pass": [python, "-c", "pass"],
            "import voxpop": [python, "-c", "import voxpop"],
            "from voxpop import BI": [python, "-c", "from voxpop import BI"],
            "voxpop --help": [voxpop, "--help"],
            "voxpop aggregate, 1,000 answers": [voxpop, "aggregate", table],
            "the same, levels given": [voxpop, "aggregate", table, "--support", "10,100,1000"],
        }
        for label, command in commands.items():
            found[label] = repeat(command, times, folder)
    rows = [[label, len(s), min(s), median(s)] for label, s in found.items()]
    print_table(["step", "times", "least wall s", "median wall s"], rows)


if __name__ == "__main__":
    main()
