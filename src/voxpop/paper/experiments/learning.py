"""Table 3: better labels train better models, on real reviews and on images of digits.

Each problem is an experiment whose rows have the same columns: method (of the labels), weighting,
the error of the labels, and the scores on the test set. A further learner is one more ``run`` that
returns such rows, an entry in ``LEARNING`` and its sheet in ``report.sheets``. The paper's own, a
detector, is in ``cells.py``.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import vstack

from voxpop.arrays import Floats, Index
from voxpop.collect.assignment.random_graphs import assign_regular
from voxpop.data.answers import Answers
from voxpop.data.read import read_answers
from voxpop.data.truths import read_truth
from voxpop.estimators.registry import make_estimator
from voxpop.models.model import Model
from voxpop.models.simulation import simulate
from voxpop.paper.demo import compare
from voxpop.paper.experiments.runner import Effort, Experiment, Plan, Row, Setting, named_rng
from voxpop.results.result import Result

LABEL_METHODS = ("average", "median", "nbi", "bi", "auto", "pg1", "two-way", "p910")
"""Methods of the registry whose labels are tried; add a name to try another."""
WEIGHTINGS = ("none", "1/sd2", "1/(sd2+model)")
"""Weights of the labels in training: equal; their precision; or the precision of their residuals.

The residual of a label under the model has the variance of the label plus that of the truth about
the model: its inverse is the weight of generalised least squares.
"""
# With these the ratings themselves reach R² .505, the mean of the answers .4125, the median .3945.
_RIDGE = 0.1
_FOLDS = 5
# A requester might look up the ratings of this many reviews: what is that worth?
N_GOLD = 30
WITH_TRUTH = ("truth", f"auto, {N_GOLD} known")
"""Labels of the reviews that use the truth, or a little of it."""

Labels = tuple[Floats, Floats | None]
"""Labels and their standard deviations; None for truths, which have none."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Features to be labelled, a test set with known truths, and a regressor of scikit-learn."""

    learner: Any
    features: Any
    test: Any
    test_truth: Floats

    def scores(self, labels: Floats, weight: Floats | None, rows: Index) -> Row:
        """Train on these rows; R², RMSE, mean error and R² without it on the test set."""
        some = None if weight is None else weight[rows] / weight[rows].mean()
        learned = self.learner.fit(self.features[rows], labels[rows], sample_weight=some)
        error = learned.predict(self.test) - self.test_truth
        mse, variance = float((error**2).mean()), float(self.test_truth.var())
        return {
            "r2": 1 - mse / variance,
            "rmse": float(np.sqrt(mse)),
            "shift": float(error.mean()),
            "r2_centred": 1 - float(error.var()) / variance,
        }


def weightings(problem: Problem, labels: Floats, sd: Floats | None) -> dict[str, Floats | None]:
    """Weights of the labels by each rule; truths, which have no sd, only count equally."""
    if sd is None:
        return {"none": None}
    # A label may look exact (a worker taken for perfect, or gold). No weight exceeds 100 times
    # that of the median; where most labels look exact, all count equally.
    median = np.median(sd**2)
    variance = np.maximum(sd**2, median / 100) if median else np.ones_like(sd)
    residual = variance + model_variance(problem, labels, variance)
    return dict(zip(WEIGHTINGS, (None, 1 / variance, 1 / residual), strict=True))


def model_variance(problem: Problem, labels: Floats, variance: Floats) -> float:
    """Variance of the truths about the model, estimated by cross-validation on the labels alone.

    The mean squared error of the predictions of left-out labels, less the labels' own variance.
    """
    from sklearn.model_selection import PredefinedSplit, cross_val_predict

    fold = named_rng("folds", len(labels)).permutation(np.arange(len(labels)) % _FOLDS)
    split = PredefinedSplit(fold)
    error = cross_val_predict(problem.learner, problem.features, labels, cv=split) - labels
    return max(float((error**2).mean() - variance.mean()), 0.0)


def _train(
    problem: Problem, labels: Labels, truth: Floats, samples: list[Index]
) -> Iterator[tuple[int, Row]]:
    """Train on the labels of each sample under each weighting; number of the sample, and scores."""
    value, sd = labels
    label_rmse = float(np.sqrt(((value - truth) ** 2).mean()))
    weights = weightings(problem, value, sd)
    for number, rows in enumerate(samples):
        for weighting, weight in weights.items():
            about: Row = {"weighting": weighting, "label_rmse": label_rmse}
            yield number, about | problem.scores(value, weight, rows)


def _labels(result: Result) -> Labels:
    return result.estimate[:, 0], np.asarray(np.sqrt(result.variance[:, 0]))


# ---- Reviews: a real crowd, a real test set ---------------------------------------------------


def _read_reviews(folder: Path, rows: Index) -> Problem:
    """Tf-idf of these training texts and of the test texts, and the ratings of the latter."""
    from sklearn.datasets import load_svmlight_files
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.linear_model import Ridge

    # Lines of LDA-C, "M word:count word:count ...", are those of svmlight.
    paths = [str(folder / f"{name}.txt.gz") for name in ("data_train_amt", "data_test")]
    training, _, test, _ = load_svmlight_files(paths, zero_based=True)
    with gzip.open(folder / "labels_test.txt.gz", "rt") as lines:
        rating = np.array([float(line) for line in lines])
    # How rare a word is may be counted in the test texts too: no rating is looked at.
    tfidf = TfidfTransformer(sublinear_tf=True).fit(vstack([training, test]))
    return Problem(
        learner=Ridge(alpha=_RIDGE),
        features=tfidf.transform(training)[rows],
        test=tfidf.transform(test),
        test_truth=rating,
    )


def _plan_reviews(effort: Effort, _data: Path) -> Plan:
    return [
        ({"problem": "reviews", "method": method, "resamples": effort.resamples}, 1)
        for method in (*LABEL_METHODS, *WITH_TRUTH)
    ]


def run_reviews(setting: Setting, _rng: np.random.Generator, data: Path) -> list[Row]:
    """Train ridge on the labels that one method makes of the crowd's ratings.

    Resample 0 is the whole training set; the others draw as many reviews with replacement, the
    same ones for every method, so that methods can be compared pair by pair.
    """
    folder = data / "moviereviews"
    answers = read_answers(folder / "answers.csv.gz", "task", "worker", "value")
    truth = read_truth(folder / "truth.csv.gz", answers.task_ids, ("value",))[:, 0]
    # Row k of the texts is task r000k.
    problem = _read_reviews(folder, np.array([int(str(task)[1:]) for task in answers.task_ids]))
    size = len(truth)
    samples = [
        named_rng("reviews", number).integers(size, size=size) if number else np.arange(size)
        for number in range(setting["resamples"] + 1)
    ]
    labels = _review_labels(setting["method"], answers, truth)
    trained = _train(problem, labels, truth, samples)
    return [{"resample": number, **scores} for number, scores in trained]


def _review_labels(method: str, answers: Answers, truth: Floats) -> Labels:
    if method == "truth":
        return truth, None
    if method in WITH_TRUTH:
        known = named_rng("known").permutation(len(truth))[:N_GOLD]
        gold = np.full((len(truth), 1), np.nan)
        gold[known, 0] = truth[known]
        return _labels(make_estimator("auto").fit(replace(answers, gold=gold)))
    return _labels(make_estimator(method).fit(answers))


# ---- Digits: images that scikit-learn ships, an emulated crowd ---------------------------------

_DIGIT_MODEL = Model(support=(0.1, 10.0))
_DIGIT_PER_TASK, _DIGIT_PER_WORKER = 3, 10


def run_digits(setting: Setting, rng: np.random.Generator, _data: Path) -> list[Row]:
    """Let a crowd read digits with noise, and train kernel ridge on the labels of each method.

    The crowd is that of table 2, three answers per image and ten per worker, half of them good;
    each instance draws the crowd and the split of the images anew.
    """
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.datasets import load_digits
    from sklearn.kernel_ridge import KernelRidge
    from sklearn.preprocessing import StandardScaler

    digits = load_digits()
    order = rng.permutation(len(digits.target))
    image, truth = digits.data[order] / 16.0, digits.target[order].astype(np.float64)
    n_images = setting["n_images"]
    # Kernel ridge has no constant: it learns how far labels are from their mean.
    kernel_ridge = KernelRidge(kernel="rbf", alpha=0.1, gamma=0.05)
    centre = StandardScaler(with_std=False)
    problem = Problem(
        learner=TransformedTargetRegressor(kernel_ridge, transformer=centre, check_inverse=False),
        features=image[:n_images],
        test=image[n_images:],
        test_truth=truth[n_images:],
    )
    truth = truth[:n_images]
    assignment = assign_regular(n_images, _DIGIT_PER_TASK, _DIGIT_PER_WORKER, rng)
    crowd = simulate(_DIGIT_MODEL, assignment, rng, truth=truth)
    methods = {name: make_estimator(name) for name in LABEL_METHODS}
    methods["bi, levels known"] = make_estimator("bi", {"support": _DIGIT_MODEL.support})
    methods["strong-oracle"] = make_estimator("strong-oracle", {"variances": crowd.variances})
    labels = {run.label: _labels(run.result) for run in compare(crowd, methods)}
    labels["truth"] = truth, None
    return [
        {"method": name, **scores}
        for name, some in labels.items()
        for _, scores in _train(problem, some, truth, [np.arange(n_images)])
    ]


LEARNING = [
    Experiment(
        name="reviews",
        title="ridge on movie reviews rated by a crowd",
        plan=_plan_reviews,
        run=run_reviews,
        methods=(*LABEL_METHODS, *WITH_TRUTH, *WEIGHTINGS),
        data="moviereviews",
        packages=("sklearn",),
        extra="learn",
    ),
    Experiment(
        name="digits",
        title="kernel ridge on digits read by an emulated crowd",
        plan=lambda effort, _: [
            ({"problem": "digits", "n_images": 5 * effort.n_tasks}, effort.draws)
        ],
        run=run_digits,
        methods=(*LABEL_METHODS, *WEIGHTINGS),
        packages=("sklearn",),
        extra="learn",
    ),
]
