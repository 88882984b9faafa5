"""``aggregate``: from a path, a table or answers to a result, in one call."""

from __future__ import annotations

from typing import Unpack

from voxpop.data.read import ReadingOptions, read_answers
from voxpop.errors import ConfigError
from voxpop.estimators.base import Estimator, OnSweep
from voxpop.estimators.on_scale import with_scale
from voxpop.models.scale import ScaleName
from voxpop.results.result import Result


def aggregate(
    source: object,
    method: str | Estimator = "auto",
    *,
    scale: ScaleName | None = None,
    on_sweep: OnSweep | None = None,
    **reading: Unpack[ReadingOptions],
) -> Result:
    """Estimate the truth of every task, from answers, a path, a data frame or a database.

    Parameters
    ----------
    method
        An estimator, or the name of one that needs no arguments: ``"auto"`` (noise models
        compared on left-out answers), ``"bi"``, ``"nbi"``, ``"average"``, ``"median"``.
    scale
        The scale on which all values have the same noise: ``"log"`` (prices, sizes), ``"sqrt"``
        (counts), ``"logit"`` (percentages), ``"circular"`` (angles) or ``"linear"``; estimates and
        intervals come back in the answers' unit. The default is linear; ``"auto"`` takes another
        that answers suggest where gold confirms it.
    on_sweep
        Called after every sweep with its stage, its number, its change, and the change at which
        the iteration stops.
    reading
        The arguments of :func:`voxpop.read_answers`: ``task``, ``worker``, ``values``, ``gold``,
        ``duplicates``, ``format``, ``question``, ``missing``, ``objects``, ``looked``, ``query``.
        ``Answers`` take none of them.
    """
    from voxpop.estimators.registry import make_estimator

    estimator = make_estimator(method) if isinstance(method, str) else method
    if not isinstance(estimator, Estimator) or isinstance(estimator, type):
        raise ConfigError(f"method must be a name or an estimator like BI(), got {method!r}")
    return with_scale(estimator, scale).fit(read_answers(source, **reading), on_sweep)
