"""voxpop: one honest number from many noisy answers.

The names below are loaded when they are first used, so that ``import voxpop`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from voxpop.answers import Answers as Answers
    from voxpop.assign import Assignment as Assignment
    from voxpop.assign import assign_degrees as assign_degrees
    from voxpop.assign import assign_regular as assign_regular
    from voxpop.balance import assign_balanced as assign_balanced
    from voxpop.density import Prediction as Prediction
    from voxpop.density import measure_error as measure_error
    from voxpop.density import predict_error as predict_error
    from voxpop.errors import ConfigError as ConfigError
    from voxpop.errors import ConvergenceWarning as ConvergenceWarning
    from voxpop.errors import DataError as DataError
    from voxpop.errors import DataWarning as DataWarning
    from voxpop.errors import VoxpopError as VoxpopError
    from voxpop.estimators import BI as BI
    from voxpop.estimators import ESTIMATORS as ESTIMATORS
    from voxpop.estimators import NBI as NBI
    from voxpop.estimators import Average as Average
    from voxpop.estimators import Estimator as Estimator
    from voxpop.estimators import Exact as Exact
    from voxpop.estimators import Median as Median
    from voxpop.estimators import StrongOracle as StrongOracle
    from voxpop.estimators import aggregate as aggregate
    from voxpop.frontier import Option as Option
    from voxpop.frontier import Plan as Plan
    from voxpop.frontier import Prices as Prices
    from voxpop.io import read_answers as read_answers
    from voxpop.metrics import Score as Score
    from voxpop.metrics import score as score
    from voxpop.model import Model as Model
    from voxpop.pilot import LearnedCrowd as LearnedCrowd
    from voxpop.pilot import learn_crowd as learn_crowd
    from voxpop.plan import make_plan as make_plan
    from voxpop.result import Result as Result
    from voxpop.result import Trace as Trace
    from voxpop.roster import assign_table as assign_table
    from voxpop.simulation import Simulation as Simulation
    from voxpop.simulation import simulate as simulate

__version__ = "0.1.0"

_HOMES = {
    "answers": ("Answers",),
    "assign": ("Assignment", "assign_degrees", "assign_regular"),
    "balance": ("assign_balanced",),
    "density": ("Prediction", "measure_error", "predict_error"),
    "errors": ("ConfigError", "ConvergenceWarning", "DataError", "DataWarning", "VoxpopError"),
    "estimators": (
        *("BI", "ESTIMATORS", "NBI", "Average", "Estimator", "Exact", "Median"),
        *("StrongOracle", "aggregate"),
    ),
    "frontier": ("Option", "Plan", "Prices"),
    "io": ("read_answers",),
    "metrics": ("Score", "score"),
    "model": ("Model",),
    "pilot": ("LearnedCrowd", "learn_crowd"),
    "plan": ("make_plan",),
    "result": ("Result", "Trace"),
    "roster": ("assign_table",),
    "simulation": ("Simulation", "simulate"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted([*_HOME, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'voxpop' has no attribute {name!r}")
    found = getattr(import_module(f"voxpop.{_HOME[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
