"""Tables 1 and 2: crowds emulated on real truths (faces and their ages, boxes of objects)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from voxpop.arrays import Floats, Index
from voxpop.collect.assignment.random_graphs import Assignment, assign_degrees, assign_regular
from voxpop.data.answers import Answers
from voxpop.data.read import read_answers, read_truth
from voxpop.data.tables import matrix, open_table
from voxpop.errors import DataError
from voxpop.estimators.base import Estimator
from voxpop.estimators.baselines.pg1 import PG1
from voxpop.estimators.bi.bi import BI
from voxpop.estimators.bounds.oracles import StrongOracle
from voxpop.estimators.bounds.weak_oracle import WeakOracle
from voxpop.estimators.registry import make_estimator
from voxpop.models.model import Model
from voxpop.models.simulation import Simulation, simulate
from voxpop.paper.experiments.runner import Effort, Experiment, Row, Setting
from voxpop.paper.experiments.synthetic import compare, paper_methods

# ---- Table 2: VOC-07/12 ---------------------------------------------------------------------

VOC_SUPPORT = (10.0, 1000.0)
VOC_PER_TASK, VOC_PER_WORKER = 3, 10
# Share of good workers: as the paper draws it, and the one that explains the level it reports.
VOC_SHARES = (0.5, 0.472)
BOX_COLUMNS = ("xmin", "ymin", "xmax", "ymax")


def read_voc(data: Path) -> tuple[Index, Floats]:
    """Image of every object that is not marked difficult, and its box."""
    table = open_table(one_of(data / "voc0712", "voc0712_trainval.csv"))
    codes, _ = table.ids("image")
    kept = table.numbers("difficult") == 0
    box = matrix(table, BOX_COLUMNS)[kept]
    _, image = np.unique(codes[kept], return_inverse=True)
    return image.astype(np.int64), box


def deal_images(image: Index, rng: np.random.Generator) -> Assignment:
    """Deal images to workers; whoever has an image answers both corners of all its objects.

    Tasks are corner points: 2 o and 2 o + 1 of object o.
    """
    n_images = int(image.max()) + 1
    dealt = assign_regular(n_images, VOC_PER_TASK, VOC_PER_WORKER, rng)
    workers_of = dealt.worker.reshape(n_images, VOC_PER_TASK)  # edges lie image by image
    point_image = np.repeat(image, 2)
    task = np.repeat(np.arange(len(point_image)), VOC_PER_TASK)
    return Assignment(task, workers_of[point_image].ravel(), len(point_image), dealt.n_workers)


def _plan_voc(effort: Effort, data: Path) -> list[tuple[Setting, int]]:  # noqa: ARG001
    return [({"share": share}, effort.draws) for share in VOC_SHARES]


def run_voc(setting: Setting, rng: np.random.Generator, data: Path) -> list[Row]:
    """Emulate the paper's crowd on VOC-07/12 and score the paper's four estimators.

    The share is the chance of a worker to be good; BI knows the levels, equally likely as in the
    paper. ``share_drawn`` is the share of answers that good workers gave in this draw.
    """
    image, box = read_voc(data)
    share = float(setting["share"])
    drawn = Model(support=VOC_SUPPORT, weights=(share, 1 - share), dimension=2)
    assignment = deal_images(image, rng)
    crowd = simulate(drawn, assignment, rng, truth=box.reshape(-1, 2))
    methods = paper_methods(crowd, Model(support=VOC_SUPPORT, dimension=2))
    del methods["weak-oracle"]  # the paper has none here
    good = crowd.worker_variance[assignment.worker] == VOC_SUPPORT[0]
    return [row | {"share_drawn": float(good.mean())} for row in compare(crowd, methods)]


# ---- Table 1: FG-NET ------------------------------------------------------------------------

AGE_METHODS = ("average", "median", "nbi", "auto", "pg1", "two-way", "p910")
"""Methods of the registry that table 1 compares, besides BI by the paper's rule and oracles."""
# What the paper says of the crowd: ten answers a photo, 165 workers, 1 to 457 answers each, and
# two classes of noise, here the paper's S_est.
AGE_PER_TASK, AGE_WORKERS, AGE_MOST = 10, 165, 457
AGE_LEVELS = (6.687, 62.56)
# Young children are told apart more easily than adults.
_YOUNG, _YOUNG_FACTOR = 5.0, 0.25
# Precision of a prior that says nothing of ages.
_FLAT = 1e-6
# In the crowd "shared" a face looks older or younger than it is to everybody alike: an error that
# no weighting removes. Its size puts the strong oracle near the 28.45 that the paper reports.
_SHIFT_SD, _SHIFT_PER_YEAR = 0.5, 0.24


def read_ages(data: Path) -> tuple[list[str], Floats]:
    """Photos and their true ages."""
    table = open_table(one_of(data / "fgnet_truth", "truth.csv"))
    codes, ids = table.ids("task")
    return [str(ids[code]) for code in codes], table.numbers("value")


def worker_degrees(n_answers: int, n_workers: int, most: int) -> Index:
    """Answers per worker, from 1 to ``most``, with the given sum: few have many, many have few.

    ``most ** ((j / (n - 1)) ** p)`` with p such that the sum comes out.
    """
    most = min(most, n_answers - n_workers + 1)
    place = np.linspace(0.0, 1.0, n_workers)
    low, high = 0.01, 100.0
    for _ in range(100):
        power = np.sqrt(low * high)
        if (most ** (place**power)).sum() > n_answers:
            low = power
        else:
            high = power
    degree = np.maximum(np.floor(most ** (place**high)).astype(np.int64), 1)
    # What rounding took is given back, one each, to the busy but not the busiest; if the least
    # of everybody is too much already, the busiest does less.
    short = n_answers - int(degree.sum())
    while short > 0:
        some = np.flatnonzero(degree < most)[-short:]
        degree[some] += 1
        short -= len(some)
    degree[-1] += short
    return degree


def emulate_ages(age: Floats, shared: bool, rng: np.random.Generator) -> Simulation:
    """Let 165 workers of two classes guess ages: whole years, none below zero.

    ``shared``: faces do not look their age, alike to all workers.
    """
    n_workers = min(AGE_WORKERS, len(age))
    degree = worker_degrees(AGE_PER_TASK * len(age), n_workers, min(AGE_MOST, len(age)))
    a = assign_degrees(np.full(len(age), AGE_PER_TASK), rng.permutation(degree), rng)
    variance = rng.choice(AGE_LEVELS, size=n_workers)
    shift = rng.normal(size=len(age)) * (_SHIFT_SD + _SHIFT_PER_YEAR * age)
    looks = age + shift if shared else age
    factor = np.where(age < _YOUNG, _YOUNG_FACTOR, 1.0)
    noise = np.sqrt(variance[a.worker] * factor[a.task]) * rng.normal(size=len(a.task))
    value = np.maximum(np.round(looks[a.task] + noise), 0.0)
    answers = Answers.from_codes(
        a.task.astype(np.int32),
        np.array([f"photo{i}" for i in range(len(age))], dtype=object),
        a.worker.astype(np.int32),
        np.array([f"w{u}" for u in range(n_workers)], dtype=object),
        value[:, None],
        value_names=("value",),
    )
    return Simulation(answers, age[:, None], variance)


def read_age_crowd(data: Path) -> Simulation:
    """The real crowd, where a user has it: columns task (photo), worker, value (age guessed).

    A worker's true variance is its mean squared error here, as nobody knows a better one; a
    worker who never erred has that of a rounding error.
    """
    answers = read_answers(age_crowd_path(data), "task", "worker", "value", duplicates="mean")
    photos, age = read_ages(data)
    known = dict(zip(photos, age.tolist(), strict=True))
    truth = read_truth(known, answers.task_ids, answers.value_names)
    if np.isnan(truth).any():
        raise DataError(
            "fgnet/answers.csv: tasks must be photos of fgnet_truth/truth.csv, such as 001A02"
        )
    squared = (answers.value - truth[answers.task])[:, 0] ** 2
    total = np.bincount(answers.worker, squared, answers.n_workers)
    return Simulation(answers, truth, np.maximum(total / answers.worker_degree, 1 / 12))


def age_crowd_path(data: Path) -> Path | None:
    """Where the real answers lie, if they do."""
    try:
        return one_of(data / "fgnet", "answers.csv")
    except DataError:
        return None


def _plan_ages(effort: Effort, data: Path) -> list[tuple[Setting, int]]:
    emulated: list[tuple[Setting, int]] = [
        ({"crowd": crowd}, effort.draws) for crowd in ("emulated", "emulated-shared")
    ]
    real: list[tuple[Setting, int]] = [({"crowd": "real"}, 1)]
    return emulated + (real if age_crowd_path(data) else [])


def run_ages(setting: Setting, rng: np.random.Generator, data: Path) -> list[Row]:
    """Score the methods on the ages that a crowd guessed; BI with the paper's S_est from NBI."""
    if setting["crowd"] == "real":
        crowd = read_age_crowd(data)
    else:
        crowd = emulate_ages(read_ages(data)[1], setting["crowd"] == "emulated-shared", rng)
    methods: dict[str, Estimator] = {name: make_estimator(name) for name in AGE_METHODS}
    chosen = BI(support="nbi")
    levels = chosen.fit(crowd.answers).settings["support_used"]
    prior = PG1().fit(crowd.answers).settings
    mean, variance = prior["mu0_used"], 1 / prior["gamma0_used"]
    methods |= {
        # What PG1's prior of the truths alone gains: PG1 without it, and BI with it.
        "pg1, flat prior": PG1(gamma0=_FLAT),
        "bi, pg1's prior": BI(support="nbi", prior_mean=mean, prior_variance=variance),
        "bi": chosen,
        "weak-oracle": WeakOracle(support=levels, variances=crowd.variances),
        "strong-oracle": StrongOracle(variances=crowd.variances),
    }
    found: Row = {"level_low": levels[0], "level_high": levels[-1]}
    return [row | found for row in compare(crowd, methods)]


def one_of(folder: Path, name: str) -> Path:
    """Find a file as it is or gzipped."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise DataError(f"{folder / name}: there is no such file, nor one ending in .gz")


TABLE1 = Experiment(
    name="table1",
    title="FG-NET, ages guessed by a crowd",
    plan=_plan_ages,
    run=run_ages,
    methods=(*AGE_METHODS, "pg1, flat prior", "bi, pg1's prior"),
    data="fgnet_truth",
)
TABLE2 = Experiment(
    name="table2",
    title="VOC-07/12, corners of boxes by an emulated crowd",
    plan=_plan_voc,
    run=run_voc,
    data="voc0712",
)
