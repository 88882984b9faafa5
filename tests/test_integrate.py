"""The integrals under rich noise: against brute force, and the compiled ones against numpy's.

Rich noise has classes of difficulty, tails, and biases that are known roughly; the truths have a
mixture of Gaussians as prior, bounds, or are known.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtr

from tests.cavity_messages import (
    FLOOR,
    INSTRUCTION_SETS,
    QUANTUM,
    SETS,
    kernel_set,
    state_and_edges,
)
from voxpop.arrays import Floats, WorkerSums
from voxpop.data.answers import Answers
from voxpop.inference.engine import Engine, native_is_installed
from voxpop.inference.kernel_set import (
    BiasMessages,
    Edges,
    Integrals,
    KernelSet,
    Predictions,
    RowInputs,
    SweepState,
)
from voxpop.inference.kernels import integrate
from voxpop.inference.kernels.integrate import Law, NoiseGrid, Rows
from voxpop.inference.kernels.nodes import Aim
from voxpop.inference.kernels.posterior import Posterior
from voxpop.inference.numpy_kernels import NumpyKernels

PROBABILITIES = np.array([0.025, 0.3, 0.5, 0.975])
# Under a learned noise model messages stop here, as in ``message_passing``.
LEARNED_FLOOR = -575.0
# Evidence is cut off at a likelihood of 1e-300; near that, numpy and the compiled kernels differ.
LEAST_EVIDENCE = -650.0
# Most numbers in one vector of any instruction set.
MOST_LANES = 8

needs_native = pytest.mark.skipif(
    not native_is_installed(), reason="the compiled kernels are not built"
)
every_set = pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)


@dataclass(frozen=True)
class Crowd:
    """What rows are drawn from; ``apart``, ``spread`` and ``strength`` are scales."""

    seed: int = 0
    degree: int = 5
    n_levels: int = 3
    n_classes: int = 2
    apart: float = 3.0
    spread: float = 0.1
    strength: float = 3.0
    heavy: bool = True
    prior_variance: float = np.inf
    bounded: bool = False
    accuracy: float = 1e-7
    gold: bool = False
    floor: float = FLOOR


crowds = st.builds(
    Crowd,
    seed=st.integers(0, 2**31),
    degree=st.sampled_from([1, 2, 3, 5, 11]),
    n_levels=st.sampled_from([1, 2, 3, 9]),
    n_classes=st.sampled_from([1, 2, 5]),
    apart=st.sampled_from([0.1, 3.0, 100.0, 3000.0]),
    spread=st.sampled_from([0.0, 1e-9, 0.1, 30.0]),
    strength=st.sampled_from([0.0, 3.0, 100.0, 5000.0]),
    heavy=st.booleans(),
    prior_variance=st.sampled_from([np.inf, 4.0]),
    bounded=st.booleans(),
    accuracy=st.sampled_from([1e-4, 1e-7]),
    gold=st.booleans(),
    floor=st.sampled_from([FLOOR, LEARNED_FLOOR]),
)


@dataclass(frozen=True, eq=False)
class Case:
    """Rows whose workers say something, each worker to one row."""

    law: Law
    inputs: RowInputs
    state: SweepState
    edges: Edges

    def copy(self) -> Case:
        """Return the same with messages of its own, which a sweep replaces."""
        return self.rows(np.arange(len(self.edges.worker)))

    def rows(self, rows: NDArray[np.intp]) -> Case:
        """Return some of the rows, with copies of their messages."""
        b = self.inputs.bias
        if b is not None:
            b = replace(b, edge_precision=b.edge_precision[rows], edge_pull=b.edge_pull[rows])
        arrays = {
            f.name: getattr(self.inputs, f.name)[rows]
            for f in fields(RowInputs)
            if f.name != "bias"
        }
        edges = Edges(self.edges.worker[rows], self.edges.message[rows])
        return replace(self, inputs=RowInputs(**arrays, bias=b), edges=edges)

    def as_numpy_rows(self) -> Rows:
        """Return the rows as the integrator in numpy gets them: biases taken off."""
        i, worker = self.inputs, self.edges.worker
        centre, spread = i.value, np.zeros_like(i.value)
        if i.bias is not None:
            spread = 1.0 / (i.bias.precision[worker] - i.bias.edge_precision)
            pull = i.bias.precision[worker] * i.bias.mean[worker] - i.bias.edge_pull
            centre = centre - spread * pull
        incoming = self.state.incoming(worker, self.edges.message)
        return Rows(
            centre, spread, incoming, i.log_class, i.prior_mean, i.low, i.high, i.known
        )  # fmt: skip


def draw_grid(rng: np.random.Generator, crowd: Crowd) -> NoiseGrid:
    n_classes, n_levels = crowd.n_classes, crowd.n_levels
    n_variances = n_levels + 2 * (n_classes - 1) + (8 if crowd.heavy else 0)
    mixing = np.zeros((n_classes, n_levels, n_variances))
    for c in range(n_classes):
        for k in range(n_levels):
            near = rng.uniform(size=9 if crowd.heavy else 1) ** 4
            mixing[c, k, 2 * c + k : 2 * c + k + len(near)] = near / near.sum()
    return NoiseGrid(np.geomspace(1e-2, 1e-2 * 2.5 ** (n_variances - 1), n_variances), mixing)


def draw(crowd: Crowd, n: int = 5) -> Case:
    rng = np.random.default_rng(crowd.seed)
    grid, shape = draw_grid(rng, crowd), (n, crowd.degree)
    prior = np.empty(0)
    if np.isfinite(crowd.prior_variance):
        prior = crowd.prior_variance * np.geomspace(0.01, 1.0, 4)
    weight = rng.dirichlet(np.ones(len(prior))) if prior.size else prior
    law = Law(grid, prior, weight, crowd.accuracy, crowd.floor)
    centre = crowd.apart * rng.normal(size=shape)
    incoming = crowd.strength * rng.normal(size=(*shape, crowd.n_levels))
    low, high = np.full(n, -np.inf), np.full(n, np.inf)
    if crowd.bounded:
        low, high = centre.min(axis=1) - 0.01, centre.max(axis=1) + rng.uniform(-0.01, 100.0, n)
    known = centre.mean(axis=1) if crowd.gold else np.full(n, np.nan)
    log_class, mean = np.log(rng.dirichlet(np.ones(crowd.n_classes), n)), rng.normal(size=n)
    bias, value = None, centre
    if crowd.spread:
        # A belief of the bias that has the row's own message in it, to be taken off again.
        without = 1.0 / (crowd.spread * rng.uniform(0.1, 1.0, shape))
        shift = np.sqrt(crowd.spread) * rng.normal(size=shape)
        edge = 0.5 * without * rng.uniform(size=shape), rng.normal(size=shape)
        precision = without + edge[0]
        belief = (shift * without + edge[1]) / precision
        bias = BiasMessages(belief.ravel(), precision.ravel(), *edge, 0.25)
        value = centre + shift
    inputs = RowInputs(value, mean, low, high, known, log_class, bias)
    return Case(law, inputs, *state_and_edges(incoming, crowd.floor))


@dataclass(frozen=True, eq=False)
class Swept:
    """What a sweep leaves behind: messages, in nats and about biases, evidence, and counts."""

    message: Floats
    evidence: Floats
    counts: Floats
    bias_precision: Floats
    bias_pull: Floats
    sums: WorkerSums
    change: float


def sweep(kernels: KernelSet, case: Case) -> Swept:
    case, new_sums = case.copy(), np.zeros_like(case.state.sums)
    change, evidence, counts = kernels.integrate_sweep(
        Integrals(case.law, case.inputs, case.state, case.edges), new_sums, is_counted=True
    )
    assert counts is not None
    b = case.inputs.bias
    about_bias = (np.zeros(0), np.zeros(0)) if b is None else (b.edge_precision, b.edge_pull)
    message = np.asarray(case.edges.message * QUANTUM, dtype=np.float64)
    return Swept(message, evidence, counts, *about_bias, new_sums, change)


def posterior(kernels: KernelSet, case: Case) -> tuple[Posterior, Floats]:
    given = Integrals(case.law, case.inputs, case.state, case.edges)
    return kernels.integrate_posterior(given, PROBABILITIES)


def predict(kernels: KernelSet, case: Case) -> Predictions:
    given = Integrals(case.law, case.inputs, case.state, case.edges)
    return kernels.integrate_predict(given, with_pit=True)


# Nodes go as near to a bound as 1e-5 of the local sd; what lies between is left out.
BOUND_ERROR = 1e-5

RICH = Crowd(seed=3, degree=5, n_levels=3, n_classes=2, spread=0.1, heavy=True)


@dataclass(frozen=True, eq=False)
class Exact:
    """One row by brute force: what is sent, what is known, and each answer left out (l,)."""

    message: Floats
    classes: Floats
    shift: Floats
    shift_variance: Floats
    mean: float
    variance: float
    log_density: Floats
    pit: Floats
    truth_mean: Floats
    truth_variance: Floats
    answer_variance: Floats


def by_brute_force(rows: Rows, law: Law, n_points: int = 2**16 + 1) -> Exact:
    """Sum one row over a dense even grid by Simpson's rule, in logs, straight from (M28)."""
    centre, spread, incoming = rows.centre[0], rows.spread[0], rows.incoming[0]
    grid, reach = law.grid, 12.0 * np.sqrt(law.grid.variance.max() + spread.max())
    low, high = max(rows.low[0], centre.min() - reach), min(rows.high[0], centre.max() + reach)
    x = np.linspace(low, high, n_points)
    weight = np.where(np.arange(n_points) % 2, 4.0, 2.0)
    weight[[0, -1]] = 1.0
    log_prior = np.log(weight)
    if law.prior_variance.size:
        v = law.prior_variance[:, None]
        terms = np.log(law.prior_weight)[:, None] - 0.5 * np.log(v)
        log_prior += logsumexp(terms - 0.5 * (x - rows.prior_mean[0]) ** 2 / v, axis=0)
    with np.errstate(divide="ignore"):
        log_mixing = np.log(grid.mixing)
    n_levels = log_mixing.shape[1]
    # (l, G): the answer's own variances; (C, l, G): the shares of its levels in them.
    variance = grid.variance + spread[:, None]
    shares = logsumexp(
        (incoming - logsumexp(incoming, axis=1, keepdims=True))[None, :, :, None]
        + log_mixing[:, None],
        axis=2,
    )

    def log_gaussians(u: int) -> Floats:
        squared = (centre[u] - x) ** 2 / variance[u][:, None]
        return np.asarray(-0.5 * (squared + np.log(2.0 * np.pi * variance[u])[:, None]))

    answers = range(len(centre))
    gaussians = [log_gaussians(u) for u in answers]
    log_f = np.stack(
        [[logsumexp(s[u][:, None] + gaussians[u], axis=0) for u in answers] for s in shares]
    )
    log_p = rows.log_class[0][:, None] + log_prior + log_f.sum(axis=1)
    p = np.exp(log_p - logsumexp(log_p))
    mean = float((p * x).sum())
    per_answer = []
    for u in answers:
        cavity = log_p - log_f[:, u]
        cavity -= logsumexp(cavity)
        away, others = centre[u] - x, np.exp(cavity)
        # (C, G): the integral of every component times what the others say.
        integral = logsumexp(cavity[:, None] + gaussians[u], axis=2)
        message = logsumexp(
            (integral[:, None] + log_mixing).transpose(1, 0, 2).reshape(n_levels, -1), axis=1
        )
        # Moments of the bias, given x and the component a Gaussian.
        joint = shares[:, u, :, None] + cavity[:, None] + gaussians[u]
        joint = np.exp(joint - logsumexp(joint))
        share = spread[u] / variance[u][:, None]
        shift = float((joint * share * away).sum())
        square = (share * away) ** 2 + share * grid.variance[:, None]
        below = np.exp(shares[:, u]) @ ndtr(away / np.sqrt(variance[u])[:, None])
        truth_mean = float((others * x).sum())
        truth_variance = float((others * (x - truth_mean) ** 2).sum())
        noise = float((np.exp(shares[:, u]) @ variance[u]) @ others.sum(axis=1))
        per_answer.append(
            (
                message - message.max(), shift, float((joint * square).sum()) - shift**2,
                logsumexp(cavity + log_f[:, u]), float((others * below).sum()),
                truth_mean, truth_variance, truth_variance + noise,
            )
        )  # fmt: skip
    sent, about_bias, of_bias, *left_out = (
        np.array(part) for part in zip(*per_answer, strict=True)
    )
    known = mean, float((p * (x - mean) ** 2).sum())
    return Exact(sent, p.sum(axis=1), about_bias, of_bias, *known, *left_out)


@pytest.mark.slow
@pytest.mark.parametrize(
    "crowd",
    [
        pytest.param(RICH, id="classes, tails, biases"),
        pytest.param(replace(RICH, accuracy=1e-9, prior_variance=4.0), id="prior"),
        pytest.param(replace(RICH, bounded=True), id="bounds"),
        pytest.param(replace(RICH, bounded=True, prior_variance=4.0, spread=0.0), id="unbiased"),
        pytest.param(replace(RICH, strength=100.0, spread=5.0), id="strong messages"),
        pytest.param(replace(RICH, degree=2, apart=30.0, accuracy=1e-4), id="two answers"),
        pytest.param(replace(RICH, n_classes=1, heavy=False, prior_variance=4.0), id="few levels"),
    ],
)
def test_integration_is_brute_force(crowd: Crowd) -> None:
    case = draw(crowd, 1)
    rows, law = case.as_numpy_rows(), case.law
    sent = integrate.send(rows, law, integrate.nodes_of(rows, law))
    known, classes = integrate.posterior(rows, law, PROBABILITIES)
    left_out = integrate.predict(rows, law, integrate.nodes_of(rows, law, Aim.PREDICTIONS))
    bound_error = BOUND_ERROR if crowd.bounded else 0.0
    close, moments = crowd.accuracy + bound_error, 10 * crowd.accuracy + bound_error
    exact = by_brute_force(rows, law)
    np.testing.assert_allclose(np.exp(sent.message[0]), np.exp(exact.message), atol=close)
    np.testing.assert_allclose(sent.message[0], exact.message, rtol=close, atol=close)
    np.testing.assert_allclose(classes[0], exact.classes, atol=close)
    scale = np.sqrt(rows.spread[0])
    assert (np.abs(sent.shift[0] - exact.shift) <= moments * scale).all()
    assert (np.abs(sent.shift_variance[0] - exact.shift_variance) <= moments * scale**2).all()
    assert abs(known.estimate[0, 0] - exact.mean) <= moments * np.sqrt(exact.variance)
    np.testing.assert_allclose(known.variance[0], exact.variance, rtol=moments)
    np.testing.assert_allclose(left_out.log_density[0], exact.log_density, rtol=close, atol=close)
    np.testing.assert_allclose(left_out.pit[0], exact.pit, atol=close)
    scale = np.sqrt(exact.truth_variance)
    assert (np.abs(left_out.mean[0] - exact.truth_mean) <= moments * scale).all()
    np.testing.assert_allclose(left_out.truth_variance[0], exact.truth_variance, rtol=moments)
    np.testing.assert_allclose(left_out.variance[0], exact.answer_variance, rtol=moments)


@pytest.mark.parametrize("kernels", SETS)
def test_a_prior_in_equal_parts_is_the_prior(kernels: str) -> None:
    """Also where it has more components than there are variances of the noise."""
    whole = draw(replace(RICH, n_levels=2, n_classes=1, heavy=False, apart=100.0, accuracy=1e-4))
    one, parts = (
        replace(whole, law=replace(whole.law, prior_variance=np.full(n, 4.0), prior_weight=share))
        for n, share in ((1, np.ones(1)), (4, np.full(4, 0.25)))
    )
    nodes = [integrate.nodes_of(case.as_numpy_rows(), case.law) for case in (one, parts)]
    np.testing.assert_allclose(nodes[1].x, nodes[0].x, rtol=1e-9)
    ours, theirs = (sweep(kernel_set(kernels), case) for case in (parts, one))
    np.testing.assert_allclose(ours.message, theirs.message, rtol=1e-10, atol=1e-9)
    np.testing.assert_allclose(ours.bias_pull, theirs.bias_pull, rtol=1e-9)


def lost_in_logs(case: Case) -> float:
    """Return what logs lose to rounding that are as large as those of the row's likelihoods."""
    rows = case.as_numpy_rows()
    log_p = integrate.Integrand(rows, case.law, integrate.nodes_of(rows, case.law)).log_p
    return float(1e-15 * np.abs(log_p.max(axis=(0, 2))).max())


def assert_sweeps_agree(ours: Swept, theirs: Swept, case: Case) -> None:
    """Nodes are placed by each set on its own, so that they differ by rounding."""
    np.testing.assert_allclose(ours.message, theirs.message, rtol=1e-10, atol=1e-10)
    assert ours.change == pytest.approx(theirs.change, abs=1e-10)
    # Evidence is known up to a constant of the row; classes that have none are cut off.
    likely = theirs.evidence > LEAST_EVIDENCE
    best = [e.evidence - e.evidence.max(axis=1, keepdims=True) for e in (ours, theirs)]
    close = 1e-10 + lost_in_logs(case)
    np.testing.assert_allclose(best[0][likely], best[1][likely], rtol=1e-10, atol=close)
    prior = case.law.prior_variance
    ours_counted, ours_placed = np.split(ours.counts, [-2])
    counted, placed = np.split(theirs.counts, [-2])
    n_answers = theirs.message[..., 0].size
    np.testing.assert_allclose(ours_counted, counted, rtol=1e-10, atol=n_answers * close)
    if prior.size:
        away = np.abs(case.inputs.value - case.inputs.prior_mean[:, None]).max()
        # What is added up for the mean of the prior is as large as these.
        largest = len(case.inputs.value) * np.array([away, 1.0]) / prior.min()
        assert (np.abs(ours_placed - placed) <= 1e-9 * (np.abs(placed) + largest)).all()
    if case.inputs.bias is not None:
        precision = theirs.bias_precision
        np.testing.assert_allclose(ours.bias_precision, precision, rtol=1e-8)
        scale = np.abs(theirs.bias_pull) + np.sqrt(precision)
        assert (np.abs(ours.bias_pull - theirs.bias_pull) <= 1e-8 * scale).all()


def assert_posteriors_agree(
    ours: tuple[Posterior, Floats], theirs: tuple[Posterior, Floats], case: Case
) -> None:
    (found, classes), (expected, of_theirs) = ours, theirs
    sd = np.sqrt(expected.variance)
    assert (
        np.abs(found.estimate - expected.estimate) <= 1e-8 * sd + 1e-9 * np.abs(expected.estimate)
    ).all()
    # A known truth has no variance but for rounding.
    tiny = 1e-25 * (1.0 + np.abs(expected.estimate).max() ** 2)
    np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-6, atol=tiny)
    error = np.abs(found.quantile - expected.quantile)
    assert (
        error
        <= 1e-5 * np.abs(expected.quantile) + max(10 * case.law.accuracy, 1e-5) * sd[:, :, None]
    ).all()
    np.testing.assert_allclose(classes, of_theirs, atol=1e-10 + lost_in_logs(case))


def assert_predictions_agree(ours: Predictions, theirs: Predictions, case: Case) -> None:
    size = 1.0 + float(np.abs(case.inputs.value).max())
    np.testing.assert_allclose(ours.log_density, theirs.log_density, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(ours.pit, theirs.pit, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(ours.truth_mean, theirs.truth_mean, rtol=1e-10, atol=1e-10 * size)
    np.testing.assert_allclose(ours.bias, theirs.bias, rtol=1e-12, atol=1e-12 * size)
    # Mean square less squared mean: what that loses, both lose.
    lost = 1e-10 + 1e-13 * size**2
    for name in ("truth_variance", "variance"):
        found, expected = getattr(ours, name), getattr(theirs, name)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=lost, err_msg=name)


def assert_sets_agree(case: Case) -> None:
    numpy = NumpyKernels()
    swept, known, predicted = sweep(numpy, case), posterior(numpy, case), predict(numpy, case)
    for name in INSTRUCTION_SETS:
        kernels = kernel_set(name)
        assert_sweeps_agree(sweep(kernels, case), swept, case)
        assert_posteriors_agree(posterior(kernels, case), known, case)
        assert_predictions_agree(predict(kernels, case), predicted, case)


def test_only_messages_need_nodes_far_from_the_truth() -> None:
    """Where 100 answers tell the truth well, but some workers are a hundred times as noisy."""
    crowd = Crowd(degree=100, n_levels=9, n_classes=1, heavy=False, spread=0.0, accuracy=1e-4)
    case, rng = draw(crowd, 1), np.random.default_rng(1)
    level = rng.integers(crowd.n_levels, size=(1, crowd.degree))
    centre = np.sqrt(case.law.grid.variance)[level] * rng.normal(size=level.shape)
    # Each worker's other answers leave two levels or three.
    incoming = np.asarray(-2.0 * (np.arange(crowd.n_levels) - level[..., None]) ** 2, np.float64)
    rows, law = replace(case.as_numpy_rows(), centre=centre, incoming=incoming), case.law
    of_messages, *others = (integrate.nodes_of(rows, law, aim) for aim in Aim)
    most = max(int((nodes.weight > 0.0).sum()) for nodes in others)
    assert most < (of_messages.weight > 0.0).sum() / 4
    ours, theirs = (integrate.predict(rows, law, nodes) for nodes in (others[0], of_messages))
    np.testing.assert_allclose(ours.log_density, theirs.log_density, atol=1e-4)
    np.testing.assert_allclose(ours.pit, theirs.pit, atol=1e-4)
    assert (np.abs(ours.mean - theirs.mean) < 1e-4 * np.sqrt(theirs.truth_variance)).all()
    np.testing.assert_allclose(ours.truth_variance, theirs.truth_variance, rtol=1e-3)


def test_no_nodes_are_spent_on_what_no_message_tells() -> None:
    """A narrow level in a class that is out of the question has its mass far from the truth."""
    crowd = Crowd(degree=1000, n_levels=9, n_classes=5, heavy=False, spread=0.0, accuracy=1e-4)
    case, rng = draw(crowd, 1), np.random.default_rng(1)
    level = rng.integers(3, crowd.n_levels, size=(1, crowd.degree))
    centre = np.sqrt(case.law.grid.variance)[level] * rng.normal(size=level.shape)
    incoming = np.asarray(-9.0 * (np.arange(crowd.n_levels) - level[..., None]) ** 2, np.float64)
    rows = replace(case.as_numpy_rows(), centre=centre, incoming=incoming)
    heard, all_told = replace(case.law, lowest=LEARNED_FLOOR), replace(case.law, lowest=-np.inf)
    few, many = (integrate.nodes_of(rows, law) for law in (heard, all_told))
    assert (few.weight > 0.0).sum() < (many.weight > 0.0).sum() / 10
    ours, theirs = (integrate.send(rows, heard, nodes).message for nodes in (few, many))
    ours, theirs = (m - m.max(axis=2, keepdims=True) for m in (ours, theirs))
    # The last few nats above the floor are where sums underflow.
    np.testing.assert_allclose(np.maximum(ours, -500.0), np.maximum(theirs, -500.0), atol=1e-8)


@needs_native
@pytest.mark.parametrize(
    "crowd",
    [
        pytest.param(RICH, id="classes, tails, biases"),
        pytest.param(replace(RICH, bounded=True, prior_variance=4.0), id="bounds and a prior"),
        pytest.param(replace(RICH, gold=True), id="gold"),
        pytest.param(replace(RICH, floor=LEARNED_FLOOR, strength=100.0), id="a floor"),
    ],
)
def test_compiled_kernels_are_the_twins_of_numpys(crowd: Crowd) -> None:
    assert_sets_agree(draw(crowd))


@needs_native
@pytest.mark.slow
@given(crowd=crowds)
def test_a_compiled_sweep_is_the_twin_of_numpys(crowd: Crowd) -> None:
    case = draw(crowd)
    theirs = sweep(NumpyKernels(), case)
    for name in INSTRUCTION_SETS:
        assert_sweeps_agree(sweep(kernel_set(name), case), theirs, case)


@needs_native
@pytest.mark.slow
@given(crowd=crowds)
def test_a_compiled_posterior_is_the_twin_of_numpys(crowd: Crowd) -> None:
    case = draw(crowd)
    theirs = posterior(NumpyKernels(), case)
    for name in INSTRUCTION_SETS:
        assert_posteriors_agree(posterior(kernel_set(name), case), theirs, case)


@needs_native
@pytest.mark.slow
@given(crowd=crowds)
def test_a_compiled_prediction_is_the_twin_of_numpys(crowd: Crowd) -> None:
    case = draw(crowd)
    theirs = predict(NumpyKernels(), case)
    for name in INSTRUCTION_SETS:
        assert_predictions_agree(predict(kernel_set(name), case), theirs, case)


@needs_native
@pytest.mark.slow
def test_more_answers_than_gaussians_are_kept_of() -> None:
    """Compiled kernels keep up to 2^17 vectors of Gaussians; beyond they are worked out twice."""
    case = draw(replace(RICH, degree=1500, apart=10.0, prior_variance=4.0), 1)
    nodes = integrate.nodes_of(case.as_numpy_rows(), case.law)
    per_row = (nodes.weight > 0).sum(axis=1).min() * len(case.law.grid.variance) * 1500
    assert per_row / MOST_LANES > 2**17
    assert_sets_agree(case)


def all_arrays(kernels: KernelSet, case: Case) -> dict[str, NDArray[np.generic]]:
    """Everything that the kernels find out, by name."""
    known, classes = posterior(kernels, case)
    found = {**vars(sweep(kernels, case)), **vars(known), **vars(predict(kernels, case))}
    return {name: np.asarray(array) for name, array in found.items()} | {"classes": classes}


@every_set
def test_bits_do_not_depend_on_threads_or_neighbours(instruction_set: str) -> None:
    n = 163
    case = draw(replace(RICH, n_levels=9, prior_variance=4.0, bounded=True), n)
    one = all_arrays(kernel_set(instruction_set), case)
    for threads in (2, 3):
        for name, array in all_arrays(kernel_set(instruction_set, threads), case).items():
            np.testing.assert_array_equal(array, one[name], err_msg=name)
    # A row says the same wherever it stands; sums are over other rows, then.
    rows = np.random.default_rng(0).permutation(n)[:37]
    for name, array in all_arrays(kernel_set(instruction_set), case.rows(rows)).items():
        if name not in ("counts", "sums", "change"):
            np.testing.assert_array_equal(array, one[name][rows], err_msg=name)


@needs_native
def test_the_engine_chooses() -> None:
    few = Answers.from_arrays([0, 0], [0, 1], [1.0, 2.0])
    assert isinstance(Engine(backend="portable").kernels(few), NumpyKernels)
    for backend in ("native", "auto"):
        assert type(Engine(backend=backend).kernels(few)) is type(kernel_set(INSTRUCTION_SETS[0]))
