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
    from voxpop.diagnosis import Diagnosis as Diagnosis
    from voxpop.diagnosis import EffectOfRemoving as EffectOfRemoving
    from voxpop.diagnosis import Flag as Flag
    from voxpop.diagnosis import diagnose as diagnose
    from voxpop.diagnosis import effect_of_removing as effect_of_removing
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
    from voxpop.io import read_answers as read_answers
    from voxpop.metrics import Score as Score
    from voxpop.metrics import score as score
    from voxpop.model import Model as Model
    from voxpop.reliability import Agreement as Agreement
    from voxpop.reliability import agreement as agreement
    from voxpop.result import Result as Result
    from voxpop.result import Trace as Trace
    from voxpop.simulation import Simulation as Simulation
    from voxpop.simulation import simulate as simulate

__version__ = "0.1.0"

_HOMES = {
    "answers": ("Answers",),
    "assign": ("Assignment", "assign_degrees", "assign_regular"),
    "diagnosis": ("Diagnosis", "EffectOfRemoving", "Flag", "diagnose", "effect_of_removing"),
    "errors": ("ConfigError", "ConvergenceWarning", "DataError", "DataWarning", "VoxpopError"),
    "estimators": (
        *("BI", "ESTIMATORS", "NBI", "Average", "Estimator", "Exact", "Median"),
        *("StrongOracle", "aggregate"),
    ),
    "io": ("read_answers",),
    "metrics": ("Score", "score"),
    "model": ("Model",),
    "reliability": ("Agreement", "agreement"),
    "result": ("Result", "Trace"),
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
