"""A kernel set that lives elsewhere, called with arrays of the host as the others are."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from voxpop import Model
from voxpop.arrays import Floats, WorkerSums
from voxpop.inference.gpu_kernels import GpuKernels
from voxpop.inference.kernel_set import (
    BiasMessages,
    Edges,
    Integrals,
    Matching,
    Predictions,
    SweepState,
    TaskKernel,
)
from voxpop.inference.kernels.posterior import Posterior


class OnDevice:
    """Brings all arrays there before each call, and those back that it has changed."""

    def __init__(self, kernels: GpuKernels) -> None:
        self.kernels = kernels

    def _edges(self, edges: Edges) -> Edges:
        return Edges(self.kernels.bring(edges.worker), self.kernels.bring(edges.message))

    def _integrals(self, given: Integrals) -> Integrals:
        bring, rows = self.kernels.bring, given.rows
        arrays = {f.name: bring(getattr(rows, f.name)) for f in fields(rows) if f.name != "bias"}
        rows = replace(rows, **arrays, bias=self._bias(rows.bias))
        return given._replace(rows=rows, edges=self._edges(given.edges))

    def _matching(self, given: Matching) -> Matching:
        bring, rows = self.kernels.bring, given.rows
        names = "ptr", "value", "prior_mean", "known", "log_class", "site", "prior_site"
        arrays = {name: bring(getattr(rows, name)) for name in names}
        rows = replace(rows, **arrays, bias=self._bias(rows.bias))
        return given._replace(rows=rows, edges=self._edges(given.edges))

    def _bias(self, bias: BiasMessages | None) -> BiasMessages | None:
        if bias is None:
            return None
        there = self.kernels.bring(bias.edge_precision), self.kernels.bring(bias.edge_pull)
        return replace(bias, edge_precision=there[0], edge_pull=there[1])

    def _take_over(self, host: Any, there: Any) -> None:
        host[...] = self.kernels.fetch(there)

    def _take_over_messages(self, given: Any, there: Any) -> None:
        self._take_over(given.edges.message, there.edges.message)
        for name in ("edge_precision", "edge_pull") if given.rows.bias is not None else ():
            self._take_over(getattr(given.rows.bias, name), getattr(there.rows.bias, name))

    def integrate_sweep(
        self, given: Integrals, new_sums: WorkerSums, is_counted: bool
    ) -> tuple[float, Floats, Floats | None]:
        there, sums = self._integrals(given), self.kernels.bring(new_sums)
        found = self.kernels.integrate_sweep(there, sums, is_counted)
        self._take_over(new_sums, sums)
        self._take_over_messages(given, there)
        return found

    def integrate_posterior(
        self, given: Integrals, probabilities: Floats
    ) -> tuple[Posterior, Floats]:
        return self.kernels.integrate_posterior(self._integrals(given), probabilities)

    def integrate_predict(self, given: Integrals, with_pit: bool = True) -> Predictions:
        return self.kernels.integrate_predict(self._integrals(given), with_pit)

    def match_sweep(
        self, given: Matching, new_sums: WorkerSums, is_counted: bool
    ) -> tuple[float, Floats, Floats | None]:
        there, sums = self._matching(given), self.kernels.bring(new_sums)
        found = self.kernels.match_sweep(there, sums, is_counted)
        self._take_over(new_sums, sums)
        self._take_over_messages(given, there)
        for name in ("site", "prior_site"):
            self._take_over(getattr(given.rows, name), getattr(there.rows, name))
        return found

    def match_predict(self, given: Matching, with_pit: bool = True) -> Predictions:
        return self.kernels.match_predict(self._matching(given), with_pit)

    def enumeration(self, value: Floats, prior_mean: Floats, model: Model, room: int) -> TaskKernel:
        return _Tasks(self, self.kernels.enumeration(value, prior_mean, model, room))

    def pruned_enumeration(
        self, value: Floats, prior_mean: Floats, model: Model, accuracy: float
    ) -> TaskKernel:
        return _Tasks(self, self.kernels.pruned_enumeration(value, prior_mean, model, accuracy))


class _Tasks:
    kept = 0

    def __init__(self, kernels: OnDevice, kernel: TaskKernel) -> None:
        self._kernels, self._kernel = kernels, kernel

    def sweep(self, state: SweepState, edges: Edges, new_sums: WorkerSums) -> float:
        there, sums = self._kernels._edges(edges), self._kernels.kernels.bring(new_sums)
        change = self._kernel.sweep(state, there, sums)
        self._kernels._take_over(new_sums, sums)
        self._kernels._take_over(edges.message, there.message)
        return change

    def posterior(self, state: SweepState, edges: Edges, probabilities: Floats) -> Posterior:
        return self._kernel.posterior(state, self._kernels._edges(edges), probabilities)
