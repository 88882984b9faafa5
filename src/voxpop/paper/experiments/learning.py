"""Table 3: better labels train better models, on real reviews and on images of digits.

Each problem is an experiment whose rows have the same columns: method (of the labels), weighting,
the labels' own error, and what ``_scores`` finds on the test set. A further learner is one more
``run`` that returns such rows, an entry in ``LEARNING`` and its sheet in ``report.sheets``. The
paper's own, a detector, is in ``cells.py``.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, vstack

from voxpop.arrays import Floats, Index
from voxpop.collect.assignment.random_graphs import assign_regular
from voxpop.data.answers import Answers
from voxpop.data.read import read_answers, read_truth
from voxpop.estimators.base import Estimator
from voxpop.estimators.bi.bi import BI
from voxpop.estimators.bounds.oracles import StrongOracle
from voxpop.estimators.registry import make_estimator
from voxpop.models.model import Model
from voxpop.models.simulation import simulate
from voxpop.paper.experiments.runner import Effort, Experiment, Row, Setting, rng_of
from voxpop.results.result import Result

LABEL_METHODS = ("average", "median", "nbi", "bi", "auto", "pg1", "two-way", "p910")
"""Methods of the registry whose labels are tried; add a name to try another."""
# How much a label counts: alike; by its precision; by the precision of what lies between label
# and model, the label's error and what the model leaves, which is what least squares asks for.
WEIGHTINGS = ("none", "1/sd2", "1/(sd2+model)")

# With these the ratings themselves reach R² .505, the mean of the answers .4125, the median .3945.
_RIDGE = 0.1
_FOLDS = 5
# Reviews whose ratings a requester might look up, to see what that is worth.
N_KNOWN = 30
KNOWING = ("truth", f"auto, {N_KNOWN} known")
"""Labels of the reviews that need the truth, or a little of it."""

Learner = Callable[[Any, Floats, Floats | None, Any], Floats]
"""Train on features with labels and weights; predict at other features."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Features that get labels, others whose truth is known to test with, and who learns."""

    learner: Learner
    features: Any
    test: Any
    test_truth: Floats

    def scores(self, labels: Floats, weight: Floats | None, rows: Index) -> Row:
        """Train on these rows; R² and RMSE on the test set."""
        some = None if weight is None else weight[rows] / weight[rows].mean()
        predicted = self.learner(self.features[rows], labels[rows], some, self.test)
        return _scores(predicted, self.test_truth)


def weightings(problem: Problem, labels: Floats, sd: Floats | None) -> dict[str, Floats | None]:
    """Weights of the labels by each rule; truths, which have no sd, only count alike."""
    if sd is None:
        return {"none": None}
    # A label may look exact (a worker taken for perfect, or gold); no weight is more than 100
    # medians, and where most are exact all weigh alike.
    middle = np.median(sd**2)
    variance = np.maximum(sd**2, middle / 100) if middle else np.ones_like(sd)
    left = model_variance(problem, labels, variance)
    return dict(zip(WEIGHTINGS, (None, 1 / variance, 1 / (variance + left)), strict=True))


def model_variance(problem: Problem, labels: Floats, variance: Floats) -> float:
    """What the model leaves of the truths, found on the training side alone.

    The squared error of its predictions of left-out labels, less what is the labels' own.
    """
    fold = rng_of("folds", len(labels)).permutation(np.arange(len(labels)) % _FOLDS)
    error = np.empty(len(labels))
    for number in range(_FOLDS):
        rest, out = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        features = problem.features
        predicted = problem.learner(features[rest], labels[rest], None, features[out])
        error[out] = predicted - labels[out]
    return max(float((error**2).mean() - variance.mean()), 0.0)


def _scores(predicted: Floats, truth: Floats) -> Row:
    """R² and RMSE, the mean error (shift), and R² with that taken off (centred)."""
    error = predicted - truth
    mse, variance = float((error**2).mean()), float(truth.var())
    return {
        "r2": 1 - mse / variance,
        "rmse": float(np.sqrt(mse)),
        "shift": float(error.mean()),
        "r2_centred": 1 - float(error.var()) / variance,
    }


def _about(weighting: str, labels: Floats, truth: Floats) -> Row:
    label_rmse = float(np.sqrt(((labels - truth) ** 2).mean()))
    return {"weighting": weighting, "label_rmse": label_rmse}


# ---- Reviews: a real crowd, a real test set ---------------------------------------------------


def read_words(path: Path) -> Any:
    """Counts of words, one row per text: lines ``M word:count word:count ...``."""
    pointers, words, counts = [0], [], []
    with gzip.open(path, "rt") as lines:
        for line in lines:
            pairs = [pair.split(":") for pair in line.split()[1:]]
            words += [int(word) for word, _ in pairs]
            counts += [float(count) for _, count in pairs]
            pointers.append(len(words))
    return csr_matrix((counts, words, pointers), shape=(len(pointers) - 1, max(words) + 1))


def _ridge(features: Any, labels: Floats, weight: Floats | None, at: Any) -> Floats:
    from sklearn.linear_model import Ridge

    model = Ridge(alpha=_RIDGE).fit(features, labels, sample_weight=weight)
    return np.asarray(model.predict(at))


def _read_reviews(data: Path) -> Problem:
    """Tf-idf of the training texts and of the test texts, and the latters' ratings."""
    from sklearn.feature_extraction.text import TfidfTransformer

    folder = data / "moviereviews"
    test = read_words(folder / "data_test.txt.gz")
    training = read_words(folder / "data_train_amt.txt.gz")
    n_words = max(test.shape[1], training.shape[1])
    for counts in (test, training):
        counts.resize((counts.shape[0], n_words))
    with gzip.open(folder / "labels_test.txt.gz", "rt") as lines:
        rating = np.array([float(line) for line in lines])
    # How rare a word is can be counted in the test texts too: no rating is looked at.
    tfidf = TfidfTransformer(sublinear_tf=True).fit(vstack([training, test]))
    return Problem(
        learner=_ridge,
        features=tfidf.transform(training),
        test=tfidf.transform(test),
        test_truth=rating,
    )


def _plan_reviews(effort: Effort, data: Path) -> list[tuple[Setting, int]]:  # noqa: ARG001
    return [
        ({"problem": "reviews", "method": method, "resamples": effort.resamples}, 1)
        for method in (*LABEL_METHODS, *KNOWING)
    ]


def run_reviews(setting: Setting, rng: np.random.Generator, data: Path) -> list[Row]:  # noqa: ARG001
    """Train ridge on the labels that one method makes of the crowd's ratings.

    Resample 0 is the whole training set; the others draw as many reviews with replacement, the
    same ones for every method, so that methods can be compared pair by pair.
    """
    folder, problem = data / "moviereviews", _read_reviews(data)
    answers = read_answers(folder / "answers.csv.gz", "task", "worker", "value")
    # Row k of the texts is task r000k.
    row_of = np.array([int(str(task)[1:]) for task in answers.task_ids])
    problem = replace(problem, features=problem.features[row_of])
    truth = read_truth(folder / "truth.csv.gz", answers.task_ids, ("value",))[:, 0]
    labels, sd = _review_labels(str(setting["method"]), answers, truth)
    weights = weightings(problem, labels, sd)
    found: list[Row] = []
    for number in range(int(setting["resamples"]) + 1):
        rows = np.arange(len(labels))
        if number:
            rows = rng_of("reviews", number).integers(len(labels), size=len(labels))
        for weighting, weight in weights.items():
            about = {"resample": number} | _about(weighting, labels, truth)
            found.append(about | problem.scores(labels, weight, rows))
    return found


def _review_labels(method: str, answers: Answers, truth: Floats) -> tuple[Floats, Floats | None]:
    if method == "truth":
        return truth, None
    if method in KNOWING:
        known = rng_of("known").permutation(len(truth))[:N_KNOWN]
        gold = np.full((len(truth), 1), np.nan)
        gold[known, 0] = truth[known]
        return _labels(make_estimator("auto").fit(replace(answers, gold=gold)))
    return _labels(make_estimator(method).fit(answers))


# ---- Digits: images that scikit-learn ships, an emulated crowd ---------------------------------

_DIGIT_MODEL = Model(support=(0.1, 10.0))
_DIGIT_PER_TASK, _DIGIT_PER_WORKER = 3, 10


def _plan_digits(effort: Effort, data: Path) -> list[tuple[Setting, int]]:  # noqa: ARG001
    return [({"problem": "digits", "n_images": 5 * effort.n_tasks}, effort.draws)]


def _kernel_ridge(features: Any, labels: Floats, weight: Floats | None, at: Any) -> Floats:
    from sklearn.kernel_ridge import KernelRidge

    centre = float(labels.mean())
    model = KernelRidge(kernel="rbf", alpha=0.1, gamma=0.05)
    model.fit(features, labels - centre, sample_weight=weight)
    return np.asarray(model.predict(at) + centre)


def run_digits(setting: Setting, rng: np.random.Generator, data: Path) -> list[Row]:  # noqa: ARG001
    """Let a crowd read digits with noise, and train kernel ridge on what each method makes of it.

    The crowd is dealt as in table 2, three answers an image and ten a worker, half of them good;
    each instance draws the crowd and the split of the images anew.
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = rng.permutation(len(digits.target))
    n_images = int(setting["n_images"])
    image, truth = digits.data[order] / 16.0, digits.target[order].astype(np.float64)
    problem = Problem(
        learner=_kernel_ridge,
        features=image[:n_images],
        test=image[n_images:],
        test_truth=truth[n_images:],
    )
    truth = truth[:n_images]
    assignment = assign_regular(n_images, _DIGIT_PER_TASK, _DIGIT_PER_WORKER, rng)
    crowd = simulate(_DIGIT_MODEL, assignment, rng, truth=truth)
    methods: Mapping[str, Estimator] = {name: make_estimator(name) for name in LABEL_METHODS} | {
        "bi, levels known": BI(support=_DIGIT_MODEL.support),
        "strong-oracle": StrongOracle(variances=crowd.variances),
    }
    labelled = {name: _labels(method.fit(crowd.answers)) for name, method in methods.items()}
    found: list[Row] = []
    for name, (labels, sd) in [*labelled.items(), ("truth", (truth, None))]:
        for weighting, weight in weightings(problem, labels, sd).items():
            about = {"method": name} | _about(weighting, labels, truth)
            found.append(about | problem.scores(labels, weight, np.arange(n_images)))
    return found


def _labels(result: Result) -> tuple[Floats, Floats]:
    return result.estimate[:, 0], np.asarray(np.sqrt(result.variance[:, 0]))


LEARNING = [
    Experiment(
        name="reviews",
        title="ridge on movie reviews rated by a crowd",
        plan=_plan_reviews,
        run=run_reviews,
        methods=(*LABEL_METHODS, *KNOWING, *WEIGHTINGS),
        data="moviereviews",
        packages=("sklearn",),
        extra="learn",
    ),
    Experiment(
        name="digits",
        title="kernel ridge on digits read by an emulated crowd",
        plan=_plan_digits,
        run=run_digits,
        methods=(*LABEL_METHODS, *WEIGHTINGS),
        packages=("sklearn",),
        extra="learn",
    ),
]
