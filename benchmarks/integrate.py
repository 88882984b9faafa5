"""A fit under a rich noise model, its integrals in numpy and compiled, side by side.

    python -m benchmarks.integrate [--quick]

Heavy tails and biases are learned, on a simulated crowd and on the real data sets, where these
are at hand. Times are the least CPU time of a sweep (first while learning, to four digits, then
while messages settle, to seven), of the posterior and of the audit, on one thread, both taking
turns; `differ` is how far apart the estimates are, at most, in units of their sd.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import wraps
from unittest.mock import patch

import numpy as np

import voxpop as vp
from benchmarks.workloads import ROOT, WORKLOADS, parse, print_head, print_table
from voxpop.estimators.bi.initialise import prepare
from voxpop.estimators.bi.noise_fit import NoiseFit
from voxpop.estimators.bi.noise_fitted import NoiseFitted
from voxpop.inference.engine import Engine, native_is_installed
from voxpop.inference.groups import SweepParameters
from voxpop.inference.message_passing import MessagePassing
from voxpop.models.noise import Noise

DATA = ROOT.parent / "shared" / "data"
NAMES = ("moviereviews", "pedestrian_boxes")
# Sweeps of each kind: as many as tell the least time of one.
SWEEPS = 3

# What is timed, by its name in the tables.
METHODS = {"sweep": "sweep", "posterior": "posterior_and_classes", "audit": "predict"}

Times = dict[str, float]


def clocked(method: Callable[..., object], name: str, times: Times) -> Callable[..., object]:
    """Keep the least CPU time of a method's calls; sweeps are told apart by their accuracy."""

    @wraps(method)
    def run(self: MessagePassing, *given: object, **parameters: object) -> object:
        start = time.process_time()
        found = method(self, *given, **parameters)
        key, law = name, parameters.get("parameters")
        if name == "sweep":
            if not isinstance(law, SweepParameters):
                return found  # of the plain model, whose levels a fit starts from
            key = f"{name} {law.accuracy:.0e}"
        times[key] = min(times.get(key, np.inf), time.process_time() - start)
        return found

    return run


def fit(answers: vp.Answers, backend: str, times: Times) -> NoiseFitted:
    """Fit once, a few sweeps long."""
    noise = Noise(tails="learn", bias=True)
    methods = {
        method: clocked(getattr(MessagePassing, method), name, times)
        for name, method in METHODS.items()
    }
    start = time.process_time()
    with patch.multiple(MessagePassing, **methods), warnings.catch_warnings():
        # So few sweeps converge nowhere.
        warnings.simplefilter("ignore")
        fitting = NoiseFit(prepare(answers), noise, Engine(backend=backend), "auto")
        found = fitting.fit(1e-5, SWEEPS, 1e-9)
    key = f"fit of {2 * SWEEPS} sweeps"
    times[key] = min(times.get(key, np.inf), time.process_time() - start)
    return found


def compare(name: str, answers: vp.Answers, rounds: int) -> None:
    """Print one data set's table."""
    size = f"{answers.n_tasks:,} tasks, {answers.n_edges:,} answers, d = {answers.dimension}"
    print(f"### {name}: {size}\n")
    times: dict[str, Times] = {"portable": {}, "native": {}}
    found = {}
    for _ in range(rounds):
        for backend, kept in times.items():
            found[backend] = fit(answers, backend, kept).posterior
    theirs, ours = found["portable"], found["native"]
    differ = np.abs(ours.estimate - theirs.estimate) / np.sqrt(theirs.variance)
    rows = [
        [what, 1e3 * slow, 1e3 * times["native"][what], f"{slow / times['native'][what]:.1f} x"]
        for what, slow in times["portable"].items()
    ]
    print_table(["what", "portable, ms", "native, ms", "ratio"], rows)
    print(f"Estimates differ by {differ.max():.1g} sd.\n")


def main() -> None:
    """Print the table of every data set."""
    options = parse(__doc__)
    print_head("A rich noise model")
    if not native_is_installed():
        print("The compiled kernels were not built with this package: nothing to compare.")
        return
    rounds = 1 if options.quick else 3
    crowd = WORKLOADS["W1"] if options.quick else WORKLOADS["W2"]
    compare(str(crowd), crowd.draw(dimension=1).answers, rounds)
    for name in NAMES:
        path = DATA / name / "answers.csv.gz"
        if path.exists():
            compare(name, vp.read_answers(path), rounds)


if __name__ == "__main__":
    main()
