"""Messages under a noise model, over parts, as a fit of a large crowd sees them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Codes, Floats, Index, WorkerSums
from voxpop.data.exact import largest_by_owner, owner_sums, owner_values
from voxpop.estimators.bi.large_fit import LargeFit
from voxpop.estimators.bi.noise_fit import integral_messages, match_messages
from voxpop.inference.engine import Engine
from voxpop.inference.groups import SweepParameters, WorkerBias, fixed_point
from voxpop.inference.message_passing import MessagePassing
from voxpop.inference.moment_matching import MomentMatching, rms_moved
from voxpop.inference.schedule import Asked
from voxpop.models.noise import Noise, NoiseParameters
from voxpop.models.noise.bias import Bias
from voxpop.models.noise.levels import Levels
from voxpop.partitions.passing import Incoming
from voxpop.partitions.steps import Part, Steps, Totals

# Moves of truths are counted in steps of this.
_STEP = 2.0**-30


def reopen(part: Part, lay_out: Callable[..., MessagePassing], shift: Floats | None) -> Totals:
    """Replace the messages of a part, with moments matched, by integrals."""
    if shift is not None:
        part.messages.recentre(shift)
    part.keep(lay_out(part.answers, before=part.messages))
    return {"sums": part.messages.sent()}


def send_noise(part: Part, incoming: Incoming, asked: Asked, shift: Floats | None) -> Totals:
    """Let all tasks of a part send their messages, biases recentred before."""
    incoming.put(part)
    messages = part.messages
    if shift is not None:
        messages.recentre(shift)
    if isinstance(messages, MomentMatching):
        assert asked.parameters is not None
        sums, moved, _ = messages.send(asked.damping, asked.parameters, asked.bias, None, False)
        return {"sums": sums, "moved": np.rint(moved / _STEP).astype(np.int64)}
    sums, change, _ = messages.send(asked)
    return {"sums": sums, "change": np.array([change])}


def recentre(part: Part, shift: Floats) -> Totals:
    """Subtract a shift from every worker's bias in the messages of a part."""
    part.messages.recentre(shift)
    return {"sums": part.messages.sent()}


def sum_bias(part: Part, shift: Floats | None, largest: Floats | None) -> Totals:
    """Sum up the messages about biases, less a shift: first the ``largest`` (2, m, d), then all."""
    m, found = part.answers.n_workers, list[list[NDArray[Any]]]()
    for j, groups in enumerate(part.messages.about_biases()):
        flat = ([array.ravel() for array in each] for each in zip(*groups, strict=True))
        worker, precision, pull = (np.concatenate(each) for each in flat)
        if shift is not None:
            pull -= precision * shift[worker, j]
        both = precision, pull
        if largest is None:
            found.append([largest_by_owner(worker, terms, m) for terms in both])
        else:
            pairs = zip(both, largest[:, :, j], strict=True)
            found.append([owner_sums(worker, *pair) for pair in pairs])
    if largest is None:
        return {"largest": np.array(found).transpose(1, 2, 0)}
    return {"bias": np.array(found).swapaxes(0, 1)}


class PartitionedNoise:
    """The messages of all parts; matched moments first, integrals once they were reopened."""

    def __init__(
        self,
        steps: Steps,
        engine: Engine,
        scale: Floats,
        parameters: NoiseParameters,
        n_open: int,
    ) -> None:
        self._steps, self._engine, self._scale, self._n_open = steps, engine, scale, n_open
        self._whole = whole = steps.job.parts.whole
        self.quantum, _ = fixed_point(whole.most_answers * whole.dimension)
        levels = parameters[Levels]
        self.sums: WorkerSums = np.zeros((whole.n_workers, len(levels.variance)), dtype=np.int64)
        self.log_weights = levels.log_weights
        self._sums_of, self._shift = -1, cast(Floats | None, None)
        self._bias: tuple[Floats, Floats] | None = None
        lay_out = partial(
            match_messages, scale=scale, engine=engine, parameters=parameters, whole=whole
        )
        steps.open(lay_out)

    @property
    def incoming(self) -> Incoming:
        """The input of tasks now."""
        return Incoming(self._sums_of, self.log_weights)

    def reopen(self, noise: Noise, parameters: NoiseParameters, levels: Index) -> None:
        """Continue with integrals."""
        lay_out = partial(
            integral_messages, scale=self._scale, noise=noise, engine=self._engine,
            parameters=parameters, levels=levels, whole=self._whole,
        )  # fmt: skip
        again = partial(reopen, lay_out=lay_out, shift=self._shift)
        self._take(self._steps.total(again, "reopens", lay_out))

    def sweep(
        self,
        damping: float = 0.0,
        *,
        parameters: SweepParameters,
        bias: WorkerBias | None = None,
        tasks: object = None,
    ) -> tuple[float, None]:
        """Let all tasks send; return how far truths moved, or the largest change of a message."""
        assert tasks is None
        asked = Asked(damping, None, parameters, bias)
        call = partial(send_noise, incoming=self.incoming, asked=asked, shift=self._shift)
        # Parts read the sums of the last step from the log: a table of all workers less in memory.
        self.sums = np.empty((0, len(self.log_weights)), dtype=np.int64)
        found = self._steps.total(call, "changes")
        self._take(found)
        if "change" in found:
            return float(found["change"][0]), None
        return rms_moved(found["moved"] * _STEP, self._n_open), None

    def _take(self, found: Any) -> None:
        self.sums, self._sums_of = np.asarray(found["sums"]), self._steps.last
        self._shift = self._bias = None

    def bias_sums(self) -> tuple[Floats, Floats]:
        """Precision and precision times mean of all messages about each bias, (m, d)."""
        if self._sums_of < 0:
            zero = np.zeros((self._whole.n_workers, self._whole.dimension))
            return zero, zero
        if self._bias is None:
            call = partial(sum_bias, shift=self._shift)
            largest = self._steps.total(partial(call, largest=None), "reads")["largest"]
            limbs = self._steps.total(partial(call, largest=largest), "reads")["bias"]
            both = [
                np.stack([owner_values(*pair) for pair in zip(each, of.T, strict=True)], axis=1)
                for each, of in zip(limbs, largest, strict=True)
            ]
            self._bias = both[0], both[1]
        return self._bias

    def recentre(self, shift: Floats) -> None:
        """Subtract ``shift`` (m, d) from every worker's bias, with the next call of the parts."""
        if shift.any():
            self._shift = shift if self._shift is None else self._shift + shift
            self._bias = None

    def settle_shift(self) -> None:
        """Let the parts subtract the pending shift."""
        if self._shift is not None:
            call = partial(recentre, shift=self._shift)
            self._take(self._steps.total(call, "changes"))


class PartitionedFit(LargeFit):
    """A noise model whose parameters were learned from a part of the answers, over all parts."""

    def __init__(
        self,
        noise: Noise,
        engine: Engine,
        support: object,
        part: Codes,
        anchored: NDArray[np.bool_],
    ) -> None:
        self._noise, self._engine, self._support = noise, engine, support
        self._informative = slice(None)
        self._on_grid, self._common = support == "auto", support == "common"
        self._sending, self._freeing, self._n_learned = None, None, 0
        self._part, self._anchored = part, anchored

    def _open_integrals(self, levels: Index) -> None:
        self._parameters = self._parameters.replace(self._parameters[Levels].keep(levels))
        messages = cast(PartitionedNoise, self._messages)
        messages.reopen(self._noise, self._parameters, levels)


def join_workers(part: Part, label: Floats) -> Totals:
    """Give all workers who are connected within a part the largest ``label`` (m,) of them."""
    group = part.answers.worker_part
    largest = np.zeros(int(group.max()) + 1)
    np.maximum.at(largest, group, label)
    return {"label": largest[group]}


def parts_of_crowd(steps: Steps, parameters: NoiseParameters, noise: Noise) -> Codes:
    """Number the connected part of the crowd that each worker is in, where biases need it."""
    label = np.arange(steps.job.parts.n_workers, dtype=np.float64)
    if not parameters[Bias].is_on or noise.truths == "learn":
        # Truths of one distribution tie all parts of the crowd together.
        return np.zeros(len(label), dtype=np.int32)
    while True:
        before, label = label, np.asarray(steps.total(partial(join_workers, label=label))["label"])
        if (label == before).all():
            return np.unique(label, return_inverse=True)[1].astype(np.int32)


def anchored_parts(part: Codes, answered_gold: Floats | None) -> NDArray[np.bool_]:
    """Tell which connected parts have gold, given which workers (m,) have answered some."""
    anchored = np.zeros(int(part.max()) + 1, dtype=bool)
    if answered_gold is not None:
        anchored[part[answered_gold > 0]] = True
    return anchored
