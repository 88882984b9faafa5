"""Table 3: better labels train better models, on real reviews and on images of digits.

Each problem is an experiment with the same columns: method (of the labels), weighting, and what
``_scores`` finds on the test set.
A further problem (the detector of the paper, on images of blood cells, wants a GPU) is one more
``run`` and one more entry in ``LEARNING``.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, vstack

from voxpop.arrays import Floats, Index
from voxpop.assign import assign_regular
from voxpop.estimators import BI, Estimator, StrongOracle, make_estimator
from voxpop.experiments.runner import Effort, Experiment, Row, Setting, rng_of
from voxpop.io import read_answers, read_truth
from voxpop.model import Model
from voxpop.result import Result
from voxpop.simulation import simulate

LABEL_METHODS = ("average", "median", "nbi", "bi", "auto", "pg1", "two-way", "p910")
"""Methods of the registry whose labels are tried; add a name to try another."""
# How much a label counts: alike; by its precision; by the precision of what the model is left
# with, its own error and the label's together, which is what weighted least squares asks for.
WEIGHTINGS = ("none", "1/sd2", "1/(sd2+model)")

# With these the ratings themselves reach R² .505, the mean of the answers .4125, the median .3945.
_RIDGE = 0.1
Fit = Callable[[Floats, Floats | None, Index], Floats]
"""Train on these rows with these labels and weights; predict the test set."""


def train(
    fit: Fit, labels: Floats, sd: Floats | None, truth: Floats, rows: Index
) -> list[tuple[str, Row]]:
    """Train with each weighting of the labels; R² and RMSE on the test set."""
    plain = _scores(fit(labels, None, rows), truth)
    found = [("none", plain)]
    if sd is None:
        return found
    # A label may look exact (a worker taken for perfect); no weight is more than 100 medians.
    variance = np.maximum(sd**2, np.median(sd**2) / 100)
    model_variance = float(plain["rmse"]) ** 2
    for name, weight in (("1/sd2", 1 / variance), ("1/(sd2+model)", 1 / (sd**2 + model_variance))):
        found.append((name, _scores(fit(labels, weight / weight[rows].mean(), rows), truth)))
    return found


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


# ---- Reviews: a real crowd, a real test set ---------------------------------------------------


def read_words(path: Path, n_words: int | None = None) -> Any:
    """Counts of words, one row per text: lines ``M word:count word:count ...``."""
    pointers, words, counts = [0], [], []
    with gzip.open(path, "rt") as lines:
        for line in lines:
            pairs = [pair.split(":") for pair in line.split()[1:]]
            words += [int(word) for word, _ in pairs]
            counts += [float(count) for _, count in pairs]
            pointers.append(len(words))
    shape = (len(pointers) - 1, max(words) + 1 if n_words is None else n_words)
    return csr_matrix((counts, words, pointers), shape=shape)


def _reviews(data: Path) -> tuple[Any, Any, Floats]:
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
    return tfidf.transform(training), tfidf.transform(test), rating


def _plan_reviews(effort: Effort, data: Path) -> list[tuple[Setting, int]]:  # noqa: ARG001
    return [
        ({"problem": "reviews", "method": method, "resamples": effort.resamples}, 1)
        for method in (*LABEL_METHODS, "truth")
    ]


def run_reviews(setting: Setting, rng: np.random.Generator, data: Path) -> list[Row]:  # noqa: ARG001
    """Train ridge on the labels that one method makes of the crowd's ratings.

    Resample 0 is the whole training set; the others draw as many reviews with replacement, the
    same ones for every method, so that methods can be compared pair by pair.
    """
    from sklearn.linear_model import Ridge

    folder = data / "moviereviews"
    training, test, rating = _reviews(data)
    answers = read_answers(folder / "answers.csv.gz", "task", "worker", "value")
    # Row k of the texts is task r000k.
    row_of = np.array([int(str(task)[1:]) for task in answers.task_ids])
    truth = read_truth(folder / "truth.csv.gz", answers.task_ids, ("value",))[:, 0]
    labels, sd = truth, None
    if setting["method"] != "truth":
        result = make_estimator(str(setting["method"])).fit(answers)
        labels, sd = _labels(result)
    texts = training[row_of]

    def fit(label: Floats, weight: Floats | None, rows: Index) -> Floats:
        model = Ridge(alpha=_RIDGE)
        model.fit(texts[rows], label[rows], sample_weight=None if weight is None else weight[rows])
        return np.asarray(model.predict(test))

    label_rmse = float(np.sqrt(((labels - truth) ** 2).mean()))
    found: list[Row] = []
    for number in range(int(setting["resamples"]) + 1):
        rows = np.arange(len(labels))
        if number:
            rows = rng_of("reviews", number).integers(len(labels), size=len(labels))
        for weighting, row in train(fit, labels, sd, rating, rows):
            about: Row = {"resample": number, "weighting": weighting, "label_rmse": label_rmse}
            found.append(about | row)
    return found


# ---- Digits: images that scikit-learn ships, an emulated crowd ---------------------------------

_DIGIT_MODEL = Model(support=(0.1, 10.0))
_DIGIT_PER_TASK, _DIGIT_PER_WORKER = 3, 10


def _plan_digits(effort: Effort, data: Path) -> list[tuple[Setting, int]]:  # noqa: ARG001
    return [({"problem": "digits", "n_images": 5 * effort.n_tasks}, effort.draws)]


def run_digits(setting: Setting, rng: np.random.Generator, data: Path) -> list[Row]:  # noqa: ARG001
    """Let a crowd read digits with noise, and train kernel ridge on what each method makes of it.

    The crowd is dealt as in table 2, three answers an image and ten a worker, half of them good;
    each instance draws the crowd and the split of the images anew.
    """
    from sklearn.datasets import load_digits
    from sklearn.kernel_ridge import KernelRidge

    digits = load_digits()
    order = rng.permutation(len(digits.target))
    n_images = int(setting["n_images"])
    image, truth = digits.data[order] / 16.0, digits.target[order].astype(np.float64)
    rest, test_truth = image[n_images:], truth[n_images:]
    image, truth = image[:n_images], truth[:n_images]
    assignment = assign_regular(n_images, _DIGIT_PER_TASK, _DIGIT_PER_WORKER, rng)
    crowd = simulate(_DIGIT_MODEL, assignment, rng, truth=truth)

    def fit(label: Floats, weight: Floats | None, rows: Index) -> Floats:
        model = KernelRidge(kernel="rbf", alpha=0.1, gamma=0.05)
        centre = label[rows].mean()
        chosen = None if weight is None else weight[rows]
        model.fit(image[rows], label[rows] - centre, sample_weight=chosen)
        return np.asarray(model.predict(rest) + centre)

    methods: Mapping[str, Estimator] = {name: make_estimator(name) for name in LABEL_METHODS} | {
        "bi, levels known": BI(support=_DIGIT_MODEL.support),
        "strong-oracle": StrongOracle(variances=crowd.variances),
    }
    labelled = {name: _labels(method.fit(crowd.answers)) for name, method in methods.items()}
    found: list[Row] = []
    for name, (labels, sd) in [*labelled.items(), ("truth", (truth, None))]:
        label_rmse = float(np.sqrt(((labels - truth) ** 2).mean()))
        for weighting, row in train(fit, labels, sd, test_truth, np.arange(n_images)):
            about: Row = {"method": name, "weighting": weighting, "label_rmse": label_rmse}
            found.append(about | row)
    return found


def _labels(result: Result) -> tuple[Floats, Floats]:
    return result.estimate[:, 0], np.asarray(np.sqrt(result.variance[:, 0]))


LEARNING = [
    Experiment(
        name="reviews",
        title="ridge on movie reviews rated by a crowd",
        plan=_plan_reviews,
        run=run_reviews,
        methods=LABEL_METHODS,
        data="moviereviews",
        package="sklearn",
        extra="learn",
    ),
    Experiment(
        name="digits",
        title="kernel ridge on digits read by an emulated crowd",
        plan=_plan_digits,
        run=run_digits,
        methods=LABEL_METHODS,
        package="sklearn",
        extra="learn",
    ),
]
