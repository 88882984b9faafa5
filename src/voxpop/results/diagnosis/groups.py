"""Groups: workers who depend on each other, found, counted as one, and separated again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats, Index
from voxpop.data.answers import Answers
from voxpop.data.components import components
from voxpop.data.sums import mean_by_worker
from voxpop.errors import shorten
from voxpop.results.audit import Audit
from voxpop.results.diagnosis.copies import find_copies, number_values
from voxpop.results.diagnosis.dependence import (
    MIN_CORRELATION,
    MIN_SHARED,
    Families,
    Link,
    correlations,
    edge_pairs,
    equal_links,
    has_pairs,
    log_chance_of_nearness,
    worker_lines,
)
from voxpop.results.diagnosis.gold_errors import GoldErrors, sharing_links
from voxpop.results.result import Result

# The default merges a group of honest workers by mistake no more often than this.
LEVEL = 0.05 / 8
# Workers who copy less often than this are dependent only where their answers are equal ...
_NEARLY_ALWAYS = 0.9
# ... unless the other answers are nearer than this to each other, by the ratio of variances.
_NEAR = 0.5
_MEDIAN_OF_SQUARE = 0.455
# Nearness, which holds for any distribution of the answers, may err this many times as often as
# the correlation, which it only confirms: 5 % of crowds by default.
_WHATEVER = 16
# Rounds of a search: a group that was found helps to find its other members.
_ROUNDS = 6
# Above this share of the other workers' answers, equal answers are ones that anybody gives.
_EVIDENT = 0.1
# Expected number of honest pairs per crowd with enough evidence to make workers suspect.
_SUSPECT = 0.5
# Answers of candidates looked at in a round, per answer of the table.
_WORK_PER_ANSWER = 20


@dataclass(frozen=True, eq=False)
class Group:
    """Workers who count as one: on all their tasks, or only where they gave equal answers."""

    workers: tuple[int, ...]
    whole: bool
    links: tuple[Link, ...]

    @property
    def strongest(self) -> Link:
        """The link with the best evidence."""
        return min(self.links, key=lambda link: (link.p, -link.shared))


@dataclass(frozen=True, eq=False)
class Groups:
    """The groups of a crowd, and the answers with each group counted as one worker."""

    answers: Answers
    groups: tuple[Group, ...]

    def __bool__(self) -> bool:
        return bool(self.groups)

    @cached_property
    def _merging(self) -> Merging:
        owner = owners(self.answers, self.groups)
        return Merging.of(self.answers, owner)

    @property
    def merged(self) -> Answers:
        """The answers of a group to a task as one answer, their mean, of one worker."""
        return self._merging.answers

    def restore(self, result: Result) -> Result:
        """Turn a result of the merged answers into one of all workers and answers.

        A member has the noise that was learned for the group, averaged over the member's answers,
        and a share of its weight. What is known of an answer is what is known of the merged one.
        """
        answers, merging = self.answers, self._merging
        at = merging.answers.worker[merging.place]

        def of_workers(per_worker: Floats) -> Floats:
            if not per_worker.size:
                return per_worker
            return mean_by_worker(answers, per_worker[at])

        weight = mean_by_worker(answers, result.worker_weight[at] * merging.share)
        return replace(
            result,
            worker_ids=answers.worker_ids,
            task_answers=answers.task_degree,
            worker_answers=answers.worker_degree,
            worker_weight=weight / weight.mean(),
            audit=None if result.audit is None else _spread_out(result.audit, merging.place),
            settings={**result.settings, "groups": self.to_list()},
            notes=(*result.notes, *self.notes()),
            worker_variance=of_workers(result.worker_variance),
            worker_interval=of_workers(result.worker_interval),
            worker_posterior=of_workers(result.worker_posterior),
            worker_bias=of_workers(result.worker_bias),
            worker_bias_sd=of_workers(result.worker_bias_sd),
            worker_gain=of_workers(result.worker_gain),
            worker_gain_sd=of_workers(result.worker_gain_sd),
            worker_slips=of_workers(result.worker_slips),
        )

    def to_list(self) -> list[dict[str, Any]]:
        """The groups as plain JSON values, for the settings of a result."""
        ids = [i if isinstance(i, int | str) else str(i) for i in self.answers.worker_ids.tolist()]
        return [
            {"workers": [ids[u] for u in group.workers], "whole": group.whole}
            for group in self.groups
        ]

    def notes(self) -> list[str]:
        """Return who is counted as one and why, a sentence for each group."""
        sentences = []
        for group in self.groups:
            ids, link = self.answers.worker_ids[list(group.workers)], group.strongest
            who = shorten(ids) if len(ids) > 3 else " and ".join(map(str, ids.tolist()))
            if group.whole and not link.equal:
                why = f"correlation {link.correlation:.2f} over {link.shared} common tasks"
            else:
                why = f"{link.equal} of {link.shared} common tasks answered identically"
            what = "count as one" if group.whole else "their equal answers count as one"
            reason = "agree far more than independent workers would"
            sentences.append(f"workers {who} {reason} ({why}): {what}")
        return sentences


@dataclass(frozen=True, eq=False)
class Merging:
    """Answers with some of them merged: the place (E,) of every original answer among them.

    ``share`` (E,) is one over the number of answers that were merged into one, ``owner`` the number
    of each merged worker among the original ones, or beyond them where it is made up.
    """

    answers: Answers
    place: Index
    share: Floats
    owner: Index

    @classmethod
    def of(cls, answers: Answers, owner: Index) -> Merging:
        """Merge the answers of one owner (E,) to one task into their mean.

        Owners below the number of workers are these workers; others are made up.
        """
        if np.array_equal(owner, answers.worker):
            own = np.arange(answers.n_workers)
            return cls(answers, np.arange(answers.n_edges), np.ones(answers.n_edges), own)
        key = answers.task.astype(np.int64) * (int(owner.max()) + 1) + owner
        _, first, place, counts = np.unique(
            key, return_index=True, return_inverse=True, return_counts=True
        )
        # As in the original: task by task, and within a task by the ids of the workers.
        order = np.argsort(first, kind="stable")
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        place, first, counts = rank[place], first[order], counts[order]
        workers, worker = np.unique(owner[first], return_inverse=True)
        # Relative to the first, so that equal answers stay exactly equal.
        origin = answers.value[first]
        moved = np.zeros_like(origin)
        np.add.at(moved, place, answers.value - origin[place])
        merged = replace(
            answers,
            worker_ids=_ids(answers, workers),
            task=answers.task[first],
            worker=worker.astype(np.int32),
            value=origin + moved / counts[:, None],
        )
        return cls(merged, place, 1.0 / counts[place], workers)


def _ids(answers: Answers, owner: Index) -> NDArray[Any]:
    """Ids of owners: the workers', and a text for each that is made up."""
    made_up = owner >= answers.n_workers
    if not made_up.any():
        return answers.worker_ids[owner]
    ids = np.empty(len(owner), dtype=object)
    ids[~made_up] = answers.worker_ids[owner[~made_up]].tolist()
    ids[made_up] = [f"group {number + 1}" for number in range(int(made_up.sum()))]
    return ids


def owners(answers: Answers, groups: Sequence[Group]) -> Index:
    """Number the owner of every answer: its worker, the first of the group, or a made-up one."""
    stands_for = np.arange(answers.n_workers)
    made_up = np.full(answers.n_workers, -1)
    for number, group in enumerate(groups):
        members = list(group.workers)
        if group.whole:
            stands_for[members] = min(members)
        else:
            made_up[members] = answers.n_workers + number
    owner = stands_for[answers.worker]
    partial = made_up[answers.worker]
    if (partial >= 0).any():
        code = number_values(answers.value)
        key = np.stack([answers.task, partial, code])
        _, place, times = np.unique(key, axis=1, return_inverse=True, return_counts=True)
        owner = np.where((partial >= 0) & (times[place.ravel()] > 1), partial, owner)
    return owner


def answer_shares(answers: Answers, settings: Mapping[str, Any]) -> Floats:
    """Weight of every answer (E,), by the groups in the settings of a result: 1, or a share."""
    listed = settings.get("groups")
    if not listed:
        return np.ones(answers.n_edges)
    # By their texts, which is all that a saved result has of some ids.
    at = {str(identity): u for u, identity in enumerate(answers.worker_ids.tolist())}
    groups = [
        Group(tuple(at[str(identity)] for identity in each["workers"]), bool(each["whole"]), ())
        for each in listed
    ]
    return Merging.of(answers, owners(answers, groups)).share


def _spread_out(audit: Audit, place: Index) -> Audit:
    """Give every original answer what the audit has of the merged one.

    The audit of a large crowd may be that of a part of it, which has no place here.
    """
    names = ("pit", "predicted", "predicted_sd", "truth", "log_density", "judged_by")
    if len(audit.truth) != place.max() + 1:
        return audit
    return replace(audit, **{name: getattr(audit, name)[place] for name in names})


# The search


def find_groups(answers: Answers, level: float = LEVEL) -> Groups:
    """Find the workers who do not answer independently.

    In a crowd of honest workers whose errors are about Gaussian any group is found with a
    probability of at most ``level``, else of at most eight times as much. Equal rare answers come
    first (M43), and errors about known truths (M45), where there are any: those find a group with
    that probability once more. Then, with what was found counted as one, errors that go together
    (M41)-(M42) and are nearer to each other than chance allows (M44), until no more are found.
    """
    if not has_pairs(answers):
        return Groups(answers, ())
    equal = equal_links(answers, level / 2)
    partial, links = _separated(answers, equal)
    # A worker who copies at times is not a member of another group.
    settled = {u for group in partial for u in group.workers}
    links += sharing_links(answers, settled, level)
    for _ in range(_ROUNDS):
        merging = Merging.of(answers, owners(answers, [*partial, *_linked(links, whole=True)]))
        owner = merging.owner.tolist()
        new = [
            replace(link, first=owner[link.first], second=owner[link.second])
            for link in _together(merging.answers, level / 2)
        ]
        new = [
            link
            for link in new
            if max(link.first, link.second) < answers.n_workers
            and not settled & {link.first, link.second}
        ]
        if not new:
            break
        links += new
    found = [*partial, *_linked(links, whole=True)]
    if answers.is_gold.any():
        found = [group for group in found if not _cleared_by_gold(answers, group)]
    return Groups(answers, tuple(sorted(found, key=lambda group: group.strongest.p)))


def _cleared_by_gold(answers: Answers, group: Group) -> bool:
    """Return whether known truths show that the errors of a group do not go together.

    Experts among workers who share an error look like a group: they agree where the others do not.
    """
    errors = GoldErrors.of(answers)
    if errors is None:
        return False
    link = errors.link(errors.among(np.array(group.workers)))
    return link is not None and link.correlation < MIN_CORRELATION


def _together(answers: Answers, level: float) -> list[Link]:
    """Find pairs whose errors go together, and who are nearer to each other than chance allows."""
    pairs = edge_pairs(answers)
    if pairs is None:
        return []
    family = np.arange(answers.n_workers)
    for _ in range(2):
        found = correlations(answers, pairs, Families.of(answers, family))
        # Workers who may belong to the two do not count as third workers: they would hide the
        # group.
        suspect = found.p < _SUSPECT
        family = components(answers.n_workers, pairs.first[suspect], pairs.second[suspect])
    likely = np.flatnonzero((found.p <= level) & found.beyond)
    likely = likely[np.argsort(found.p[likely], kind="stable")]
    degree = answers.worker_degree
    work = np.cumsum(degree[pairs.first[likely]] + degree[pairs.second[likely]])
    likely = likely[work <= _WORK_PER_ANSWER * answers.n_edges]
    if not len(likely):
        return []
    n_pairs = float((found.shared >= MIN_SHARED).sum())
    # On a coarse scale many are equally near; equal answers are counted more sharply.
    found_equal = find_copies(answers, _WHATEVER * level / 2)
    copies = {(copy.first, copy.second): copy.p for copy in found_equal}
    all_pairs = answers.n_workers * (answers.n_workers - 1) / 2
    links = []
    for k in likely:
        u, v = int(pairs.first[k]), int(pairs.second[k])
        near = np.exp(log_chance_of_nearness(answers, u, v, family)) * n_pairs
        chance = 2 * min(near, copies.get((u, v), 1.0) * all_pairs)
        if chance <= _WHATEVER * level:
            p = float(found.p[k])
            shared, correlation = int(found.shared[k]), float(found.correlation[k])
            links.append(
                Link(first=u, second=v, shared=shared, correlation=correlation, equal=0, p=p)
            )
    return links


def _linked(links: Iterable[Link], whole: bool) -> list[Group]:
    """Single linkage: everyone linked to a member is a member."""
    links = list(links)
    if not links:
        return []
    first, second = (
        np.array([getattr(link, end) for link in links]) for end in ("first", "second")
    )
    label = components(int(max(first.max(), second.max())) + 1, first, second)
    return [
        Group(
            tuple(np.flatnonzero(label == number).tolist()),
            whole,
            tuple(link for link, at in zip(links, label[first], strict=True) if at == number),
        )
        for number in np.unique(label[first])
    ]


def _separated(answers: Answers, equal: list[Link]) -> tuple[list[Group], list[Link]]:
    """Separate those who copy at times, as groups, from those who always do, as links.

    Where copies copy only at times, the answers that are not equal are as far from each other as
    those of other workers are. Where others give the same answers too, nobody need have copied.
    """
    if not equal:
        return [], []
    pairs = edge_pairs(answers)
    assert pairs is not None
    alone = Families.of(answers, np.arange(answers.n_workers))
    lines = worker_lines(answers, answers.value, alone)
    code = number_values(answers.value)
    partial, whole = [], []
    for group in _linked(equal, whole=False):
        member = np.zeros(answers.n_workers, dtype=bool)
        member[list(group.workers)] = True
        inside = (member[pairs.first] & member[pairs.second])[pairs.pair]
        e, f = pairs.e[inside], pairs.f[inside]
        same = code[e] == code[f]
        if _evident(answers, code, member, e[same]):
            continue
        scatter = lines.variance[answers.worker[e]] + lines.variance[answers.worker[f]]
        with np.errstate(divide="ignore", invalid="ignore"):
            apart = ((answers.value[e] - answers.value[f]) ** 2 / scatter)[~same]
        always = same.mean() >= _NEARLY_ALWAYS
        if always or np.median(apart) < _NEAR * _MEDIAN_OF_SQUARE:
            whole += list(group.links)
        else:
            partial.append(group)
    return partial, whole


def _evident(answers: Answers, code: Index, member: NDArray[np.bool_], equal: Index) -> bool:
    """Return whether workers outside a group often give the answers ``equal`` (edges) as well.

    A number that can be read off a picture is the same for all who read it well.
    """
    value = np.full(answers.n_tasks, -1)
    value[answers.task[equal]] = code[equal]
    outside = ~member[answers.worker] & (value[answers.task] >= 0)
    agree = code[outside] == value[answers.task[outside]]
    return int(agree.sum()) > _EVIDENT * len(agree)
