"""Message passing over parts: to estimators it looks like messages in memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from voxpop.arrays import Floats, WorkerSums
from voxpop.inference.engine import Engine
from voxpop.inference.groups import fixed_point, model_in_units, noise_unit
from voxpop.inference.schedule import Asked, Schedule, Sent
from voxpop.models.model import Model
from voxpop.partitions.steps import Part, Steps, Totals


@dataclass(frozen=True, eq=False)
class Incoming:
    """The input of all tasks: the workers' sums after a step, and the levels' log weights.

    Sums of -1 are zero: nobody has sent a message yet.
    """

    sums: int
    log_weights: Floats

    def put(self, part: Part) -> None:
        """Give it to the messages of a part."""
        messages = part.messages
        messages.log_weights = self.log_weights
        if self.sums < 0:
            messages.sums = np.zeros_like(messages.sums)
        else:
            messages.sums = part.job.log.totals(self.sums)["sums"]


def guess(part: Part, incoming: Incoming) -> Totals:
    """Guess the messages of a part (M27)."""
    incoming.put(part)
    return {"sums": part.messages.guess()}


def send(part: Part, incoming: Incoming, asked: Asked) -> Totals:
    """Let all tasks of a part send their messages."""
    incoming.put(part)
    sums, change, _ = part.messages.send(asked)
    return {"sums": sums, "change": np.array([change])}


class PartitionedMessages(Schedule):
    """The messages of all parts, under the paper's noise."""

    def __init__(self, steps: Steps, engine: Engine, model: Model) -> None:
        whole = steps.job.parts.whole
        self._steps, self._sums_of = steps, -1
        scaled = model_in_units(model, noise_unit(model))
        names = whole.kernels(engine.inference, scaled.levels, engine.accuracy)
        n_slots = whole.dimension if "integrate" in names else 1
        self.quantum, _ = fixed_point(whole.most_answers * n_slots)
        self.sums = np.zeros((whole.n_workers, len(model.support)), dtype=np.int64)
        self.log_weights = scaled.log_weights
        self._begin("active" in names, engine.accuracy)
        steps.open(partial(engine.open, model=model, whole=whole))

    @property
    def incoming(self) -> Incoming:
        """The input of tasks now."""
        return Incoming(self._sums_of, self.log_weights)

    def guess(self) -> WorkerSums:
        """Guess where messages would be slow to send from flat ones; return the sums of all."""
        found = self._steps.total(partial(guess, incoming=self.incoming), "changes")
        self._sums_of = self._steps.last
        return np.asarray(found["sums"])

    def send(self, asked: Asked) -> Sent:
        """Let all tasks send; the paper's noise has no parameters to be given, and no bias."""
        assert not any((asked.parameters, asked.bias, asked.is_counted))
        assert asked.tasks is None
        found = self._steps.total(partial(send, incoming=self.incoming, asked=asked), "changes")
        self._sums_of = self._steps.last
        return np.asarray(found["sums"]), float(found["change"][0]), None
