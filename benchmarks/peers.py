"""How fast are others at the same? One sweep of belief propagation, and whole fits.

    python -m benchmarks.peers [--quick]

Every engine's beliefs are compared with ours at the same sweep before it is timed; one that
disagrees is not timed. Times are minimum CPU seconds, all engines taking turns on one core.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np

import voxpop as vp
from benchmarks import fits
from benchmarks.engines import CannotRun, Engine, Ours, open_engine
from benchmarks.workloads import (
    LEVELS,
    WORKLOADS,
    Workload,
    mse,
    parse,
    print_head,
    print_table,
    run_module,
    take_turns,
    timed,
    use_one_core,
)
from voxpop.estimators.iterate import iterate_until
from voxpop.estimators.peers import Rasa, Sureal910
from voxpop.inference import engine as inference
from voxpop.inference.engine import native_is_installed
from voxpop.inference.message_passing import MessagePassing

ENGINES = (
    "ours, native",
    "ours, portable",
    "textbook",
    "textbook, factors kept",
    "PGMax, a call per sweep",
    "PGMax, its own scan",
)
APART = ("ours, native, coordinates apart", "ours, portable, coordinates apart")
# A Gibbs run that comes this near to the error of BI has reached it.
SAME = 1.01
BACKEND = "native" if native_is_installed() else "portable"


# One sweep


def compare_sweeps(workload: Workload, rounds: int, skip: dict[str, str]) -> None:
    """Open, check and time all engines on one crowd."""
    answers = workload.draw().answers
    # Beyond this number of configurations ours would not enumerate unasked.
    names = ENGINES + (APART if len(LEVELS) ** workload.per_task > 2**14 else ())
    engines: dict[str, Engine] = {}
    facts: dict[str, tuple[float | None, object]] = {}
    for name in names:
        try:
            if name in skip:
                raise CannotRun(skip[name])
            opened: list[Engine] = []
            setup = timed(lambda n=name, o=opened: _open_and_call(n, answers, o)).cpu
            facts[name] = setup, _disagreement(opened[0], answers, name.endswith("apart"))
            if isinstance(facts[name][1], float):
                engines[name] = opened[0]
        except CannotRun as reason:
            facts[name] = None, f"not run: {reason}"
    best = take_turns({name: e.advance for name, e in engines.items()}, rounds)
    best = {name: s / engines[name].sweeps_per_call for name, s in best.items()}
    ours = next(best[name] for name in names if name in best)
    print(f"### One sweep, {workload}\n")
    rows = []
    for name in names:
        setup, check = facts[name]
        seconds = best.get(name)
        if seconds is None:
            rows.append([name, None, None, setup, check])
        else:
            rows.append([name, 1e3 * seconds, seconds / ours, setup, check])
    print_table(["engine", "ms", "x ours", "set-up and first call, s", "beliefs differ by"], rows)


def _open_and_call(name: str, answers: vp.Answers, into: list[Engine]) -> None:
    into.append(open_engine(name, answers))
    into[0].advance()


def _disagreement(engine: Engine, answers: vp.Answers, apart: bool) -> float | str:
    """Largest difference of a belief from our numpy kernels' after the same sweeps."""
    done = engine.sweeps_per_call
    if done == 1:
        engine.advance()
        done = 2
    reference = Ours(answers, "portable", "integrate" if apart else "enumerate")
    for _ in range(done):
        reference.advance()
    worst = float(np.abs(engine.belief() - reference.belief()).max())
    return worst if worst <= engine.tolerance else f"WRONG, by {worst:.2g}: not timed"


def compare_memory(workload: Workload) -> None:
    """Print the peak memory of each engine alone in a process."""
    rows = []
    for name in ("nothing", *ENGINES):
        try:
            usage = run_module("peers", "--alone", name, workload.name)
            rows.append([name if name != "nothing" else "drawing the crowd", usage.peak / 1e6])
        except RuntimeError as error:
            rows.append([name, f"not run: {error}"])
    print(f"### Peak memory of a process that does five sweeps, {workload}\n")
    print_table(["engine", "MB"], rows)


def alone(name: str, workload: Workload) -> None:
    """Do five sweeps of one engine, for its memory."""
    answers = workload.draw().answers
    if name != "nothing":
        engine = open_engine(name, answers)
        for _ in range(5 // engine.sweeps_per_call):
            engine.advance()


# Whole fits with the levels known


def compare_samplers(workload: Workload, quick: bool) -> None:
    """Set BI to convergence against samplers of the same model, by time and error."""
    crowd = workload.draw()
    answers = crowd.answers
    found: dict[str, np.ndarray] = {}

    def keep(name: str, fit: Callable[[], np.ndarray]) -> Callable[[], None]:
        def run() -> None:
            found[name] = fit()

        return run

    whole, means = f"BI, {BACKEND}, whole fit", f"BI, {BACKEND}, sweeps and means"
    bi = vp.BI(support=LEVELS, backend=BACKEND)
    sweeps = f"BI, {BACKEND}, sweeps only"
    engines = {
        whole: keep(whole, lambda: bi.fit(answers).estimate),
        means: keep(means, lambda: _means(answers)),
        sweeps: lambda: _converged(answers),
    }
    n_sweeps = len(bi.fit(answers).trace.changes)
    target = SAME * mse(_means(answers), crowd.truth)
    note = {
        whole: f"to convergence, {n_sweeps} sweeps; intervals, audit",
        means: "the same without quantiles, audit or tables",
        sweeps: "the same without estimates",
    }
    try:
        name, said = _gibbs_to(target, crowd, 200 if quick else 1000)
        engines[name] = keep(name, lambda: fits.gibbs(answers, int(name.split()[2])))
        note[name] = said
    except ImportError as error:
        note["numba Gibbs"] = f"not run: not installed ({error})"
    best = take_turns(engines, 2 if quick else 5)
    rows: list[list[object]] = [
        [n, 1e3 * s, s / best[means], mse(found[n], crowd.truth) if n in found else None, note[n]]
        for n, s in best.items()
    ]
    rows += [[n, None, None, None, said] for n, said in note.items() if n not in best]
    if workload.name == "W1":
        rows.append(_nuts_row(crowd, quick, best[means]))
    average = vp.Average().fit(answers).estimate
    oracle = vp.StrongOracle(variances=crowd.variances).fit(answers).estimate
    rows.append(["plain mean", None, None, mse(average, crowd.truth), ""])
    rows.append(["oracle", None, None, mse(oracle, crowd.truth), "knows every worker's noise"])
    print(f"### Whole fit, levels known, {workload}\n")
    print_table(["method", "CPU ms", "x BI's means", "MSE", "note"], rows)


def _means(answers: vp.Answers) -> np.ndarray:
    """Do what ``BI.fit`` does, without quantiles: the sampler does not compute them either."""
    return _converged(answers).posterior(np.empty(0)).estimate


def _converged(answers: vp.Answers) -> MessagePassing:
    model = vp.Model(support=LEVELS, dimension=answers.dimension)
    bi = vp.BI(support=LEVELS)
    messages = inference.Engine(backend=BACKEND, inference=bi.inference).open(answers, model)
    iterate_until(
        lambda damping: messages.sweep(damping)[0], tol=bi.tol, max_iter=bi.max_iter, what="BI"
    )
    return messages


def _gibbs_to(target: float, crowd: vp.Simulation, most: int) -> tuple[str, str]:
    """Find the shortest of a ladder of runs that is as good; knowing the truth, in its favour."""
    fits.gibbs(crowd.answers, 1)  # compiles
    for n_sweeps in (4, 10, 20, 50, 100, 200, 500, 1000):
        error = mse(fits.gibbs(crowd.answers, n_sweeps), crowd.truth)
        if error <= target:
            return f"numba Gibbs, {n_sweeps} sweeps", "as good as BI; compiled before"
        if n_sweeps >= most:
            break
    return f"numba Gibbs, {n_sweeps} sweeps", "stopped here, worse than BI; compiled before"


def _nuts_row(crowd: vp.Simulation, quick: bool, ours: float) -> list[object]:
    n_warmup, n_samples = (100, 100) if quick else (500, 1000)
    name = f"NumPyro NUTS, {n_warmup} + {n_samples}"
    try:
        nuts = fits.Nuts(crowd.answers, n_warmup, n_samples)
    except ImportError as error:
        return [name, None, None, None, f"not run: not installed ({error})"]
    first = timed(nuts.run).cpu
    found: list[np.ndarray] = []
    cpu = timed(lambda: found.append(nuts.run())).cpu
    said = f"once, compiled before; with compiling {first:.1f} s"
    return [name, 1e3 * cpu, cpu / ours, mse(found[0], crowd.truth), said]


# Whole fits with nothing known


def compare_packages(workload: Workload, dimension: int) -> None:
    """Set BI that learns its levels against packages that learn the workers' noise."""
    crowd = workload.draw(dimension)
    few = Workload("few", 20, 5, 5).draw(dimension).answers
    methods: dict[str, Callable[[vp.Answers], np.ndarray]] = {
        "BI, levels learned": lambda answers: vp.BI(backend=BACKEND).fit(answers).estimate,
        "NBI": lambda answers: vp.NBI().fit(answers).estimate,
        "crowd-kit RASA": lambda answers: Rasa().estimate(answers),
    }
    if dimension == 1:
        methods["sureal P910"] = lambda answers: Sureal910().estimate(answers)
    rows = []
    for name, fit in methods.items():
        found: list[np.ndarray] = []
        try:
            fit(few)  # what anyone imports is not counted
            cpu = timed(lambda f=fit, o=found: o.append(f(crowd.answers))).cpu
            rows.append([name, cpu, mse(found[0], crowd.truth), ""])
        except ImportError as error:
            rows.append([name, None, None, f"not run: not installed ({error})"])
        except Exception as error:  # whatever stops a peer is its result
            rows.append([name, None, None, f"failed: {type(error).__name__}: {error}"])
    if dimension > 1:
        rows.append(["sureal P910", None, None, "not run: takes scalars only"])
    rows.append(
        ["plain mean", None, mse(vp.Average().fit(crowd.answers).estimate, crowd.truth), ""]
    )
    print(f"### Whole fit, nothing known, {workload}, d = {dimension}\n")
    print_table(["method", "CPU s, once", "MSE", "note"], rows)


def main() -> None:
    """Print all comparisons."""
    options = parse(
        __doc__,
        ("--alone", {"nargs": 2, "metavar": ("ENGINE", "WORKLOAD")}),
        ("--fits", {"nargs": "+", "choices": WORKLOADS, "help": "only whole fits, of these"}),
    )
    use_one_core()
    if options.alone:
        name, workload = options.alone
        try:
            return alone(name, WORKLOADS[workload])
        except CannotRun as reason:
            raise SystemExit(str(reason)) from None
    warnings.simplefilter("ignore")
    packages = ("jax", "pgmax", "numba", "numpyro", "sureal", "crowd-kit")
    print_head("Peers", packages)
    quick = options.quick
    if options.fits:
        for name in options.fits:
            compare_samplers(WORKLOADS[name], quick)
        return
    for name in ("W1", "W2") if quick else WORKLOADS:
        large = len(LEVELS) ** WORKLOADS[name].per_task > 2**14
        skip = {"textbook, factors kept": "at so many configurations, once is enough"}
        skip = skip if large else {}
        compare_sweeps(WORKLOADS[name], 3 if large or quick else 7, skip)
    compare_memory(WORKLOADS["W1" if quick else "W3"])
    for name in ("W1", "W2", "W4") if quick else ("W1", "W2", "W3", "W4"):
        compare_samplers(WORKLOADS[name], quick)
    crowds = [WORKLOADS["W1"]]
    if not quick:
        crowds.append(Workload("2,000 tasks of 200 workers", 2_000, 5, 50))
    for crowd in crowds:
        for dimension in (1, 2):
            compare_packages(crowd, dimension)


if __name__ == "__main__":
    main()
