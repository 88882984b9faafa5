"""Peers: methods of other packages as estimators, for the benchmark; imported when they run."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.errors import ConfigError, require
from voxpop.estimators.base import Estimator, OnSweep
from voxpop.estimators.make_result import gaussian_result
from voxpop.results.result import Result

# statsmodels inverts dense matrices of this many rows repeatedly: beyond this it takes minutes
# for what `two-way` computes at once.
_MOST_UNKNOWNS = 1000


class Peer(Estimator):
    """A method of another package; it gives estimates, and no intervals."""

    package: ClassVar[str]
    """What to install."""

    def estimate(self, answers: Answers) -> Floats:
        """Return one estimate per task, in the shape (tasks, dimension)."""
        raise NotImplementedError

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:  # noqa: ARG002
        """Run the method; a package that is not there is a ``ConfigError``."""
        try:
            found = self.estimate(answers)
        except ImportError as error:
            raise ConfigError(f"not installed: pip install {self.package} ({error})") from None
        shape = (answers.n_tasks, answers.dimension)
        return gaussian_result(self, answers, found.reshape(shape), np.full(shape, np.nan))


@dataclass(frozen=True, kw_only=True)
class Rasa(Peer):
    """crowd-kit's RASA; its aggregated embeddings, not the answer that it would select."""

    name: ClassVar[str] = "crowd-kit RASA"
    summary: ClassVar[str] = "crowd-kit: reliability-aware aggregation of embeddings"
    package: ClassVar[str] = "crowd-kit"

    def estimate(self, answers: Answers) -> Floats:
        """Return one estimate per task."""
        import pandas as pd
        from crowdkit.aggregation import RASA

        table = pd.DataFrame({"task": answers.task, "worker": answers.worker})
        table["output"] = range(len(table))
        table["embedding"] = list(answers.value)
        found: Any = RASA().fit(table).aggregated_embeddings_
        return np.stack(found.sort_index().to_list())


class _Sureal(Peer):
    """A model of sureal, by the name that it has there."""

    package: ClassVar[str] = "sureal"
    model: ClassVar[str]

    def estimate(self, answers: Answers) -> Floats:
        """Return one estimate per task."""
        with contextlib.redirect_stdout(io.StringIO()):
            return np.asarray(run_sureal(self.model, answers)["quality_scores"])


@dataclass(frozen=True, kw_only=True)
class Sureal910(_Sureal):
    """sureal's P910: bias and inconsistency of every subject."""

    name: ClassVar[str] = "sureal P910"
    summary: ClassVar[str] = "sureal: ITU-T P.910, Annex E"
    model: ClassVar[str] = "P910AnnexEModel"


@dataclass(frozen=True, kw_only=True)
class Sureal913(_Sureal):
    """sureal's P913: bias of every subject, erratic subjects left out."""

    name: ClassVar[str] = "sureal P913"
    summary: ClassVar[str] = "sureal: ITU-T P.913, 12.4"
    model: ClassVar[str] = "P913124Model"


def run_sureal(model: str, answers: Answers) -> dict[str, Any]:
    """Return all that one of sureal's models finds; it prints what it does."""
    import sureal
    from sureal.dataset_reader import RawDatasetReader

    require(answers.dimension == 1, "takes scalars only")

    class Dataset:
        """Opinion scores in the form of its data files."""

        ref_videos = ({"content_id": 0, "content_name": "all", "path": "all"},)
        dis_videos = tuple(
            {
                "content_id": 0,
                "asset_id": i,
                "path": f"task{i}",
                "os": {
                    f"w{answers.worker[e]:06d}": float(answers.value[e, 0])
                    for e in range(answers.task_ptr[i], answers.task_ptr[i + 1])
                },
            }
            for i in range(answers.n_tasks)
        )

    found: dict[str, Any] = getattr(sureal, model)(RawDatasetReader(Dataset)).run_modeling()
    return found


@dataclass(frozen=True, kw_only=True)
class MixedModel(Peer):
    """A linear mixed model by REML: random effects of tasks and of workers, crossed."""

    name: ClassVar[str] = "mixed model"
    summary: ClassVar[str] = "statsmodels: REML with crossed random effects of tasks and workers"
    package: ClassVar[str] = "statsmodels"

    def estimate(self, answers: Answers) -> Floats:
        """Return the best linear unbiased predictor of every task, coordinate by coordinate."""
        from statsmodels.regression.mixed_linear_model import MixedLM, VCSpec

        unknowns = answers.n_tasks + answers.n_workers
        require(
            unknowns <= _MOST_UNKNOWNS,
            f"{unknowns} tasks and workers are too many for dense matrices; see two-way",
        )
        effects = {"task": (answers.task, answers.n_tasks)}
        effects["worker"] = (answers.worker, answers.n_workers)
        drawn = VCSpec(
            [*effects],
            [[[f"{name}{i:06d}" for i in range(n)]] for name, (_, n) in effects.items()],
            [[np.eye(n)[which]] for which, n in effects.values()],
        )
        one = np.ones(answers.n_edges)
        found = np.empty((answers.n_tasks, answers.dimension))
        for j in range(answers.dimension):
            model = MixedLM(answers.value[:, j], one[:, None], groups=one, exog_vc=drawn)
            fitted = model.fit(reml=True)
            effect = np.asarray(fitted.random_effects[1.0])[: answers.n_tasks]
            found[:, j] = fitted.fe_params[0] + effect
        return found


PEERS: tuple[Peer, ...] = (Rasa(), Sureal910(), Sureal913(), MixedModel())
