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
    from voxpop.audit import Audit as Audit
    from voxpop.balance import assign_balanced as assign_balanced
    from voxpop.campaign import Batch as Batch
    from voxpop.campaign import Campaign as Campaign
    from voxpop.campaign import Rules as Rules
    from voxpop.density import PredictedError as PredictedError
    from voxpop.density import measure_error as measure_error
    from voxpop.density import predict_error as predict_error
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
    from voxpop.estimators import CATD as CATD
    from voxpop.estimators import CRH as CRH
    from voxpop.estimators import ESTIMATORS as ESTIMATORS
    from voxpop.estimators import GTM as GTM
    from voxpop.estimators import NBI as NBI
    from voxpop.estimators import P910 as P910
    from voxpop.estimators import P913 as P913
    from voxpop.estimators import PG1 as PG1
    from voxpop.estimators import Auto as Auto
    from voxpop.estimators import Average as Average
    from voxpop.estimators import Estimator as Estimator
    from voxpop.estimators import Exact as Exact
    from voxpop.estimators import GeometricMedian as GeometricMedian
    from voxpop.estimators import GoldFirst as GoldFirst
    from voxpop.estimators import HodgesLehmann as HodgesLehmann
    from voxpop.estimators import Huber as Huber
    from voxpop.estimators import KDEm as KDEm
    from voxpop.estimators import Median as Median
    from voxpop.estimators import QuantiseClassify as QuantiseClassify
    from voxpop.estimators import Raykar as Raykar
    from voxpop.estimators import StrongOracle as StrongOracle
    from voxpop.estimators import TwoWay as TwoWay
    from voxpop.estimators import WeakOracle as WeakOracle
    from voxpop.estimators import aggregate as aggregate
    from voxpop.estimators import widen_by_gold as widen_by_gold
    from voxpop.explaining import explain as explain
    from voxpop.explanation import Explanation as Explanation
    from voxpop.formats import FORMATS as FORMATS
    from voxpop.formats import WRITERS as WRITERS
    from voxpop.formats import export_result as export_result
    from voxpop.formats import sniff as sniff
    from voxpop.formats import training_columns as training_columns
    from voxpop.formats import write_result as write_result
    from voxpop.frontier import Option as Option
    from voxpop.frontier import Plan as Plan
    from voxpop.frontier import Prices as Prices
    from voxpop.io import read_answers as read_answers
    from voxpop.metrics import Score as Score
    from voxpop.metrics import score as score
    from voxpop.model import Model as Model
    from voxpop.noise import Noise as Noise
    from voxpop.objects import Matching as Matching
    from voxpop.objects import Objects as Objects
    from voxpop.objects import match_objects as match_objects
    from voxpop.pilot import LearnedCrowd as LearnedCrowd
    from voxpop.pilot import learn_crowd as learn_crowd
    from voxpop.plan import make_plan as make_plan
    from voxpop.plots import plot_bias as plot_bias
    from voxpop.plots import plot_box as plot_box
    from voxpop.plots import plot_budget as plot_budget
    from voxpop.plots import plot_convergence as plot_convergence
    from voxpop.plots import plot_coverage as plot_coverage
    from voxpop.plots import plot_noise as plot_noise
    from voxpop.plots import plot_pit as plot_pit
    from voxpop.plots import plot_task as plot_task
    from voxpop.plots import plot_tasks as plot_tasks
    from voxpop.prediction import Prediction as Prediction
    from voxpop.prediction import predict_answer as predict_answer
    from voxpop.reliability import Agreement as Agreement
    from voxpop.reliability import agreement as agreement
    from voxpop.report import write_report as write_report
    from voxpop.result import Result as Result
    from voxpop.result import Trace as Trace
    from voxpop.roster import assign_table as assign_table
    from voxpop.simulation import Simulation as Simulation
    from voxpop.simulation import simulate as simulate
    from voxpop.theory import Theorem1 as Theorem1
    from voxpop.theory import average_mse as average_mse
    from voxpop.theory import mse_given as mse_given
    from voxpop.theory import oracle_mse as oracle_mse
    from voxpop.theory import theorem1 as theorem1
    from voxpop.theory import theorem2_holds as theorem2_holds

__version__ = "0.1.0"

_HOMES = {
    "answers": ("Answers",),
    "assign": ("Assignment", "assign_degrees", "assign_regular"),
    "audit": ("Audit",),
    "balance": ("assign_balanced",),
    "campaign": ("Batch", "Campaign", "Rules"),
    "density": ("PredictedError", "measure_error", "predict_error"),
    "diagnosis": ("Diagnosis", "EffectOfRemoving", "Flag", "diagnose", "effect_of_removing"),
    "errors": ("ConfigError", "ConvergenceWarning", "DataError", "DataWarning", "VoxpopError"),
    "estimators": (
        *(
            "BI",
            "CATD",
            "CRH",
            "ESTIMATORS",
            "GTM",
            "NBI",
            "P910",
            "P913",
            "PG1",
            "Auto",
            "Average",
        ),
        *("Estimator", "Exact", "GeometricMedian", "GoldFirst", "HodgesLehmann", "Huber", "KDEm"),
        *("Median", "QuantiseClassify", "Raykar", "StrongOracle", "TwoWay", "WeakOracle"),
        *("aggregate", "widen_by_gold"),
    ),
    "formats": (
        *("FORMATS", "WRITERS", "export_result", "sniff", "training_columns", "write_result"),
    ),
    "frontier": ("Option", "Plan", "Prices"),
    "io": ("read_answers",),
    "metrics": ("Score", "score"),
    "model": ("Model",),
    "noise": ("Noise",),
    "objects": ("Matching", "Objects", "match_objects"),
    "pilot": ("LearnedCrowd", "learn_crowd"),
    "plan": ("make_plan",),
    "plots": (
        *("plot_bias", "plot_box", "plot_budget", "plot_convergence", "plot_coverage"),
        *("plot_noise", "plot_pit", "plot_task", "plot_tasks"),
    ),
    "reliability": ("Agreement", "agreement"),
    "explaining": ("explain",),
    "explanation": ("Explanation",),
    "prediction": ("Prediction", "predict_answer"),
    "report": ("write_report",),
    "result": ("Result", "Trace"),
    "roster": ("assign_table",),
    "simulation": ("Simulation", "simulate"),
    "theory": ("Theorem1", "average_mse", "mse_given", "oracle_mse", "theorem1", "theorem2_holds"),
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
