"""From tables of answers, tasks, workers and pairs to the next answers: a campaign for one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from voxpop.collect.campaign.batch import Batch, Rules
from voxpop.collect.campaign.campaign import Campaign
from voxpop.collect.campaign.ledger import id_array
from voxpop.collect.campaign.next_batch import Available
from voxpop.collect.planning.learn_crowd import LearnedCrowd, learn_crowd
from voxpop.collect.tables import read_pairs
from voxpop.data.answers import Answers
from voxpop.data.ids import Positions
from voxpop.data.tables import open_table, resolve_column
from voxpop.errors import require
from voxpop.models.model import Model


def next_answers(
    answers: Answers,
    crowd: Model | LearnedCrowd,
    k: int,
    rng: np.random.Generator,
    *,
    tasks: object = None,
    workers: object = None,
    pending: object = None,
    forbidden: object = None,
    rules: Rules | None = None,
) -> Batch:
    """Return the k answers to ask for next, given the answers so far.

    An id may be text in one table and a number in another: ids are matched by their text.

    Parameters
    ----------
    tasks
        A table with a column of all task ids. By default only tasks with answers are known.
    workers
        Ids of the available workers, or a table of them with optional columns ``price`` and
        ``capacity``. None: anyone may answer.
    pending, forbidden
        Tables of (task, worker) pairs: those already asked for, and those not allowed.
    """
    campaign = Campaign(crowd, value_names=answers.value_names)
    campaign.add_table(answers)
    if tasks is not None:
        table = open_table(tasks)
        listed = table.ids(resolve_column(table, "task", None))[1]
        campaign.add_tasks(_match(listed.tolist(), campaign.task_ids))

    def pairs(source: object) -> list[tuple[Any, Any]]:
        task, worker = ([], []) if source is None else read_pairs(source)
        known = _match(task, campaign.task_ids), _match(worker, campaign.worker_ids)
        return list(zip(*known, strict=True))

    if workers is not None:
        available = Available.read(workers)
        workers = replace(available, ids=_match(available.ids, campaign.worker_ids))
    return campaign.next(
        k, workers, rules=rules, pending=pairs(pending), forbidden=pairs(forbidden), rng=rng
    )


def noise_model(
    answers: Answers,
    support: Sequence[float] | None,
    weights: Sequence[float] | None,
    prior_mean: float,
    prior_variance: float | None,
) -> tuple[Model | LearnedCrowd, str]:
    """Take the noise levels as given, or learn them from the answers; describe them in a line."""
    require(support is not None or weights is None, "weights go with a support")
    require(
        prior_variance is not None or not prior_mean,
        "prior_mean does nothing without prior_variance; give both",
    )
    flat = np.inf if prior_variance is None else prior_variance
    if support is None:
        learned = learn_crowd(answers)
        summary = learned.summary()
        if answers.task_degree.max() == 1 and not answers.is_gold.any():
            summary = "no task has two answers, so the noise cannot be learned; give its support"
        model = replace(learned.model, prior_mean=prior_mean, prior_variance=flat)
        return replace(learned, model=model), summary
    model = Model(
        support=support,
        weights=weights,
        prior_mean=prior_mean,
        prior_variance=flat,
        dimension=answers.dimension,
    )
    return model, f"noise variances as given: {', '.join(f'{s:g}' for s in model.support)}"


def _match(listed: list[Any], known: list[Any]) -> list[Any]:
    """Spell ids as they are known; new ones as they come."""
    positions = Positions(id_array(known))
    places = [positions.get(identity) for identity in listed]
    return [identity if i is None else known[i] for identity, i in zip(listed, places, strict=True)]
