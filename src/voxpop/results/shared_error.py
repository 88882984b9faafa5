"""Shared error: an error that all workers of a crowd make, and the variance it adds to a truth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy.special import ndtr, ndtri, softmax

from voxpop.arrays import Floats
from voxpop.data.exact import Limbs, exact_sum, exact_value
from voxpop.errors import require
from voxpop.inference.kernels.posterior import Posterior
from voxpop.words import counted

SharedErrorOption = float | Literal["auto"]

# Prior of kappa: median, and sd of its logarithm. By ``python -m benchmarks.shared``.
MEDIAN, LOG_SD = 0.35, 0.80
# Residuals are cut at this many times their upper quartile, so that no slip makes a crowd look
# noisy.
_CLIP = 3.0
# Gauss-Hermite nodes of log kappa, over which Gaussians of the truth are mixed.
_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(41)
_NODE_WEIGHTS /= _NODE_WEIGHTS.sum()
# Where the stretch is tabulated: log of shared over posterior variance; flat beyond both ends.
_LOG_RATIO = np.linspace(-16.0, 24.0, 401)
_HALVINGS, _MOST = 40, 1e300
# Grid of log kappa for learning from gold, in sds of the prior about its median.
_GRID = np.linspace(-6.0, 6.0, 241)


@dataclass(frozen=True, kw_only=True)
class SharedError:
    """An error that all workers share: its variance is kappa times that of one answer (M65).

    Kappa is log-normal: a prior from public crowds, or a posterior given gold tasks hidden in turn;
    without ``log_sd`` it is known.

    Attributes
    ----------
    median
        Median of kappa.
    log_sd
        Standard deviation of its logarithm; 0 where kappa is given.
    answer_variance
        Typical variance of one answer of this crowd by coordinate, about the truth.
    n_gold
        Hidden gold tasks that kappa was learned from; 0 for the prior.
    bounds
        Lowest and highest possible truth; None if any.
    """

    median: float = MEDIAN
    log_sd: float = LOG_SD
    answer_variance: tuple[float, ...] = ()
    n_gold: int = 0
    bounds: tuple[float, float] | None = None

    @classmethod
    def option(cls, given: SharedErrorOption) -> SharedError | None:
        """Parse the option ``shared_error``: "auto" is the prior, a number is kappa, 0 is none."""
        if isinstance(given, str):
            require(given == "auto", f"shared_error must be 'auto' or a number, got {given!r}")
            return cls()
        require(0 <= given < np.inf, f"shared_error must be 0 or a positive number, got {given}")
        return cls(median=float(given), log_sd=0.0) if given else None

    @property
    def mean(self) -> float:
        """Expected kappa."""
        return float(self.median * np.exp(0.5 * self.log_sd**2))

    @property
    def is_told(self) -> bool:
        """Whether kappa is known."""
        return self.log_sd == 0

    def likely(self) -> tuple[float, float]:
        """Bounds that kappa lies between with a probability of 90 %."""
        reach = float(np.exp(ndtri(0.95) * self.log_sd))
        return self.median / reach, self.median * reach

    def applied(self, found: Posterior, probabilities: Floats) -> Posterior:
        """Add the shared error to the posterior of the truths (M66), (M67).

        The posterior's own quantiles keep their shape: the distance of each from the mean is
        stretched by as much as for a Gaussian of that variance. Nearer quantiles than a Gaussian
        has, as those of a spike with thin tails, are widened by as much. Known truths stay known.
        """
        stretch, own, about = self._stretch(found, probabilities)
        quantile = found.estimate[:, :, None] + own * _widened(about, stretch)
        if self.bounds is not None:
            # Quantiles within the bounds stay there; others were beyond before.
            low, high = (np.array(bound) for bound in self.bounds)
            quantile = np.clip(
                quantile, np.minimum(low, found.quantile), np.maximum(high, found.quantile)
            )
        variance = found.variance + self.added_variance(found.variance)
        return Posterior(found.estimate, variance, quantile)

    def removed(self, found: Posterior, probabilities: Floats) -> Posterior:
        """Undo :meth:`applied`; a quantile that met a bound becomes that of a Gaussian there."""
        added = self.added_variance(found.variance)
        before = replace(found, variance=np.maximum(found.variance - added, 0.0))
        stretch, own, about = self._stretch(before, probabilities)
        centre = found.estimate[:, :, None]
        quantile = centre + own * _narrowed(about, stretch)
        if self.bounds is not None:
            normal = centre + np.sqrt(before.variance)[:, :, None] * ndtri(probabilities)
            met = np.isin(found.quantile, self.bounds)
            quantile = np.where(met, np.clip(normal, *self.bounds), quantile)
        return replace(before, quantile=quantile)

    def learned(self, error: Floats, variance: Floats) -> SharedError:
        """Learn kappa from the errors (N, d) of hidden gold tasks (M69).

        ``variance`` is that of agreement. The coordinates of a task may share their error, so
        together they count as one. What is returned is the log-normal with the mean and the sd of
        log kappa given the errors.
        """
        shared = self._one_answer(variance)
        log_kappa = np.log(self.median) + self.log_sd * _GRID
        score = -0.5 * _GRID**2
        for at, kappa in enumerate(np.exp(log_kappa)):
            total = variance + kappa * shared
            usable = total > 0
            density = -0.5 * (error[usable] ** 2 / total[usable] + np.log(total[usable]))
            score[at] += density.sum() / error.shape[1]
        weight = softmax(score)
        mean = float(weight @ log_kappa)
        sd = float(np.sqrt(weight @ (log_kappa - mean) ** 2))
        return replace(self, median=float(np.exp(mean)), log_sd=sd, n_gold=len(error))

    def added_variance(self, variance: Floats) -> Floats:
        """Expected variance (n, d) of the shared error; 0 where the truth is known."""
        return self.mean * self._one_answer(variance)

    def _one_answer(self, variance: Floats) -> Floats:
        """Variance of one answer to each task (n, d); 0 where the truth is known."""
        return np.where(variance > 0, np.array(self.answer_variance), 0.0)

    def _stretch(self, found: Posterior, probabilities: Floats) -> tuple[Floats, Floats, Floats]:
        """Stretch of a Gaussian's quantiles, their distances from the mean, and the posterior's.

        All are (n, d, q); the posterior's distances are relative to those of the Gaussian.
        """
        own, one = found.variance, self._one_answer(found.variance)
        with np.errstate(over="ignore"):
            ratio = np.divide(self.median * one, own, out=np.zeros(own.shape), where=own > 0)
        about = found.quantile - found.estimate[:, :, None]
        gaussian = np.sqrt(own)[:, :, None] * ndtri(probabilities)
        relative = np.divide(about, gaussian, out=np.zeros_like(about), where=gaussian != 0)
        return _stretches(np.minimum(ratio, _MOST), self.log_sd, probabilities), gaussian, relative

    @property
    def enough_answers(self) -> int:
        """Answers per task beyond which more of the same crowd buy little: about 1 / kappa."""
        return max(1, round(1.0 / self.median))

    @property
    def lasting_rmse(self) -> float:
        """Root mean squared error of a coordinate that no number of answers removes."""
        return float(np.sqrt(self.mean * np.mean(self.answer_variance)))

    def summary(self) -> str:
        """Return what intervals allow for."""
        return (
            "intervals are for the truth: they allow for an error shared by all workers, "
            f"{self._text()}"
        )

    def advice(self) -> str:
        """Return where more answers do not help, and what does."""
        enough = counted(self.enough_answers, "answer")
        return (
            f"beyond about {enough} per task, more answers from the same crowd "
            f"help little: an error shared by all workers, {self._text()}, leaves an RMSE of "
            f"about {self.lasting_rmse:.3g}; gold tasks or other workers help more"
        )

    def _text(self) -> str:
        """Kappa in words, and where it comes from."""
        low, high = self.likely()
        known = "" if self.is_told else f" (90 %: {low:.2g} to {high:.2g})"
        where = "typical of public crowds"
        if self.is_told:
            where = "as you set it"
        elif self.n_gold:
            where = f"learned from {counted(self.n_gold, 'hidden gold task')}"
        return f"whose variance is {self.median:.2g} times that of one answer{known}, {where}"


def _widened(about: Floats, stretch: Floats) -> Floats:
    """Distances of quantiles from the mean with the shared error (M67).

    In sds of a Gaussian's quantile. A spike that is stretched stays a spike, but independent errors
    add their squares. A quantile on the wrong side of the mean, where the other side has a long
    tail, is shifted.
    """
    added = np.sqrt(stretch**2 - 1.0)
    near = np.hypot(np.maximum(about, 0.0), added) + np.minimum(about, 0.0)
    return np.where(about < 1.0, near, stretch * about)


def _narrowed(about: Floats, stretch: Floats) -> Floats:
    """Undo :func:`_widened`."""
    added = np.sqrt(stretch**2 - 1.0)
    near = np.sqrt(np.maximum(about, added) ** 2 - added**2) + np.minimum(about - added, 0.0)
    return np.where(about < stretch, near, about / stretch)


def _stretches(ratio: Floats, log_sd: float, probabilities: Floats) -> Floats:
    """Stretch of each quantile (n, d, q) at the ratio (n, d) of median shared to own variance."""
    wide = np.sqrt(1.0 + ratio)[:, :, None] * np.ones(len(probabilities))
    if log_sd == 0:
        return wide
    with np.errstate(divide="ignore"):
        at = np.log(ratio)
    for k, p in enumerate(probabilities.tolist()):
        excess = _log_excess(log_sd, round(max(p, 1.0 - p), 12))
        wide[:, :, k] *= np.exp(np.interp(at, _LOG_RATIO, excess))
    # Rounding may put one just below, and it has no distance to add then.
    return np.asarray(np.maximum(wide, 1.0))


@lru_cache(maxsize=64)
def _log_excess(log_sd: float, probability: float) -> Floats:
    """Log of the stretch of a quantile above one half, over that with kappa at its median (M67).

    The quantile of Σ_k h_k N(0, 1 + r e^{z_k s}) lies between those of its components; that
    bracket is halved, in logarithms.
    """
    variance = 1.0 + np.exp(_LOG_RATIO)[:, None] * np.exp(log_sd * _NODES)
    sd = np.sqrt(variance)
    z = float(ndtri(probability))
    if z == 0:
        return np.zeros(len(_LOG_RATIO))
    low, high = (np.log(z * edge) for edge in (sd.min(axis=1), sd.max(axis=1)))
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        inside = ndtr(np.exp(middle)[:, None] / sd) @ _NODE_WEIGHTS
        low = np.where(inside < probability, middle, low)
        high = np.where(inside < probability, high, middle)
    return np.asarray(0.5 * (low + high) - np.log(z) - 0.5 * np.log1p(np.exp(_LOG_RATIO)))


def typical_answer_variance(residual: Floats, variance: Floats, weight: Floats) -> Floats:
    """Squared distance of an answer from the truth (d,), as a posterior expects it (M65).

    ``residual`` (E, d) are answers less estimates, ``variance`` (E, d) those of their tasks. Both
    count up to a multiple of the upper quartile of the residuals, each answer by its ``weight``
    (E,): it leaves out the noise of workers who have little weight.
    """
    quartile = np.quantile(np.abs(residual), 0.75, axis=0)
    return mean_square(square_sums(residual, variance, weight, quartile))


def square_sums(residual: Floats, variance: Floats, weight: Floats, quartile: Floats) -> Limbs:
    """Exact sums for :func:`mean_square`, given the upper quartile (d,) of all residuals.

    Those of parts of the answers are added.
    """
    most = _CLIP * quartile
    square = np.minimum(np.abs(residual), most) ** 2 + np.minimum(variance, most**2)
    return np.stack([exact_sum(terms) for terms in (weight, *(weight[:, None] * square).T)])


def mean_square(sums: Limbs) -> Floats:
    """Squared distance of an answer from the truth (d,) from :func:`square_sums` of all."""
    total, *squares = (exact_value(limbs) for limbs in sums)
    return np.array(squares) / total
