"""Moment matching: each answer of a row as one Gaussian about it, so that no integral is left.

As a function of the truth, an answer is a mixture of Gaussians, all about the answer (M12). Here
one Gaussian about the answer takes its place, a *site* whose precision is such that the mean of the
truth stays what the mixture makes it (M90). The cavity distribution of the truth is then a
Gaussian, too, and messages, evidence and predictions have closed forms (M91)-(M93). A sweep costs a
small part of one that integrates, linear in the answers whatever their spread, and near enough to
learn a noise model by; the final posterior is integrated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtr

from voxpop.arrays import Floats, Index
from voxpop.inference.kernels.integrate import Law, LeftOut, Outgoing

# Rounds in which sites are found before the first messages.
FIRST_ROUNDS = 3
# Least damping of sites where tasks have classes of difficulty: undamped, all sites of a task swing
# together from one sweep to the next, and what is learned of difficulty swings with them.
CLASSES_DAMPING = 0.3
# Log of a negligible weight.
_NOTHING = -700.0
# How far a truth moved counts in steps of this, up to a limit.
_STEP, _MOST_MOVED = 2.0**-30, 16.0


@dataclass(frozen=True, eq=False)
class MatchedRows:
    """Rows (one coordinate of one task each) of any degree, their answers one after the other.

    ``ptr`` (n + 1,) are the places where rows begin. ``centre``, ``spread`` (E,), ``incoming``
    (E, K), ``log_class`` (n, C), ``prior_mean`` and ``known`` (n,) are as in
    ``kernels.integrate.Rows``; the truth may be known in some rows. ``site`` (C, E) and
    ``prior_site`` (C, n) are the precisions of the Gaussians that stand for answers and prior, 0
    before the first sweep.
    """

    ptr: Index
    centre: Floats
    spread: Floats
    incoming: Floats
    log_class: Floats
    prior_mean: Floats
    known: Floats
    site: Floats
    prior_site: Floats

    @property
    def row(self) -> Index:
        """The row of each answer (E,)."""
        return np.repeat(np.arange(len(self.known)), np.diff(self.ptr))


class _Matched(NamedTuple):
    """Functions averaged over the cavity distribution of the truth, a Gaussian; (E,), some (E, G).

    ``distance`` d is that from its mean; ``total`` the log of the density Z there; ``slope`` and
    ``curve`` are the means of 1 / V and 1 / V - d² / V² over the components; ``precision`` is that
    of the Gaussian that leaves the mean of the truth as it is.
    """

    distance: Floats
    others: Floats
    log_gauss: Floats
    share: Floats
    total: Floats
    slope: Floats
    curve: Floats
    precision: Floats
    usable: NDArray[np.bool_]


def _match(
    centre: Floats, variance: Floats, share: Floats, mean: Floats, others: Floats
) -> _Matched:
    """Average mixtures about ``centre`` (E,), of ``variance`` and ``share`` (E, G), over Gaussians.

    ::

        Z = Σ_g share_g N(a | mean, V_g),  V_g = v_g + others
        slope = E[1/V],  curve = E[1/V - d²/V²],  site = E[1/V] / E[v/V]

    with expectations under share_g N(a | mean, V_g) / Z.
    """
    usable = np.isfinite(others)
    distance = np.where(usable, centre - mean, 0.0)
    wide = variance + np.where(usable, others, 0.0)[:, None]
    per_wide = 1.0 / wide
    log_gauss = -0.5 * (distance[:, None] ** 2 * per_wide + np.log(wide))
    with np.errstate(divide="ignore"):
        terms = log_gauss + np.log(share)
    top = terms.max(axis=1, keepdims=True)
    part = np.exp(terms - top)
    whole = part.sum(axis=1)
    part /= whole[:, None]
    # Without squares of precisions, which may overflow.
    bent = 1.0 - distance[:, None] ** 2 * per_wide
    slope, curve = (part * per_wide).sum(axis=1), (part * per_wide * bent).sum(axis=1)
    precision = slope / (part * variance * per_wide).sum(axis=1)
    total = np.where(usable, top[:, 0] + np.log(whole), 0.0)
    return _Matched(distance, others, log_gauss, part, total, slope, curve, precision, usable)


def _others(per_answer: Floats, ptr: Index) -> Floats:
    """Sum over the other answers of the row, without subtracting."""
    degree = np.diff(ptr)
    found = np.empty_like(per_answer)
    for size in np.unique(degree).tolist():
        at = ptr[:-1][degree == size][:, None] + np.arange(size)
        mine = per_answer[at]
        before, after = np.zeros_like(mine), np.zeros_like(mine)
        np.cumsum(mine[:, :-1], axis=1, out=before[:, 1:])
        np.cumsum(mine[:, :0:-1], axis=1, out=after[:, -2::-1])
        found[at] = before + after
    return found


class _Class:
    """All rows under one class of difficulty: sites, cavities, and the evidence for the class."""

    def __init__(self, rows: MatchedRows, law: Law, c: int) -> None:
        self._rows, self._law, self._at = rows, law, rows.row
        self.variance = law.grid.variance + rows.spread[:, None]
        level = np.exp(rows.incoming)
        self.level = level / level.sum(axis=1, keepdims=True)
        self.share = self.level @ law.grid.mixing[c]
        self.site, self.prior_site = rows.site[c].copy(), rows.prior_site[c].copy()
        self.has_prior = law.prior_variance.size > 0
        fresh = self.site == 0.0
        if fresh.any():
            self.site[fresh] = np.exp(-(self.share * np.log(self.variance)).sum(axis=1))[fresh]
            if self.has_prior:
                fresh = self.prior_site == 0.0
                widest = 1.0 / law.prior_variance.max()
                self.prior_site[fresh] = widest
            for _ in range(FIRST_ROUNDS):
                self.update(self.answers(), self.prior())

    def _sums(self) -> tuple[Floats, Floats]:
        """Precision of all sites of each row, and precision times mean."""
        first, rows = self._rows.ptr[:-1], self._rows
        total = np.add.reduceat(self.site, first)
        pull = np.add.reduceat(self.site * rows.centre, first)
        return total, pull

    def answers(self) -> _Matched:
        """Every answer against the cavity distribution of its row (E,)."""
        rows, at = self._rows, self._at
        total = _others(self.site, rows.ptr) + self.prior_site[at]
        pull = _others(self.site * rows.centre, rows.ptr)
        pull = pull + (self.prior_site * rows.prior_mean)[at]
        with np.errstate(divide="ignore", invalid="ignore"):
            others, mean = 1.0 / total, pull / total
        known = np.isfinite(rows.known)[at]
        others, mean = np.where(known, 0.0, others), np.where(known, rows.known[at], mean)
        return _match(rows.centre, self.variance, self.share, mean, others)

    def prior(self) -> _Matched | None:
        """The prior against what the answers of a row say (n,)."""
        if not self.has_prior:
            return None
        rows, law = self._rows, self._law
        total, pull = self._sums()
        known = np.isfinite(rows.known)
        mean = np.where(known, rows.known, pull / total)
        n = len(total)
        variance = np.broadcast_to(law.prior_variance, (n, law.prior_variance.size))
        share = np.broadcast_to(law.prior_weight, variance.shape)
        return _match(rows.prior_mean, variance, share, mean, np.where(known, 0.0, 1.0 / total))

    def update(self, answers: _Matched, prior: _Matched | None, damping: float = 0.0) -> None:
        """Take over the precisions found, and with damping a share of those before."""
        site = damping * self.site + (1.0 - damping) * answers.precision
        self.site = np.where(answers.usable, site, self.site)
        if prior is not None:
            self.prior_site = damping * self.prior_site + (1.0 - damping) * prior.precision

    def mean(self) -> tuple[Floats, Floats]:
        """Mean and precision of each row's truth."""
        total, pull = self._sums()
        total = total + self.prior_site
        return (pull + self.prior_site * self._rows.prior_mean) / total, total

    def evidence(self, answers: _Matched, prior: _Matched | None) -> Floats:
        """Log of the density of all answers of each row (n,) (M92)."""
        rows, at = self._rows, self._at
        mean, total = self.mean()
        away = self.site * (rows.centre - mean[at]) ** 2
        parts = np.where(answers.usable, _log_factor(answers, self.site), 0.0) - 0.5 * away
        found = np.add.reduceat(parts, rows.ptr[:-1]) - 0.5 * np.log(total)
        if prior is not None:
            found += _log_factor(prior, self.prior_site)
            found -= 0.5 * self.prior_site * (rows.prior_mean - mean) ** 2
        plain = np.add.reduceat(answers.total, rows.ptr[:-1])
        return np.where(np.isfinite(rows.known), plain, found)


def _log_factor(found: _Matched, site: Floats) -> Floats:
    """Log of the height of a site: with it the Gaussian has the density that the mixture has."""
    wider = 1.0 + np.where(found.usable, found.others, 0.0) * site
    return np.asarray(found.total + 0.5 * np.log(wider) + 0.5 * found.distance**2 * site / wider)


def _all_classes(
    rows: MatchedRows, law: Law
) -> tuple[list[_Class], list[_Matched], list[_Matched | None], Floats]:
    classes = [_Class(rows, law, c) for c in range(len(law.grid.mixing))]
    answers, priors = [c.answers() for c in classes], [c.prior() for c in classes]
    evidence = np.stack(
        [c.evidence(a, p) for c, a, p in zip(classes, answers, priors, strict=True)], axis=1
    )
    return classes, answers, priors, evidence


def _class_shares(rows: MatchedRows, evidence: Floats, answers: list[_Matched]) -> Floats:
    """Probability of each class without the evidence of each answer, (E, C)."""
    log_share = (rows.log_class + evidence)[rows.row] - np.stack([a.total for a in answers], axis=1)
    return np.asarray(np.exp(log_share - logsumexp(log_share, axis=1, keepdims=True)))


def send(
    rows: MatchedRows, law: Law, damping: float = 0.0
) -> tuple[Outgoing, Floats, Floats, float]:
    """Compute the messages of rows, as ``kernels.integrate.send`` does, and the next sites.

    Returns also ``site`` and ``prior_site``, and how far the truths moved: the sum over rows of
    the squared change of their mean, in sds, as :func:`in_steps` counts it.
    """
    classes, answers, priors, evidence = _all_classes(rows, law)
    damping = max(damping, CLASSES_DAMPING) if len(classes) > 1 else damping
    grid, row = law.grid, rows.row
    without = _class_shares(rows, evidence, answers)
    joint = rows.log_class + evidence
    weight = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
    message = np.full(rows.incoming.shape, -np.inf)
    pairs = np.zeros_like(grid.mixing)
    first, second = np.zeros_like(rows.centre), np.zeros_like(rows.centre)
    components, pull, precision = np.zeros(law.prior_variance.size), 0.0, 0.0
    moved = np.zeros(len(rows.known))
    for c, (cls, found, prior) in enumerate(zip(classes, answers, priors, strict=True)):
        with np.errstate(divide="ignore"):
            log_mixing = np.log(grid.mixing[c])
            log_density = logsumexp(found.log_gauss[:, None, :] + log_mixing, axis=2)
            message = np.logaddexp(message, log_density + np.log(without[:, c, None]))
        here = np.where(found.usable, weight[row, c], 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            per_share = np.where(cls.share > 0, found.share / cls.share, 0.0)
        pairs[c] = np.einsum("ek,eg->kg", cls.level * here[:, None], per_share) * grid.mixing[c]
        first += here * found.distance * found.slope
        second += here * found.curve
        if prior is not None:
            mass = weight[:, c]
            components += mass @ prior.share
            # x less the prior's mean: the distance is the other way round.
            pull -= float((mass * prior.distance * prior.slope).sum())
            precision += float((mass[:, None] * prior.share / law.prior_variance).sum())
        before = cls.mean()[0]
        cls.update(found, prior, damping)
        after, total = cls.mean()
        open_row = ~np.isfinite(rows.known)
        moved[open_row] += (weight[:, c] * (after - before) ** 2 * total)[open_row]
    message = np.where(
        answers[0].usable[:, None], message - message.max(axis=1, keepdims=True), 0.0
    )
    shift = rows.spread * first
    variance = np.clip(
        rows.spread - rows.spread * (rows.spread * second) - shift**2, 0.0, rows.spread
    )
    usable = answers[0].usable
    found_all = Outgoing(
        np.maximum(message, _NOTHING), evidence, np.where(usable, shift, 0.0),
        np.where(usable, variance, rows.spread), pairs, weight.sum(axis=0), components, pull,
        precision,
    )  # fmt: skip
    site, prior_site = (
        np.stack([c.site for c in classes]),
        np.stack([c.prior_site for c in classes]),
    )
    return found_all, site, prior_site, in_steps(moved)


def in_steps(moved: Floats) -> float:
    """Sum the moves of truths (n,), in whole steps: the same in any order, and over any parts."""
    near = np.where(moved < _MOST_MOVED, moved, _MOST_MOVED)
    return float((np.rint(near / _STEP) * _STEP).sum())


def predict(rows: MatchedRows, law: Law) -> LeftOut:
    """Predict each answer (E,) from all others of its row (M93)."""
    classes, answers, _, evidence = _all_classes(rows, law)
    without = _class_shares(rows, evidence, answers)
    density = np.full(rows.centre.shape, -np.inf)
    pit, mean, variance, noise = (np.zeros_like(rows.centre) for _ in range(4))
    for c, (cls, found) in enumerate(zip(classes, answers, strict=True)):
        here = without[:, c]
        with np.errstate(divide="ignore"):
            density = np.logaddexp(density, np.log(here) + found.total)
        others = np.where(found.usable, found.others, 0.0)
        wide = cls.variance + others[:, None]
        z = found.distance[:, None] / np.sqrt(wide)
        pit += here * (cls.share * ndtr(z)).sum(axis=1)
        mean += here * (rows.centre - found.distance)
        variance += here * others
        noise += here * (cls.share * cls.variance).sum(axis=1)
    for c, found in enumerate(answers):
        variance += without[:, c] * (rows.centre - found.distance - mean) ** 2
    return LeftOut(
        np.maximum(density - 0.5 * np.log(2.0 * np.pi), _NOTHING),
        np.clip(pit, 0.0, 1.0), mean, variance, variance + noise,
    )  # fmt: skip
