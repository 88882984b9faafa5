"""Model: the levels of noise a worker may have, their weights, and the prior of a truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from voxpop.arrays import Floats
from voxpop.data.answers import VARIANCES
from voxpop.errors import ConfigError, require


@dataclass(frozen=True, kw_only=True, eq=False)
class Model:
    """The generative model (M1) of ``docs/model.md``.

    A worker has one of a few noise variances, the levels, drawn with the given weights; an answer
    is the truth plus spherical Gaussian noise of that variance. The truth of task i is Gaussian
    about ``prior_mean[i]``; with the default infinite ``prior_variance`` it is flat.

    Parameters
    ----------
    support
        The levels: positive variances per coordinate, all different.
    weights
        Share of workers at each level; equal when None. Scaled to sum to one.
    prior_mean
        One number, one vector, or one vector per task.
    prior_variance
        Variance of a truth about its prior mean, per coordinate.
    dimension
        Number of coordinates of a truth.
    """

    support: Sequence[float]
    weights: Sequence[float] | None = None
    prior_mean: ArrayLike = 0.0
    prior_variance: float = np.inf
    dimension: int = 1

    def __post_init__(self) -> None:
        try:
            levels = np.array(self.support, dtype=np.float64)
            weights = (
                np.ones_like(levels) if self.weights is None else np.array(self.weights, float)
            )
        except (TypeError, ValueError):
            raise ConfigError(
                f"support and weights must be numbers, got {self.support!r} and {self.weights!r}"
            ) from None
        require(
            levels.ndim == 1 and levels.size > 0,
            f"support must be a list of variances, got {self.support!r}",
        )
        require(
            bool(((levels >= VARIANCES[0]) & (levels <= VARIANCES[1])).all()),
            f"support must hold positive finite variances (from {VARIANCES[0]:g} to "
            f"{VARIANCES[1]:g}), got {levels.tolist()}",
        )
        require(
            len(np.unique(levels)) == len(levels),
            f"support must hold different variances, got {levels.tolist()}",
        )
        require(
            weights.shape == levels.shape,
            f"weights must be as many as the levels ({len(levels)}), got {weights.size}",
        )
        require(
            bool(np.isfinite(weights).all() and (weights > 0).all()),
            f"weights must be positive, got {weights.tolist()}; leave out a level instead",
        )
        require(
            self.prior_variance >= VARIANCES[0],
            f"prior_variance must be positive (from {VARIANCES[0]:g}), got {self.prior_variance}",
        )
        require(self.dimension >= 1, f"dimension must be at least 1, got {self.dimension}")
        mean = np.array(self.prior_mean, dtype=np.float64)
        require(bool(np.isfinite(mean).all()), "prior_mean must be finite")
        require(
            mean.ndim <= 2 and (mean.ndim == 0 or mean.shape[-1] in (1, self.dimension)),
            f"prior_mean must be a number, {self.dimension} coordinates, or that per task; "
            f"got shape {mean.shape}",
        )
        order = np.argsort(levels)
        mean.flags.writeable = False
        object.__setattr__(self, "support", tuple(levels[order].tolist()))
        object.__setattr__(self, "weights", tuple((weights / weights.sum())[order].tolist()))
        object.__setattr__(self, "prior_mean", mean)

    def with_levels(
        self, support: Sequence[float], weights: Sequence[float] | None = None
    ) -> Model:
        """Return the same model with other levels."""
        return replace(self, support=support, weights=weights)

    @property
    def levels(self) -> Floats:
        """The support as an array, ascending."""
        return np.array(self.support)

    @property
    def log_weights(self) -> Floats:
        """Logarithms of the weights."""
        return np.asarray(np.log(np.array(self.weights)))

    @property
    def prior_precision(self) -> float:
        """``1 / prior_variance``; zero for a flat prior."""
        return 1.0 / self.prior_variance

    def prior_means(self, n_tasks: int) -> Floats:
        """Prior mean of every task, shape (n_tasks, dimension)."""
        mean = np.asarray(self.prior_mean)
        require(
            mean.ndim < 2 or mean.shape[0] in (1, n_tasks),
            f"prior_mean is given for {len(np.atleast_2d(mean))} tasks, but there are {n_tasks}",
        )
        return np.broadcast_to(mean, (n_tasks, self.dimension))
