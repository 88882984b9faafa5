"""Following: whether a worker's answers have anything to do with the tasks."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from voxpop.arrays import Floats
from voxpop.results.diagnosis.honest_spread import ENOUGH, FEW_DIFFER, OUTER, spread, tail
from voxpop.results.diagnosis.worker_tests import PeerMedians, WorkerTest, mean_of_others, ranks

# Variance of Fisher's z of a rank correlation, times the number of answers less three.
_OF_RANKS = 1.06
# Kurtosis of ranks, which are uniform: with more, few tasks decide a correlation.
_KURTOSIS = 1.8
# A correlation above what chance gives with this probability: the worker follows the tasks.
_FOLLOWS = 0.99
# What is known of honest workers in general counts as this many workers, where there are few.
_KNOWN_WORKERS = 10
_LARGEST = 0.9999


def follow_test(crowd: PeerMedians, j: int, needed: int) -> WorkerTest:
    """Test whether a worker's answers have nothing to do with the tasks.

    The slope test does not find a worker who answers at random 20 times: an honest one might be
    that noisy. It would be far noisier than all others, though. So the statistic is Fisher's z of
    the correlation of the worker's ranks with the others' mean ranks, over the z of those others
    on the same tasks. An honest worker's is the crowd's times a factor of its own, and never 0, as
    for the slope. It is as uncertain as a correlation of so many ranks, of fewer where few tasks
    differ from the rest. A worker who follows the tasks, however badly, is not found.

    Several who answer at random are evidence for each other: the share of honest workers among
    those who are found is held, not only the chance of finding any (Benjamini and Hochberg).
    """
    answers = crowd.answers
    rank = ranks(answers.value[:, j]) / answers.n_edges - 0.5
    mean = mean_of_others(answers, rank)
    y, c = crowd.centred(rank[crowd.edge]), crowd.centred(mean[crowd.edge])
    xx, yy = crowd.sum(c**2), crowd.sum(y**2)
    z = _fisher(crowd.sum(c * y), xx, yy)
    theirs = _z_of_others(crowd, rank, mean)
    judged = (crowd.count >= needed) & (theirs > 0) & (xx > 0) & (yy > 0)
    p, ratio = np.ones(len(z)), np.full(len(z), np.nan)
    if not judged.any():
        return WorkerTest(statistic=ratio, median=0.0, p=p)
    z, theirs, count = z[judged], theirs[judged], crowd.count[judged]
    kurtosis = count * crowd.sum(c**4)[judged] / xx[judged] ** 2
    effective = count * _KURTOSIS / np.maximum(kurtosis, _KURTOSIS)
    error = np.sqrt(_OF_RANKS / np.maximum(effective - 3.0, 1.0))
    ratio[judged] = z / theirs
    median = float(np.median(ratio[judged]))
    if median > 0:  # otherwise the crowd itself follows nothing
        relative, se = ratio[judged] / median, error / theirs / median
        tau = max(spread(relative - 1.0, se, share) for share in (0.5, OUTER))
        n_crowd, few = len(z), len(z) < 2 * ENOUGH
        if few:
            tau, n_crowd = max(tau, FEW_DIFFER), n_crowd + _KNOWN_WORKERS
        found = tail(relative, se, count, tau, n_crowd, factor=True)
        p[judged] = np.where(z < ndtri(_FOLLOWS) * error, found, 1.0)
    return WorkerTest(statistic=ratio, median=median, p=_among_all(p))


def _z_of_others(crowd: PeerMedians, rank: Floats, mean: Floats) -> Floats:
    """Fisher's z of the correlation that the others have on each worker's tasks (m,)."""

    def moment(x: Floats) -> Floats:
        return crowd.mean(mean_of_others(crowd.answers, x)[crowd.edge])

    y, c = moment(rank), moment(mean)
    return _fisher(moment(rank * mean) - y * c, moment(mean**2) - c**2, moment(rank**2) - y**2)


def _fisher(xy: Floats, xx: Floats, yy: Floats) -> Floats:
    """Fisher's z of correlations, from sums of products; 0 where one is not defined."""
    size = np.sqrt(np.maximum(xx * yy, 0.0))
    found = np.divide(xy, size, out=np.zeros_like(size), where=size > 1e-12)
    return np.asarray(np.arctanh(np.clip(found, -_LARGEST, _LARGEST)))


def _among_all(p: Floats) -> Floats:
    """Probabilities times the number of workers, over how many are as small (m,), again over m."""
    order = np.argsort(p, kind="stable")[::-1]
    shared = p[order] / np.arange(len(p), 0, -1)
    found = np.empty_like(p)
    found[order] = np.minimum.accumulate(shared)
    return found
