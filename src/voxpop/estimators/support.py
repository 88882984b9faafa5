"""Where the noise levels come from when nobody knows them: the paper's rule, or a learned grid."""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

from voxpop.answers import Answers
from voxpop.backends import Inference, open_backend
from voxpop.estimators.averages import medians, variance_within_tasks
from voxpop.estimators.base import OnSweep, mean_by_worker, squared_residual
from voxpop.estimators.nbi import NBI
from voxpop.model import Model

# Levels a factor 10 apart find the range that the workers use, then levels a factor 2.5 apart
# (1.6 in sd) fill it: a worker between two levels loses a few per cent of efficiency at most.
_COARSE, _FINE = 10.0, 2.5
_COARSE_SWEEPS, _FINE_SWEEPS = 8, 60
# Weights need no more digits than this of the messages, and cost half as much with them.
_LEARNING_ACCURACY = 1e-5
# The weights are settled when none moves by more than this in a sweep.
_SETTLED = 2e-3
# A level that fewer than this many workers use, in expectation, is left out.
_FEWEST_WORKERS = 0.02
# Far below the noise of those beside him, a worker looks the same at every level. The lowest
# level worth having is one that somebody's answers prefer to the next by this much, in nats.
_PREFERENCE = 1.0


def support_from_nbi(answers: Answers, base: Model) -> tuple[Model, tuple[str, ...]]:
    """Take the 10 % and 90 % quantiles of NBI's variances as a binary support (M22).

    Workers at NBI's floor are left out: the floor is not a finding about them.
    """
    found = NBI().fit(answers)
    variance = found.worker_variance
    free = variance > found.settings["floor_variance"] * (1 + 1e-9)
    low, high = np.quantile(variance[free], [0.1, 0.9]) if free.any() else (0.0, 0.0)
    levels = (low, high) if 0 < low < high else (_scale(answers),)
    note = f"support from NBI: {', '.join(f'{level:.4g}' for level in levels)}"
    return base.with_levels(levels), (note,)


def learn_support(
    answers: Answers,
    base: Model,
    inference: Inference,
    accuracy: float,
    backend: str,
    threads: int = 1,
    on_sweep: OnSweep | None = None,
) -> tuple[Model, tuple[str, ...]]:
    """Learn levels and weights: EM on a coarse grid, then on a fine one within its range (M21)."""
    accuracy = max(accuracy, _LEARNING_ACCURACY)
    low, high = _range(answers)
    coarse = base.with_levels(_grid(low, high, _COARSE))
    how = (inference, accuracy, backend, threads)
    found = _learn_weights(answers, coarse, *how, _COARSE_SWEEPS, on_sweep)
    used = found.levels
    # Half a coarse step more on either side: the truth may lie between two levels.
    margin = np.sqrt(_COARSE)
    bounds = max(low, used[0] / margin), min(high, used[-1] * margin)
    fine = base.with_levels(_grid(*bounds, _FINE))
    found = _learn_weights(answers, fine, *how, _FINE_SWEEPS, on_sweep)
    shown = ", ".join(
        f"{level:.3g} ({weight:.0%})"
        for level, weight in zip(found.support, found.weights or (), strict=True)
        if weight >= 0.005
    )
    return found, (f"noise levels learned from the answers, with the share of workers: {shown}",)


def _learn_weights(
    answers: Answers,
    model: Model,
    inference: Inference,
    accuracy: float,
    backend_name: str,
    threads: int,
    n_sweeps: int,
    on_sweep: OnSweep | None,
) -> Model:
    """Run EM on the weights beside the messages, one step a sweep; drop levels nobody uses."""
    backend = open_backend(backend_name, answers, model, inference, accuracy, threads)
    log_weights = model.log_weights
    n_levels = len(log_weights)
    expected = np.full(n_levels, answers.n_workers / n_levels)
    for number in range(n_sweeps):
        sums, change = backend.to_workers(0.0)
        posterior = softmax(sums * backend.quantum + log_weights, axis=1)
        expected = np.sort(posterior, axis=0).sum(axis=0)  # sorted: the same in any row order
        # One more worker, of unknown level, keeps every weight above zero.
        weights = (expected + 1.0 / n_levels) / (answers.n_workers + 1.0)
        moved = float(np.abs(weights - np.exp(log_weights)).max())
        log_weights = np.log(weights)
        backend.to_tasks(sums, log_weights)
        if on_sweep is not None:
            on_sweep(number + 1, change)
        if moved < _SETTLED and number >= 2:
            break
    likelihood = sums * backend.quantum
    preferred = np.flatnonzero((likelihood[:, :-1] - likelihood[:, 1:] > _PREFERENCE).any(axis=0))
    lowest = preferred[0] if len(preferred) else n_levels - 1
    lowest = min(lowest, int(expected.argmax()))
    kept = np.flatnonzero((expected >= _FEWEST_WORKERS) & (np.arange(n_levels) >= lowest))
    return model.with_levels(model.levels[kept].tolist(), np.exp(log_weights)[kept].tolist())


def _grid(low: float, high: float, factor: float) -> list[float]:
    n_levels = int(np.ceil(np.log(high / low) / np.log(factor) - 1e-9)) + 1
    return list(np.geomspace(low, high, n_levels)) if n_levels > 1 else [float(np.sqrt(low * high))]


def _range(answers: Answers) -> tuple[float, float]:
    """Bounds of the levels worth trying, from the workers' distances to the tasks' medians."""
    centre = medians(answers)
    if answers.gold is not None:
        centre = np.where(answers.is_gold[:, None], answers.gold, centre)
    distance = mean_by_worker(answers, squared_residual(answers, centre)) / answers.dimension
    scale = _scale(answers)
    high = 4.0 * max(float(distance.max()), scale)
    positive = distance[distance > 0]
    nearest = float(positive.min()) if len(positive) else scale
    # A median of few answers is noisy itself, so the best workers may be far better than they
    # look against it; but nobody is better than the rounding of the answers.
    low = max(min(nearest, scale) * 1e-3, _rounding(answers), high * 1e-14)
    return low, max(high, low * _FINE)


def _scale(answers: Answers) -> float:
    """Typical variance of an answer; for equal answers, a variance too small to show."""
    scale = float(variance_within_tasks(answers).mean())
    smallest = (1e-9 * max(float(np.abs(answers.value).max()), 1e-100)) ** 2
    return max(scale, smallest, 1e-200)


def _rounding(answers: Answers) -> float:
    """Variance of the rounding error of answers given on a scale of steps, such as 1 to 10.

    The steps are the gaps between values that occur at least half as often as values do on
    average, so that a few answers between the steps do not hide them. Where values hardly
    repeat, the gaps are so small that they do not matter. Without this floor, workers who agree
    exactly because they all round would be taken for infinitely precise.
    """
    steps = []
    for j in range(answers.dimension):
        value, count = np.unique(answers.value[:, j], return_counts=True)
        frequent = value[count >= 0.5 * count.mean()]
        if len(frequent) > 1:
            steps.append(float(np.median(np.diff(frequent))))
    return min(steps) ** 2 / 12.0 if steps else 0.0
