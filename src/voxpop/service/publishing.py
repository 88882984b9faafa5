"""Publishing: the knowledge of inference about a campaign, as the bytes that web processes read."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import numpy as np

from voxpop.collect.campaign import Board
from voxpop.collect.campaign import Rules as BuyingRules
from voxpop.collect.campaign.board import Estimates
from voxpop.service.followed import Followed
from voxpop.service.summary import summarise

# Answers that a board looks ahead at each task.
_DEPTH = 4
# The half-widths of a board, divided by those of the campaign. Tasks are looked at again and again,
# and stopped as soon as they look narrow enough: those come first whose noise is underestimated.
# Without it, 89 % of the truths of stopped tasks were inside under Student-t noise and under bias.
STOP_MARGIN = 1.3


def make_board(followed: Followed) -> Board:
    """The order of the tasks that are open, and which of them meet the stop rule.

    Its half-widths allow for the choice of what to stop: those that meet the target cover the truth
    as often as stated.
    """
    target = followed.rules.half_width if followed.may_stop else None
    half = None if target is None else target / STOP_MARGIN
    board = followed.campaign.board(BuyingRules(half_width=half), depth=_DEPTH, as_of=followed.seq)
    tasks = board.task.astype(np.int64)
    closed = np.isin(tasks, np.array([*followed.closed, *followed.gold], dtype=np.int64))
    width = STOP_MARGIN * board.half_width if followed.learned else np.full(len(tasks), np.inf)
    met = board.done & ~closed
    return replace(
        board,
        task=tasks,
        worker=board.worker.astype(np.int64),
        half_width=width,
        done=met,
        order=board.order[~closed[board.order]],
    )


def known(followed: Followed) -> Estimates | None:
    """What is known of the tasks with answers."""
    return followed.campaign.estimates() if followed.campaign.n_answers else None


def estimates_bytes(followed: Followed, found: Estimates | None) -> bytes:
    """Estimates of tasks with answers, as an ``.npz``; no sds before anything is learned."""
    arrays: dict[str, Any] = {}
    d = followed.question.dimension
    if found is not None:
        low, high = found.interval()
        arrays = {"task": found.task_ids.astype(np.int64), "estimate": found.estimate}
        arrays |= {"sd": found.sd, "lower_95": low, "upper_95": high, "n": found.task_answers}
    else:
        arrays = {"task": np.zeros(0, np.int64), "n": np.zeros(0, np.int64)}
        names = ("estimate", "sd", "lower_95", "upper_95")
        arrays |= {name: np.zeros((0, d)) for name in names}
    if followed.learned is None:
        for name in ("sd", "lower_95", "upper_95"):
            arrays[name] = np.full_like(arrays[name], np.nan)
    looks = followed.learned.looks if followed.learned else {}
    reason = [looks.get(i, "") for i in arrays["task"].tolist()]
    arrays["reason"] = np.array(reason, dtype=str)
    arrays["needs_a_look"] = np.array([bool(one) for one in reason], dtype=bool)
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def workers_bytes(followed: Followed) -> bytes:
    """Noise and flags by worker, as of the last fit."""
    return json.dumps(followed.learned.workers if followed.learned else {}).encode()


def summary_bytes(followed: Followed, board: Board, found: Estimates | None, now: float) -> bytes:
    """All that the dashboard shows at a glance."""
    return json.dumps(summarise(followed, board, found, now), allow_nan=False).encode()
