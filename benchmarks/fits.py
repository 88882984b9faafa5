"""Whole fits of the same model by others: Gibbs in numba, NUTS in NumPyro.

Each takes answers and returns one estimate per task; imports happen where they are needed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

import voxpop as vp
from benchmarks.workloads import LEVELS


@cache
def compiled_gibbs() -> Callable[..., np.ndarray]:
    """Compile a Gibbs sampler of the same model: truths given levels, levels given truths."""
    from numba import njit

    @njit
    def gibbs(value, worker, n_workers, level, n_sweeps, rng):  # type: ignore[no-untyped-def]
        n, degree, d = value.shape
        precision = np.full(n_workers, 1.0 / level[len(level) // 2])
        total = np.zeros((n, d))
        n_burn = n_sweeps // 4
        for sweep in range(n_sweeps):
            square = np.zeros(n_workers)
            count = np.zeros(n_workers)
            mean, truth = np.zeros(d), np.zeros(d)
            for i in range(n):
                # A truth is Gaussian about the weighted mean; the mean is what is averaged.
                w = 0.0
                mean[:] = 0.0
                for e in range(degree):
                    p = precision[worker[i, e]]
                    w += p
                    for j in range(d):
                        mean[j] += p * value[i, e, j]
                for j in range(d):
                    mean[j] /= w
                    truth[j] = mean[j] + rng.normal() / np.sqrt(w)
                    if sweep >= n_burn:
                        total[i, j] += mean[j]
                for e in range(degree):
                    u = worker[i, e]
                    count[u] += d
                    for j in range(d):
                        square[u] += (value[i, e, j] - truth[j]) ** 2
            for u in range(n_workers):
                # A level has the probability of the residuals; equal weights.
                log_p = -0.5 * (square[u] / level + count[u] * np.log(level))
                p_level = np.exp(log_p - log_p.max())
                draw = rng.random() * p_level.sum()
                k = 0
                while k < len(level) - 1 and draw > p_level[k]:
                    draw -= p_level[k]
                    k += 1
                precision[u] = 1.0 / level[k]
        return total / (n_sweeps - n_burn)

    return gibbs


def gibbs(answers: vp.Answers, n_sweeps: int) -> np.ndarray:
    """Sample; the first quarter of the sweeps is thrown away."""
    n, d = answers.n_tasks, answers.dimension
    value, worker = answers.value.reshape(n, -1, d), answers.worker.reshape(n, -1)
    rng = np.random.default_rng(1)
    return compiled_gibbs()(value, worker, answers.n_workers, np.array(LEVELS), n_sweeps, rng)


class Nuts:
    """NumPyro's NUTS on the truths, every worker's level summed out."""

    def __init__(self, answers: vp.Answers, n_warmup: int, n_samples: int) -> None:
        import jax
        import jax.numpy as jnp
        import numpyro
        from numpyro.infer import MCMC, NUTS

        jax.config.update("jax_enable_x64", True)
        level, value = jnp.array(LEVELS), jnp.array(answers.value)
        task, worker = jnp.array(answers.task), jnp.array(answers.worker)
        n, d, n_workers = answers.n_tasks, answers.dimension, answers.n_workers

        def model() -> None:
            truth = numpyro.sample(
                "truth",
                numpyro.distributions.Normal(50.0, 1000.0).expand([n, d]).to_event(2),
            )
            square = ((value - truth[task]) ** 2).sum(axis=1)
            log_p = -0.5 * (square[:, None] / level + d * jnp.log(level))
            per_worker = jax.ops.segment_sum(log_p, worker, n_workers)
            numpyro.factor("answers", jax.scipy.special.logsumexp(per_worker, axis=1).sum())

        # Starting at the means of the answers spares it the way there.
        count = jax.ops.segment_sum(jnp.ones(len(task)), task, n)
        start = jax.ops.segment_sum(value, task, n) / count[:, None]
        strategy = numpyro.infer.init_to_value(values={"truth": start})
        self._mcmc = MCMC(
            NUTS(model, init_strategy=strategy),
            num_warmup=n_warmup,
            num_samples=n_samples,
            progress_bar=False,
        )
        self._key = jax.random.PRNGKey(1)

    def run(self) -> np.ndarray:
        """Sample, and average; the first call also compiles."""
        self._mcmc.run(self._key)
        return np.asarray(self._mcmc.get_samples()["truth"].mean(axis=0))
