"""What the writers of all formats share: estimates by image, their certainty, JSON files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voxpop.arrays import Floats
from voxpop.data.formats.base import Kind
from voxpop.data.objects import SHAPE_NAMES, parse_object_id
from voxpop.data.output import replacing
from voxpop.data.tables import finite
from voxpop.errors import DataError, shorten

if TYPE_CHECKING:
    from voxpop.results.result import Result

# Position in the result, label and value of the estimates of every image.
ByImage = dict[str, list[tuple[int, str, list[float]]]]


def estimates_by_image(result: Result, shapes_for: str | None = None) -> tuple[Kind, ByImage]:
    """Return what the estimates are, sorted by the image (or item) that they belong to.

    ``shapes_for`` names a tool that takes boxes and points only.
    """
    kind: Any = next((k for k, names in SHAPE_NAMES.items() if names == result.value_names), None)
    if kind is None and len(result.value_names) > 1:
        raise DataError(
            f"only numbers, boxes (xmin, ymin, xmax, ymax) and points (x, y) go back into a tool; "
            f"the values are {', '.join(result.value_names)}"
        )
    if kind is None and shapes_for is not None:
        raise DataError(f"{shapes_for} takes boxes and points; these estimates are numbers")
    by_image: ByImage = {}
    for i, task in enumerate(result.task_ids.tolist()):
        place = None if kind is None else parse_object_id(str(task))
        image, label = (place.image, place.label) if place else (str(task), "")
        by_image.setdefault(image, []).append((i, label, result.estimate[i].tolist()))
    return kind or "number", by_image


def confidence(result: Result) -> list[float]:
    """Score the certainty of every estimate, from 0 to 1: s / (s + sd), with the median sd as s.

    Where no sd is known all are one half.
    """
    sd = np.sqrt(result.variance.mean(axis=1))
    if np.isnan(sd).any():
        return [0.5] * len(sd)
    usual = float(np.median(sd))
    score = np.divide(usual, usual + sd, out=np.ones_like(sd), where=usual + sd > 0)
    return [round(float(item), 4) for item in score]


def refuse_strangers(n: int, result: Result, source: object) -> None:
    """Refuse a source that has none of the result's tasks, instead of writing nothing."""
    if n == 0:
        raise DataError(
            f"{source}: has none of the result's tasks ({shorten(result.task_ids)}); name the "
            "export it was made from, and the same task= (command line: --task)"
        )


def write_json(document: object, out: Path) -> None:
    """Write a JSON document, atomically; null where a number is not known."""
    with replacing(out) as temporary:
        temporary.write_text(json.dumps(finite(document), indent=1) + "\n", encoding="utf-8")


def training_columns(result: Result, residual_variance: float | None = None) -> dict[str, Any]:
    """Return the labels for training a model: task, value, sd, and ``sample_weight``.

    A label of variance v counts 1 / (v + r), scaled to a mean of one. ``residual_variance`` r is
    what the model will not explain even of perfect labels. By default it is the median variance of
    the labels: the surest label then counts at most twice as much as the median one.
    """
    variance = result.variance.mean(axis=1)
    rest = float(np.median(variance)) if residual_variance is None else residual_variance
    total = variance + rest
    # With nothing but perfect labels, or none whose variance is known, all count the same.
    alike = np.isnan(total).any() or not total.all()
    weight: Floats = np.ones_like(total) if alike else 1 / total
    columns: dict[str, Any] = {"task": result.task_ids}
    taken = {"task", "sd", "sample_weight"}
    for j, name in enumerate(result.value_names):
        columns[f"{name}_estimate" if name in taken else name] = result.estimate[:, j]
    one = len(result.value_names) == 1
    for j, name in enumerate(result.value_names):
        columns["sd" if one else f"sd_{name}"] = result.sd[:, j]
    return columns | {"sample_weight": weight / weight.mean()}
