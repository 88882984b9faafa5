"""A campaign as records of a journal, and back."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

from voxpop.collect.campaign.journal import Record, check_ids
from voxpop.collect.campaign.ledger import Ledger
from voxpop.models.model import Model

# Answers in one record of a saved campaign.
_PER_RECORD = 10_000


def records_of(ledger: Ledger, model: Model, trust: float) -> Iterator[Record]:
    """Tell all that a campaign has been told."""
    yield {"campaign": 1, "value_names": list(ledger.value_names)}
    yield model_record(model, trust)
    tasks, workers = ledger.tasks.ids, ledger.workers.ids
    check_ids(chain(tasks, workers))
    yield {"tasks": tasks}
    known = np.flatnonzero(~np.isnan(ledger.gold[:, 0]))
    if len(known):
        gold = ledger.gold[known].tolist()
        yield {"gold": {"task": [tasks[i] for i in known], "value": gold}}
    for start in range(0, ledger.n_edges, _PER_RECORD):
        part = slice(start, start + _PER_RECORD)
        yield {
            "answers": {
                "task": [tasks[i] for i in ledger.task[part]],
                "worker": [workers[u] for u in ledger.worker[part]],
                "value": ledger.value[part].tolist(),
            }
        }


def ids_in(record: Record) -> Iterator[Any]:
    """Return all ids that a record names."""
    for part in (record.get("answers", {}), record.get("gold", {})):
        yield from part.get("task", ())
        yield from part.get("worker", ())
    yield from record.get("tasks", ())


def model_record(model: Model, trust: float) -> Record:
    """Write down a noise model; JSON has no infinity, so a flat prior has no variance."""
    flat = np.isinf(model.prior_variance)
    return {
        "model": {
            "support": list(model.support),
            "weights": list(model.weights or ()),
            "prior_mean": np.asarray(model.prior_mean).tolist(),
            "prior_variance": None if flat else model.prior_variance,
            "dimension": model.dimension,
        },
        "trust": trust,
    }


def last_model(records: list[Record]) -> tuple[Model, float]:
    """Return the noise model that holds, the last one learned, and the trust in it."""
    (*_, last) = (record for record in records if "model" in record)
    told = last["model"]
    model = Model(**{**told, "prior_variance": told["prior_variance"] or np.inf})
    return model, float(last.get("trust", 1.0))  # files of earlier versions do not tell
