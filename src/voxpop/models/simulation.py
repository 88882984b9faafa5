"""Simulation: a crowd drawn from a model, with the truth and every worker's noise known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.output import replacing_folder
from voxpop.data.read import long_columns
from voxpop.data.tables import write_table
from voxpop.errors import require
from voxpop.models.model import Model

if TYPE_CHECKING:
    from voxpop.collect.assignment.random_graphs import Assignment


@dataclass(frozen=True, eq=False)
class Simulation:
    """Answers with the truths and variances they were drawn from.

    ``truth`` (n_tasks, dimension) and ``worker_variance`` (n_workers,) follow the order of
    ``answers.task_ids`` and ``answers.worker_ids``.
    """

    answers: Answers
    truth: Floats
    worker_variance: Floats

    @property
    def variances(self) -> dict[str, float]:
        """True variance by worker id, as :class:`voxpop.StrongOracle` takes it."""
        ids = self.answers.worker_ids.tolist()
        return dict(zip(ids, self.worker_variance.tolist(), strict=True))

    def save(self, directory: str | Path) -> Path:
        """Write ``answers.csv``, ``truth.csv`` and ``workers.csv``."""
        folder, answers = Path(directory), self.answers
        truth = dict(zip(answers.value_names, self.truth.T, strict=True))
        workers = {"worker": answers.worker_ids, "variance": self.worker_variance}
        with replacing_folder(folder, ("answers.csv", "truth.csv", "workers.csv")) as new:
            write_table(long_columns(answers), new / "answers.csv")
            write_table({"task": answers.task_ids, **truth}, new / "truth.csv")
            write_table(workers, new / "workers.csv")
        return folder


def simulate(
    model: Model,
    assignment: Assignment,
    rng: np.random.Generator,
    *,
    truth: ArrayLike | None = None,
    worker_variance: ArrayLike | None = None,
    side: float = 100.0,
) -> Simulation:
    """Draw truths, worker levels and answers from the model (M1).

    Truths come from the model's prior or, where that is flat, uniformly from a box of length
    ``side`` along each coordinate, as in the paper. Pass ``truth`` or ``worker_variance`` to use
    your own.
    """
    shape = (assignment.n_tasks, model.dimension)
    if truth is not None:
        mu = np.array(truth, dtype=np.float64)
        mu = mu[:, None] if mu.ndim == 1 else mu
        require(mu.shape == shape, f"truth must have shape {shape}, got {np.shape(truth)}")
    elif np.isinf(model.prior_variance):
        mu = rng.uniform(0.0, side, shape)
    else:
        mu = rng.normal(model.prior_means(shape[0]), np.sqrt(model.prior_variance))
    if worker_variance is None:
        variance = rng.choice(model.levels, size=assignment.n_workers, p=np.array(model.weights))
    else:
        variance = np.array(worker_variance, dtype=np.float64)
        require(
            variance.shape == (assignment.n_workers,) and bool((variance > 0).all()),
            f"worker_variance must be a positive number for each of {assignment.n_workers} workers",
        )
    noise = rng.normal(size=(len(assignment.task), model.dimension))
    value = mu[assignment.task] + np.sqrt(variance[assignment.worker])[:, None] * noise
    answers = Answers.from_codes(
        assignment.task.astype(np.int32),
        made_up_ids("t", assignment.n_tasks),
        assignment.worker.astype(np.int32),
        made_up_ids("w", assignment.n_workers),
        value,
        value_names=_names(model.dimension),
    )
    return Simulation(answers, mu, variance)


def made_up_ids(letter: str, n: int) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
    """Name n tasks or workers by a letter and their number, all equally long."""
    digits = len(str(n - 1))
    return np.array([f"{letter}{i:0{digits}d}" for i in range(n)], dtype=object)


def _names(dimension: int) -> tuple[str, ...]:
    if dimension > 3:
        return tuple(f"value_{j + 1}" for j in range(dimension))
    return ("value",) if dimension == 1 else ("x", "y", "z")[:dimension]
