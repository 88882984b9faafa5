"""Figure 1 and tables 1 and 2: crowds drawn from the model, or emulated on faces and boxes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from voxpop.arrays import Floats, Index
from voxpop.collect.assignment.random_graphs import Assignment, assign_degrees, assign_regular
from voxpop.data.answers import Answers
from voxpop.data.read import read_answers
from voxpop.data.tables import matrix, open_table
from voxpop.data.truths import read_truth
from voxpop.errors import DataError
from voxpop.estimators.base import Estimator
from voxpop.estimators.registry import make_estimator
from voxpop.models.model import Model
from voxpop.models.simulation import Simulation, simulate
from voxpop.models.theory import average_mse, oracle_mse
from voxpop.paper.demo import compare
from voxpop.paper.experiments.runner import Effort, Experiment, Plan, Row, Setting

METHODS = ("average", "nbi", "bi", "weak-oracle", "strong-oracle")
"""The five of section 5."""
FORMULAS = {"average": average_mse, "strong-oracle": oracle_mse}
"""Expected errors by section 3.2, as functions of the model and the answers per task."""
PAPER_TABLE1 = {
    **{"average": 34.99, "nbi": 32.80, "bi": 28.72},
    **{"pg1": 33.54, "weak-oracle": 28.68, "strong-oracle": 28.45},
}
PAPER_TABLE2 = {"average": 355.6, "nbi": 116.1, "bi": 109.8, "strong-oracle": 109.8}


def paper_methods(
    crowd: Simulation, model: Model, *, weak_oracle: bool = False
) -> dict[str, Estimator]:
    """The methods of section 5; BI and the weak oracle know the levels, as in the paper."""
    levels: dict[str, Any] = {"support": model.support, "weights": model.weights}
    true_noise = {"variances": crowd.variances}
    given = {"bi": levels, "weak-oracle": levels | true_noise, "strong-oracle": true_noise}
    names = (name for name in METHODS if weak_oracle or name != "weak-oracle")
    return {name: make_estimator(name, given.get(name, {})) for name in names}


def score_rows(crowd: Simulation, methods: dict[str, Estimator]) -> list[Row]:
    """Fit each method and score it: mean squared distance, coverage, whether it converged."""
    return [
        {
            "method": run.label,
            "mse": run.score.mse,
            "coverage_95": run.score.coverage_95,
            "converged": run.result.trace.converged,
        }
        for run in compare(crowd, methods)
    ]


# ---- Figure 1: 200 tasks in a 100 x 100 image, over r or l; and the example of section 3.2 ------

SUPPORTS = {"small": (10.0, 100.0, 1000.0), "large": (10.0, 100.0, 5000.0)}
# The paper names neither list, but for "l >= 3" and "l >= 9" among odd numbers.
_DEGREES = {
    "per_worker": (1, 2, 3, 4, 5, 6, 8, 10, 15, 20),
    "per_task": (1, 3, 5, 7, 9, 11),
}
# From this many answers per task on, the weak oracle takes seconds per instance.
_HEAVY_PER_TASK = 11
# Section 3.2: one worker of a task is nearly exact, the others have variance x.
EXAMPLE = Model(support=(0.01, 100.0), weights=(0.2, 0.8), dimension=2)
EXAMPLE_PER_TASK, EXAMPLE_PER_WORKER = 5, 10


class Panel(NamedTuple):
    """A panel of figure 1: its noise levels, and the degree that varies; the other one is 5."""

    support: str
    varies: Literal["per_worker", "per_task"]

    @property
    def symbol(self) -> str:
        """The paper's letter for the degree that varies."""
        return "r" if self.varies == "per_worker" else "l"


PANELS = {
    "fig1a": Panel("small", "per_worker"),
    "fig1b": Panel("large", "per_worker"),
    "fig1c": Panel("small", "per_task"),
    "fig1d": Panel("large", "per_task"),
}


def paper_model(support: str) -> Model:
    """The model of figure 1: points in the plane, levels equally likely."""
    return Model(support=SUPPORTS[support], dimension=2)


def _plan_panel(panel: Panel, effort: Effort, _data: Path) -> Plan:
    crowd: Setting = {
        "support": panel.support,
        "n_tasks": effort.n_tasks,
        "per_task": 5,
        "per_worker": 5,
    }
    settings = [{**crowd, panel.varies: degree} for degree in _DEGREES[panel.varies]]
    return [
        (setting, effort.heavy if setting["per_task"] >= _HEAVY_PER_TASK else effort.instances)
        for setting in settings
    ]


def run_panel(setting: Setting, rng: np.random.Generator, _data: Path) -> list[Row]:
    """Draw one crowd of figure 1, and score the paper's five estimators on it."""
    model = paper_model(setting["support"])
    degrees = setting["per_task"], setting["per_worker"]
    crowd = simulate(model, assign_regular(setting["n_tasks"], *degrees, rng), rng)
    return score_rows(crowd, paper_methods(crowd, model, weak_oracle=True))


def run_example(setting: Setting, rng: np.random.Generator, _data: Path) -> list[Row]:
    """Give every task one nearly exact worker and four poor ones, and nobody knows who is who."""
    n_tasks = setting["n_tasks"]
    good, poor = (
        assign_regular(n_tasks, per_task, EXAMPLE_PER_WORKER, rng)
        for per_task in (1, EXAMPLE_PER_TASK - 1)
    )
    assignment = Assignment(
        np.concatenate([good.task, poor.task]),
        np.concatenate([good.worker, good.n_workers + poor.worker]),
        n_tasks,
        good.n_workers + poor.n_workers,
    )
    level = np.repeat(EXAMPLE.levels, [good.n_workers, poor.n_workers])
    crowd = simulate(EXAMPLE, assignment, rng, worker_variance=level)
    return score_rows(crowd, paper_methods(crowd, EXAMPLE))


FIGURES = [
    Experiment(
        name=name,
        title=f"figure 1{name[-1]}: S_{panel.support}, error over {panel.symbol}",
        plan=partial(_plan_panel, panel),
        run=run_panel,
    )
    for name, panel in PANELS.items()
]
EXAMPLE_RUN = Experiment(
    name="example",
    title="one precise worker per task (section 3.2)",
    plan=lambda effort, _: [({"n_tasks": effort.n_tasks}, effort.draws)],
    run=run_example,
)


def find_file(folder: Path, name: str) -> Path:
    """Find a file as it is or gzipped."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise DataError(f"{folder / name}: no such file, nor one ending in .gz")


# ---- Table 2: VOC-07/12 ---------------------------------------------------------------------

VOC_SUPPORT = (10.0, 1000.0)
VOC_PER_TASK, VOC_PER_WORKER = 3, 10
# Share of good workers: as the paper draws it, and the one that explains the level it reports.
VOC_SHARES = (0.5, 0.472)
BOX_COLUMNS = ("xmin", "ymin", "xmax", "ymax")


def voc_model(share: float = 0.5) -> Model:
    """The model of table 2, with this probability of a worker to be good."""
    return Model(support=VOC_SUPPORT, weights=(share, 1 - share), dimension=2)


def read_voc(data: Path) -> tuple[Index, Floats]:
    """Image and box of every object that is not marked difficult."""
    table = open_table(find_file(data / "voc0712", "voc0712_trainval.csv"))
    kept = table.numbers("difficult") == 0
    _, image = np.unique(table.ids("image")[0][kept], return_inverse=True)
    return image.astype(np.int64), matrix(table, BOX_COLUMNS)[kept]


def assign_images(image: Index, rng: np.random.Generator) -> Assignment:
    """Assign images to workers, who answer both corners of all objects of their images.

    Tasks are corner points: 2 o and 2 o + 1 of object o.
    """
    n_images = int(image.max()) + 1
    drawn = assign_regular(n_images, VOC_PER_TASK, VOC_PER_WORKER, rng)
    workers_of = drawn.worker.reshape(n_images, VOC_PER_TASK)  # edges are sorted by image
    point_image = np.repeat(image, 2)
    task = np.repeat(np.arange(len(point_image)), VOC_PER_TASK)
    return Assignment(task, workers_of[point_image].ravel(), len(point_image), drawn.n_workers)


def run_voc(setting: Setting, rng: np.random.Generator, data: Path) -> list[Row]:
    """Emulate the paper's crowd on VOC-07/12 and score the paper's four estimators.

    BI knows the levels and takes them as equally likely, as in the paper. ``share_drawn`` is the
    share of answers that good workers gave in this draw.
    """
    image, box = read_voc(data)
    assignment = assign_images(image, rng)
    model = voc_model(setting["share"])
    crowd = simulate(model, assignment, rng, truth=box.reshape(-1, 2))
    good = crowd.worker_variance[assignment.worker] == VOC_SUPPORT[0]
    drawn: Row = {"share_drawn": float(good.mean())}
    return [row | drawn for row in score_rows(crowd, paper_methods(crowd, voc_model()))]


# ---- Table 1: FG-NET ------------------------------------------------------------------------

AGE_METHODS = ("average", "median", "nbi", "auto", "pg1", "two-way", "p910")
"""Methods of the registry that table 1 compares, besides BI by the paper's rule and oracles."""
# What the paper says of the crowd: ten answers per photo, 165 workers, 1 to 457 answers each, and
# two classes of noise, here the paper's S_est.
AGE_PER_TASK, AGE_WORKERS, AGE_MAX_DEGREE = 10, 165, 457
AGE_LEVELS = (6.687, 62.56)
# The ages of young children are easier to guess than those of adults.
_YOUNG, _YOUNG_FACTOR = 5.0, 0.25
# Precision of a prior that carries no information on ages.
_FLAT = 1e-6
# In the crowd "shared" a face looks older or younger than it is to everybody: an error that
# no weighting removes. Its size puts the strong oracle near the 28.45 that the paper reports.
_SHIFT_SD, _SHIFT_PER_YEAR = 0.5, 0.24


def read_ages(data: Path) -> tuple[list[str], Floats]:
    """Photos and their true ages."""
    table = open_table(find_file(data / "fgnet_truth", "truth.csv"))
    codes, ids = table.ids("task")
    return [str(ids[code]) for code in codes], table.numbers("value")


def worker_degrees(n_answers: int, n_workers: int, max_degree: int) -> Index:
    """Answers per worker, at least 1, with the given sum: few have many, many have few.

    ``max_degree ** ((j / (n - 1)) ** p)``, with p from a bisection on the sum.
    """
    max_degree = min(max_degree, n_answers - n_workers + 1)
    place = np.linspace(0.0, 1.0, n_workers)
    low, high = 0.01, 100.0
    for _ in range(100):
        power = np.sqrt(low * high)
        if (max_degree ** (place**power)).sum() > n_answers:
            low = power
        else:
            high = power
    degree = np.maximum(np.floor(max_degree ** (place**high)).astype(np.int64), 1)
    # Rounding loses some answers: the busy, but not the busiest, get one more each. If the minimum
    # of one answer each is already too much, the busiest gives fewer.
    short = n_answers - int(degree.sum())
    while short > 0:
        some = np.flatnonzero(degree < max_degree)[-short:]
        degree[some] += 1
        short -= len(some)
    degree[-1] += short
    return degree


def emulate_ages(age: Floats, shared: bool, rng: np.random.Generator) -> Simulation:
    """Let 165 workers of two classes guess ages: whole years, none below zero.

    ``shared``: a face looks older or younger than it is, equally to all workers.
    """
    n_workers = min(AGE_WORKERS, len(age))
    degree = worker_degrees(AGE_PER_TASK * len(age), n_workers, min(AGE_MAX_DEGREE, len(age)))
    a = assign_degrees(np.full(len(age), AGE_PER_TASK), rng.permutation(degree), rng)
    variance = rng.choice(AGE_LEVELS, size=n_workers)
    shift = rng.normal(size=len(age)) * (_SHIFT_SD + _SHIFT_PER_YEAR * age)
    apparent = age + shift if shared else age
    factor = np.where(age < _YOUNG, _YOUNG_FACTOR, 1.0)
    noise = np.sqrt(variance[a.worker] * factor[a.task]) * rng.normal(size=len(a.task))
    value = np.maximum(np.round(apparent[a.task] + noise), 0.0)
    answers = Answers.from_codes(
        a.task.astype(np.int32),
        # Not padded: estimators order answers by id, and the samples of PG1 depend on the order.
        np.array([f"photo{i}" for i in range(len(age))], dtype=object),
        a.worker.astype(np.int32),
        np.array([f"w{u}" for u in range(n_workers)], dtype=object),
        value[:, None],
        value_names=("value",),
    )
    return Simulation(answers, age[:, None], variance)


def read_age_crowd(data: Path) -> Simulation:
    """The real crowd, where a user has it: columns task (photo), worker, value (age guessed).

    The mean squared error of a worker stands in for its true variance, which nobody knows, with
    that of a rounding error as the minimum.
    """
    path = find_file(data / "fgnet", "answers.csv")
    answers = read_answers(path, "task", "worker", "value", duplicates="mean")
    known = dict(zip(*read_ages(data), strict=True))
    truth = read_truth(known, answers.task_ids, answers.value_names)
    if np.isnan(truth).any():
        raise DataError(
            "fgnet/answers.csv: tasks must be photos of fgnet_truth/truth.csv, such as 001A02"
        )
    squared = (answers.value - truth[answers.task])[:, 0] ** 2
    total = np.bincount(answers.worker, squared, answers.n_workers)
    return Simulation(answers, truth, np.maximum(total / answers.worker_degree, 1 / 12))


def _plan_ages(effort: Effort, data: Path) -> Plan:
    plan: Plan = [({"crowd": crowd}, effort.draws) for crowd in ("emulated", "emulated-shared")]
    if any((data / "fgnet" / name).is_file() for name in ("answers.csv", "answers.csv.gz")):
        plan.append(({"crowd": "real"}, 1))
    return plan


def run_ages(setting: Setting, rng: np.random.Generator, data: Path) -> list[Row]:
    """Score the methods on the ages that a crowd guessed; BI with the paper's S_est from NBI."""
    if setting["crowd"] == "real":
        crowd = read_age_crowd(data)
    else:
        crowd = emulate_ages(read_ages(data)[1], setting["crowd"] == "emulated-shared", rng)
    chosen = make_estimator("bi", {"support": "nbi"})
    levels = chosen.fit(crowd.answers).settings["support_used"]
    prior = make_estimator("pg1").fit(crowd.answers).settings
    shared = {"prior_mean": prior["mu0_used"], "prior_variance": 1 / prior["gamma0_used"]}
    true_noise: dict[str, Any] = {"variances": crowd.variances}
    methods = {name: make_estimator(name) for name in AGE_METHODS} | {
        # What the prior of PG1 on the truths gains alone: PG1 without it, and BI with it.
        "pg1, flat prior": make_estimator("pg1", {"gamma0": _FLAT}),
        "bi, pg1's prior": make_estimator("bi", {"support": "nbi", **shared}),
        "bi": chosen,
        "weak-oracle": make_estimator("weak-oracle", {"support": levels, **true_noise}),
        "strong-oracle": make_estimator("strong-oracle", true_noise),
    }
    found: Row = {"level_low": levels[0], "level_high": levels[-1]}
    return [row | found for row in score_rows(crowd, methods)]


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
    plan=lambda effort, _: [({"share": share}, effort.draws) for share in VOC_SHARES],
    run=run_voc,
    data="voc0712",
)
