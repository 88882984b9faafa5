"""The error that all workers of a crowd share: how large on public crowds, and what follows.

    python -m benchmarks.shared [--data DIR] [--quick] [--write]

Of every set with known truths: kappa, the variance of the shared error over that of one answer. It
is found twice. By the mean: the part of its squared error that more workers would not remove, over
the variance of answers to one task. And by the default's own errors, given its variance of
agreement and the typical variance of an answer as it finds it, by maximum likelihood: the prior of
kappa in ``results/shared_error.py`` is a log-normal through these. The last columns are the check:
coverage of the truths with a prior from all other sets. ``--quick`` leaves out large sets.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.special import ndtri, stdtrit

import voxpop as vp
from benchmarks.measure import read
from benchmarks.real import put_section
from benchmarks.workloads import ROOT, parse, print_head, print_table
from voxpop.arrays import Floats
from voxpop.data.sums import sum_by_task
from voxpop.estimators.benchmark import find_data_sets
from voxpop.results.calibration import Calibration
from voxpop.results.shared_error import LOG_SD, MEDIAN, SharedError

TITLE = "The error that all workers share"
KAPPAS = np.geomspace(1e-3, 1e2, 400)
LEVELS = (0.5, 0.8, 0.9, 0.95)


@dataclass(frozen=True, eq=False)
class FittedSet:
    """A real set, its truths, and the default's result with the prior of kappa."""

    name: str
    result: vp.Result
    truth: Floats
    of_mean: float

    @property
    def shared(self) -> SharedError:
        """The shared error as the result has it."""
        found = self.result.calibration.shared
        assert found is not None
        return found

    def kappa(self) -> float:
        """Maximum likelihood of kappa, given the errors and the variance of agreement."""
        known = np.isfinite(self.truth).all(axis=1)
        square = (self.result.estimate - self.truth)[known] ** 2
        own, one = self.result.agreement_variance[known], np.array(self.shared.answer_variance)
        totals = (own + kappa * one for kappa in KAPPAS.tolist())
        return float(KAPPAS[np.argmin([(square / v + np.log(v)).sum() for v in totals])])

    def covered(self, prior: SharedError | None, level: float = 0.95) -> float:
        """Coverage of the truths under a prior of kappa, or without any."""
        bounds = self.result.agreement_interval(level)
        if prior is not None:
            known = replace(self.shared, median=prior.median, log_sd=prior.log_sd)
            bounds = self.result.calibrated(Calibration(shared=known)).interval(level)
        finite = np.isfinite(self.truth)
        return float(((bounds[0] <= self.truth) & (self.truth <= bounds[1]))[finite].mean())


def lasting_part(answers: vp.Answers, truth: Floats) -> float:
    """Kappa by the mean: what of its squared error more workers would not remove."""
    degree = answers.task_degree[:, None]
    mean = sum_by_task(answers, answers.value) / degree
    square = sum_by_task(answers, (answers.value - mean[answers.task]) ** 2)
    several = degree[:, 0] > 1
    one = square[several].sum(axis=0) / (degree[several] - 1).sum()
    known = np.isfinite(truth).all(axis=1)
    lasting = ((mean - truth)[known] ** 2).mean(axis=0) - one * (1.0 / degree[known]).mean()
    return float((lasting / one).mean())


def prior_from(kappas: list[float]) -> SharedError:
    """Log-normal for the kappa of one more set, drawn like these.

    Its 90 % range is that of Student's t, for with few sets their spread is hardly known.
    """
    log, n = np.log(kappas), len(kappas)
    reach = stdtrit(n - 1, 0.95) / ndtri(0.95) * np.sqrt(1.0 + 1.0 / n)
    return SharedError(median=float(np.exp(log.mean())), log_sd=float(reach * log.std(ddof=1)))


def fit_sets(folder: Path, quick: bool) -> list[FittedSet]:
    """Fit the default to every set of a folder."""
    found = []
    for name, files in find_data_sets(folder).items():
        answers, truth = read(files)
        if quick and answers.n_edges > 1000:
            continue
        result = vp.aggregate(answers)
        if result.calibration.shared is not None:
            found.append(FittedSet(name, result, truth, lasting_part(answers, truth)))
    return found


def report(sets: list[FittedSet]) -> None:
    """Print kappa of every set, the prior, and the check with each set left out."""
    kappas = [one.kappa() for one in sets]
    head = ["set", "kappa by the mean", "kappa", "truths in 95 %, agreement"]
    head += [f"{level:.0%}, set left out" for level in LEVELS] + ["95 %, this version"]
    rows: list[list[object]] = []
    held, default = [], []
    for k, one in enumerate(sets):
        others = prior_from(kappas[:k] + kappas[k + 1 :])
        left_out = [one.covered(others, level) for level in LEVELS]
        held.append(left_out[-1])
        default.append(one.covered(SharedError()))
        shares = [one.covered(None), *left_out, default[-1]]
        cells = [f"{share:.1%}" for share in shares]
        rows.append([one.name, f"{one.of_mean:.3f}", f"{kappas[k]:.3f}", *cells])
    print_table(head, rows)
    prior = prior_from(kappas)
    low, high = prior.likely()
    print(
        f"Prior of kappa from these {len(sets)} sets: median {prior.median:.2f}, sd of the "
        f"logarithm {prior.log_sd:.2f} (90 %: {low:.2f} to {high:.2f}); this version has "
        f"{MEDIAN} and {LOG_SD}.\nTruths in 95 % intervals with the set left out: mean "
        f"{np.mean(held):.1%}, lowest {min(held):.1%} (wanted: mean 88 to 98 %, none below 80 %); "
        f"this version: mean {np.mean(default):.1%}, lowest {min(default):.1%}.\n"
    )


def main() -> None:
    """Fit, print, and keep."""
    options = parse(
        __doc__,
        (
            "--data",
            {"type": Path, "default": ROOT.parent / "shared/data", "help": "folder of real sets"},
        ),
        ("--write", {"action": "store_true", "help": "put the section into benchmarks/RESULTS.md"}),
    )
    warnings.simplefilter("ignore")
    sets = fit_sets(options.data, options.quick)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        print_head(TITLE)
        if len(sets) > 2:
            report(sets)
        else:
            print(f"Not measured: it takes three sets, and there are {len(sets)}.\n")
    print(said.getvalue())
    if options.write:
        put_section(TITLE, said.getvalue())


if __name__ == "__main__":
    main()
