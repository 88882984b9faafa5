"""Posteriors by brute force, straight from the model; nothing here comes from the kernels."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.stats import multivariate_normal, norm

from voxpop import Answers, Model

Floats = NDArray[np.float64]


@dataclass
class BruteForce:
    """Exact posterior of a small crowd: moments of truths, level probabilities, task mixtures."""

    estimate: Floats
    variance: Floats
    worker_posterior: Floats
    state_probability: Floats
    means: Floats  # (states, tasks, d)
    variances: Floats  # (states, tasks)

    def cdf(self, i: int, j: int, x: float) -> float:
        """Posterior probability that coordinate j of task i is at most x."""
        z = (x - self.means[:, i, j]) / np.sqrt(self.variances[:, i])
        return float(self.state_probability @ norm.cdf(z))


def log_likelihood(value: Floats, s: Floats, prior_mean: Floats, prior_variance: float) -> float:
    """Log density of one task's answers (l, d) given its workers' variances.

    With a flat prior the density of the differences from the first answer, which is its limit
    up to a constant.
    """
    total = 0.0
    for j in range(value.shape[1]):
        if np.isfinite(prior_variance):
            covariance = np.diag(s) + prior_variance
            centre = np.full(len(s), prior_mean[j])
            total += float(multivariate_normal.logpdf(value[:, j], centre, covariance))
        elif len(s) > 1:
            covariance = np.diag(s[1:]) + s[0]
            difference = value[1:, j] - value[0, j]
            total += float(multivariate_normal.logpdf(difference, cov=covariance))
    return total


def brute_force(answers: Answers, model: Model) -> BruteForce:
    """Sum over the levels of all workers."""
    k, m, n, d = len(model.support), answers.n_workers, answers.n_tasks, answers.dimension
    prior_mean = model.prior_means(n)
    states = list(product(range(k), repeat=m))
    log_p, means, variances = np.empty(len(states)), [], []
    for z, state in enumerate(states):
        s_worker = model.levels[list(state)]
        log_p[z] = model.log_weights[list(state)].sum()
        mean, variance = np.empty((n, d)), np.empty(n)
        for i in range(n):
            edges = answers.task == i
            s, value = s_worker[answers.worker[edges]], answers.value[edges]
            log_p[z] += log_likelihood(value, s, prior_mean[i], model.prior_variance)
            precision = 1 / model.prior_variance + (1 / s).sum()
            weighted = prior_mean[i] / model.prior_variance + (value / s[:, None]).sum(axis=0)
            mean[i], variance[i] = weighted / precision, 1 / precision
        means.append(mean)
        variances.append(variance)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean_array, variance_array = np.array(means), np.array(variances)
    estimate = np.einsum("z,zid->id", p, mean_array)
    spread = np.einsum("z,zid->id", p, (mean_array - estimate) ** 2)
    posterior = np.zeros((m, k))
    for probability, state in zip(p, states, strict=True):
        posterior[np.arange(m), state] += probability
    return BruteForce(
        estimate, spread + (p @ variance_array)[:, None], posterior, p, mean_array, variance_array
    )


def log_messages(value: Floats, incoming: Floats, levels: Floats) -> Floats:
    """Task-to-worker messages (l, K) by summing over configurations in logs, flat prior."""
    degree, k = incoming.shape
    zero = np.zeros(value.shape[1])
    out = np.full((degree, k), -np.inf)
    for configuration in product(range(k), repeat=degree):
        log_c = log_likelihood(value, levels[list(configuration)], zero, np.inf)
        for u, level in enumerate(configuration):
            others = sum(incoming[v, c] for v, c in enumerate(configuration) if v != u)
            out[u, level] = np.logaddexp(out[u, level], log_c + others)
    return np.asarray(out - out.max(axis=1, keepdims=True))
