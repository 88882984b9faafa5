"""Moment matching on a GPU: a team of threads a row, as ``cuda/match.cu`` has it."""

from __future__ import annotations

from typing import Any

import numpy as np

from voxpop.arrays import Floats, WorkerSums
from voxpop.inference.gpu_arrays import GpuArrays
from voxpop.inference.kernel_set import Matching, Predictions

# Numbers in a Matched of match.cu.
_MATCHED = 8


class GpuMatching(GpuArrays):
    """Sweeps and predictions with moments matched; sites and messages stay on the GPU."""

    def match_sweep(
        self, given: Matching, new_sums: WorkerSums, is_counted: bool
    ) -> tuple[float, Floats, Floats | None]:
        """Match moments, row by row."""
        device, rows, law = self.device, given.rows, given.law
        n, n_classes = rows.known.shape[0], len(law.grid.mixing)
        n_counts = law.grid.mixing.size + n_classes + len(law.prior_variance) + 2
        evidence = device.empty(n, n_classes) if n_classes > 1 else None
        launch = _Launch(self, given)
        counts = device.zeros((launch.n_teams, n_counts), np.float64) if is_counted else None
        moved = device.zeros((launch.n_teams, 1), np.float64)
        # Few rows bring their messages themselves, all of them in the order of the workers.
        sums = None if rows.sending is None else new_sums
        launch("match_sweep", evidence, counts, moved, sums)
        if sums is None:
            self.add_messages(new_sums, given.edges)
        by_class = np.zeros((n, 1)) if evidence is None else device.download(evidence)
        counted = None if counts is None else self.add_up(counts)
        return float(self.add_up(moved)[0]), by_class, counted

    def match_predict(self, given: Matching, with_pit: bool = True) -> Predictions:
        """Predict each answer from the others."""
        out = self.device.empty(6, given.rows.value.shape[0], 1)
        _Launch(self, given)("match_predict", np.int32(with_pit), out)
        return Predictions(*self.device.download(out))


class _Launch:
    """Rows as the kernels take them, and the teams that share the work on them."""

    def __init__(self, kernels: GpuArrays, given: Matching) -> None:
        law, rows, device = given.law, given.rows, kernels.device
        (n_classes, n_levels, n_variances), n_prior = law.grid.mixing.shape, len(law.prior_variance)
        n, n_edges, there = rows.known.shape[0], rows.value.shape[0], kernels.there
        self._device, self._lanes = device, device.lanes(-(-n_edges // n) + (n_prior > 0))
        room = rows.most + (n_prior > 0)
        size = room * (4 + n_levels + n_variances + _MATCHED * n_classes) + 2 * n_classes
        self.n_teams = kernels.n_teams(n, self._lanes, size)
        # A flat prior has no mean, and the only class is certain.
        zeros = device.zeros((n, 1), np.float64) if n_classes == 1 else None
        mean = there(rows.prior_mean) if n_prior else None
        about: tuple[Any, ...] = (*(None,) * 4, np.float64(0.0))
        if rows.bias is not None:
            beliefs = there(rows.bias.mean), there(rows.bias.precision)
            messages = rows.bias.edge_precision, rows.bias.edge_pull
            about = *beliefs, *messages, np.float64(rows.bias.damping)
        sending = None if rows.sending is None else there(rows.sending.astype(np.uint8))
        self._given = (
            *(np.int32(size) for size in (n_classes, n_levels, n_variances, n_prior)),
            there(law.grid.variance), there(law.grid.mixing), there(law.prior_variance),
            there(law.prior_weight), np.float64(law.accuracy),
            np.int64(n), np.int64(n_edges), np.int64(rows.most), there(rows.ptr),
            there(rows.value), mean, there(rows.known),
            there(rows.log_class) if zeros is None else zeros, rows.site, rows.prior_site,
            *about, sending, *kernels.incoming(given.state, given.edges),
            device.empty(self.n_teams * size),
        )  # fmt: skip

    def __call__(self, name: str, *out: Any) -> None:
        """Run a kernel."""
        kernel = self._device.compile(("messages", "law", "match", name), name, LANES=self._lanes)
        self._device.launch(kernel, self.n_teams * self._lanes, *self._given, *out)
