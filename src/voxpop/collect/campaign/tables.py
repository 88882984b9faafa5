"""From tables of answers, tasks, workers and pairs to the next answers: a campaign for one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from voxpop.arrays import Ids
from voxpop.collect.campaign import Batch, Campaign, Rules
from voxpop.collect.campaign.ledger import id_array
from voxpop.collect.planning.learn_crowd import LearnedCrowd, learn_crowd
from voxpop.data.answers import Answers
from voxpop.data.ids import Positions
from voxpop.data.tables import frame, open_table, resolve_column
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
    """Return the k answers to ask for next, given those that are there.

    Ids in one table may be text and numbers in another: the same text is the same id.

    Parameters
    ----------
    tasks
        A table with a column of all task ids. Without it, only tasks that have an answer are known.
    workers
        Ids of those who are there; or a table of them, perhaps with columns ``price`` and
        ``capacity``; None for whoever comes.
    pending, forbidden
        Tables of pairs, task and worker: asked for already, and such as must not be.
    """
    campaign = Campaign(crowd, value_names=answers.value_names)
    campaign.add_table(answers)
    place, person = Positions(answers.task_ids), Positions(answers.worker_ids)
    if tasks is not None:
        table = open_table(tasks)
        listed = table.ids(resolve_column(table, "task", None))[1]
        campaign.add_tasks(_as_known(listed.tolist(), place, answers.task_ids))
        place = Positions(id_array(campaign.task_ids))
    known = id_array(campaign.task_ids)
    present: object = workers
    if workers is not None and not isinstance(workers, list):
        present = _present(workers, person, answers.worker_ids)
    elif isinstance(workers, list):
        present = _as_known(workers, person, answers.worker_ids)

    def pairs(source: object) -> list[tuple[Any, Any]]:
        if source is None:
            return []
        table = open_table(source)
        task, task_ids = table.ids(resolve_column(table, "task", None))
        worker, worker_ids = table.ids(resolve_column(table, "worker", None))
        there = _as_known(task_ids.tolist(), place, known)
        who = _as_known(worker_ids.tolist(), person, answers.worker_ids)
        return [(there[i], who[u]) for i, u in zip(task, worker, strict=True)]

    return campaign.next(
        k, present, rules=rules, pending=pairs(pending), forbidden=pairs(forbidden), rng=rng
    )


def noise_model(
    answers: Answers,
    support: Sequence[float] | None,
    weights: Sequence[float] | None,
    prior_mean: float,
    prior_variance: float | None,
) -> tuple[Model | LearnedCrowd, str]:
    """Take the noise levels as stated, or learn them from the answers; and say what they are."""
    require(support is not None or weights is None, "weights go with a support")
    require(
        prior_variance is not None or not prior_mean,
        "prior_mean does nothing without prior_variance; give both",
    )
    flat = np.inf if prior_variance is None else prior_variance
    if support is None:
        found = learn_crowd(answers)
        model = replace(found.model, prior_mean=prior_mean, prior_variance=flat)
        said = found.summary()
        if answers.task_degree.max() == 1 and not answers.is_gold.any():
            said = "no task has two answers, so nothing is known of the noise; state it (support)"
        return replace(found, model=model), said
    model = Model(
        support=support,
        weights=weights,
        prior_mean=prior_mean,
        prior_variance=flat,
        dimension=answers.dimension,
    )
    return model, f"noise variances as stated: {', '.join(f'{s:g}' for s in model.support)}"


def _present(source: object, person: Positions, ids: Ids) -> Any:
    """Read a table of workers, its ids as the answers have them."""
    table = open_table(source)
    code, listed = table.ids(resolve_column(table, "worker", None))
    names = _as_known(listed.tolist(), person, ids)
    columns: dict[str, Any] = {"worker": [names[c] for c in code]}
    columns |= {
        name: table.numbers(name) for name in ("price", "capacity") if name in table.columns
    }
    return frame(columns, "pandas")


def _as_known(listed: list[Any], known: Positions, ids: Ids) -> list[Any]:
    """Spell ids as they are known; new ones as they come."""
    places = [known.get(identity) for identity in listed]
    return [identity if i is None else ids[i] for identity, i in zip(listed, places, strict=True)]
