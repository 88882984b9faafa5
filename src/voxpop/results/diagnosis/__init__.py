"""Diagnosis: which workers an honest crowd cannot explain, with evidence, and what they change.

A flag is a question to a person, not a verdict: nobody is removed. See :func:`diagnose` for the
tests and :func:`effect_of_removing` for what the estimates would be without some workers.
"""

from voxpop.results.diagnosis.flags import Diagnosis, Flag, diagnose
from voxpop.results.diagnosis.removing import EffectOfRemoving, effect_of_removing
from voxpop.results.diagnosis.typos import Typo

__all__ = ["Diagnosis", "EffectOfRemoving", "Flag", "Typo", "diagnose", "effect_of_removing"]
