"""Scales on which all values have the same noise: from the users' units and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from voxpop.errors import ConfigError
from voxpop.models.scale.base import LINEAR, Range, Scale, ScaleName
from voxpop.models.scale.circular import Circular
from voxpop.models.scale.log import Log
from voxpop.models.scale.logit import Logit
from voxpop.models.scale.sqrt import Sqrt

__all__ = [
    "LINEAR",
    "SCALES",
    "Circular",
    "Logit",
    "Range",
    "Scale",
    "ScaleName",
    "check_scale",
    "scale_from_dict",
]

SCALES: Mapping[str, type[Scale]] = {
    kind.name: kind for kind in (Scale, Log, Sqrt, Logit, Circular)
}
"""Every scale by its name."""


def check_scale(name: object) -> None:
    """Refuse an unknown scale."""
    if name not in SCALES:
        raise ConfigError(f"scale must be one of {', '.join(SCALES)}, got {name!r}")


def scale_from_dict(facts: Mapping[str, Any] | None) -> Scale:
    """Undo :meth:`Scale.to_dict`; nothing is the linear scale."""
    if facts is None:
        return LINEAR
    given = {
        name: tuple(x) if isinstance(x, list) else x for name, x in facts.items() if name != "name"
    }
    return SCALES[facts["name"]](**given)
