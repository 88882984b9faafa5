"""The kernels of a rich noise model: in numpy, or compiled; the same numbers from both."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from voxpop.arrays import Floats
from voxpop.inference.kernels import mixture
from voxpop.inference.kernels.mixture import Block, Grid, Heard, Prediction

# Nodes that a row is expected to need, for the size of a block.
USUAL_NODES = 250


class MixtureKernels(Protocol):
    """What a sweep asks of the kernels, block by block; see ``kernels.mixture``."""

    def numbers_per_row(self, degree: int, grid: Grid) -> int:
        """Tell how many numbers a row needs in flight, about."""

    def place(
        self,
        centre: Floats,
        narrow: Floats,
        wide: Floats,
        prior: tuple[Floats, float, float],
        bounds: tuple[Floats, Floats],
        accuracy: float,
    ) -> tuple[Floats, Floats]:
        """Choose nodes and log weights."""

    def send(self, block: Block, grid: Grid) -> Heard:
        """Work out what rows say."""

    def predict(self, block: Block, grid: Grid) -> Prediction:
        """Predict each answer from the others."""


class PortableMixture:
    """The kernels in numpy."""

    place = staticmethod(mixture.place)
    send = staticmethod(mixture.send)
    predict = staticmethod(mixture.predict)

    def numbers_per_row(self, degree: int, grid: Grid) -> int:
        """Tell how many numbers a row needs: every Gaussian at every node."""
        return degree * len(grid.variance) * USUAL_NODES


class NativeMixture:
    """The compiled kernels, on several threads; their number changes no bit."""

    def __init__(self, threads: int = 1, instruction_set: str = "") -> None:
        self._threads, self._instruction_set = threads, instruction_set

    def numbers_per_row(self, degree: int, grid: Grid) -> int:
        """Tell how many numbers a row needs: Gaussians live in the cache, one row at a time."""
        n_classes, n_levels, _ = grid.mixing.shape
        # Nodes, weights and masses, each read a few times by numpy, and the messages.
        return int((8 + n_classes) * USUAL_NODES + 4 * degree * n_levels)

    def place(
        self,
        centre: Floats,
        narrow: Floats,
        wide: Floats,
        prior: tuple[Floats, float, float],
        bounds: tuple[Floats, Floats],
        accuracy: float,
    ) -> tuple[Floats, Floats]:
        """Choose nodes and log weights."""
        from voxpop import _native

        return _native.mixture_place(
            _ready(centre),
            _ready(narrow),
            _ready(wide),
            _ready(prior[0]),
            prior[1],
            prior[2],
            _ready(bounds[0]),
            _ready(bounds[1]),
            accuracy,
            self._threads,
            self._instruction_set,
        )

    def send(self, block: Block, grid: Grid) -> Heard:
        """Work out what rows say."""
        from voxpop import _native

        n, degree = block.centre.shape
        n_classes, n_levels, _ = grid.mixing.shape
        heard = Heard(
            message=np.empty((n, degree, n_levels)),
            evidence=np.empty((n, n_classes)),
            shift=np.empty((n, degree)),
            shift_variance=np.empty((n, degree)),
            mass=np.empty((n, n_classes, block.x.shape[1])),
            pairs=np.empty(grid.mixing.shape),
        )
        _native.mixture_send(
            *_inputs(block, grid),
            heard.message,
            heard.evidence,
            heard.shift,
            heard.shift_variance,
            heard.mass,
            heard.pairs,
            self._threads,
            self._instruction_set,
        )
        return heard

    def predict(self, block: Block, grid: Grid) -> Prediction:
        """Predict each answer from the others."""
        from voxpop import _native

        found = Prediction(*(np.empty(block.centre.shape) for _ in range(5)))
        _native.mixture_predict(
            *_inputs(block, grid),
            found.log_density,
            found.pit,
            found.mean,
            found.truth_variance,
            found.variance,
            self._threads,
            self._instruction_set,
        )
        return found


def _ready(array: Floats) -> Floats:
    """Return an array as the compiled kernels want it in memory."""
    return np.ascontiguousarray(array, dtype=np.float64)


def _inputs(
    block: Block, grid: Grid
) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats, Floats, Floats]:
    """Return what the compiled kernels read of a block."""
    return (
        _ready(grid.variance),
        _ready(grid.mixing),
        _ready(block.centre),
        _ready(block.spread),
        _ready(block.incoming),
        _ready(block.log_class),
        _ready(block.x),
        _ready(block.log_weight),
    )
