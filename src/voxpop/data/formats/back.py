"""The way back: what the writers of all formats share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voxpop.arrays import Floats
from voxpop.data.formats.base import Kind
from voxpop.data.objects import SHAPE_NAMES, parse_object_id
from voxpop.data.tables import replacing
from voxpop.errors import DataError, shorten

if TYPE_CHECKING:
    from voxpop.results.result import Result


@dataclass(frozen=True, kw_only=True)
class Estimates:
    """The estimates of a result, image by image: position in the result, label, value."""

    kind: Kind
    question: str | None
    by_image: Mapping[str, list[tuple[int, str, list[float]]]]


def of_images(result: Result) -> Estimates:
    """Sort the estimates by the image (or item) they are of."""
    kind = next((k for k, names in SHAPE_NAMES.items() if names == result.value_names), "number")
    if kind == "number" and len(result.value_names) > 1:
        raise DataError(
            f"only numbers, boxes (xmin, ymin, xmax, ymax) and points (x, y) go back into a tool; "
            f"the values are {', '.join(result.value_names)}"
        )
    by_image: dict[str, list[tuple[int, str, list[float]]]] = {}
    for i, task in enumerate(result.task_ids.tolist()):
        place = parse_object_id(str(task)) if kind != "number" else None
        image, label = (place.image, place.label) if place else (str(task), "")
        by_image.setdefault(image, []).append((i, label, result.estimate[i].tolist()))
    question = result.value_names[0] if kind == "number" else None
    return Estimates(kind=kind, question=question, by_image=by_image)  # type: ignore[arg-type]


def confidence(result: Result) -> list[float]:
    """Say how sure every estimate is, from 0 to 1: s / (s + sd), s the usual (median) sd."""
    sd = np.sqrt(result.variance.mean(axis=1))
    usual = float(np.median(sd))
    score = np.divide(usual, usual + sd, out=np.ones_like(sd), where=usual + sd > 0)
    return [round(float(item), 4) for item in score]


def refuse_strangers(n: int, result: Result, source: object) -> None:
    """Refuse a result none of whose tasks is in the source, instead of writing nothing."""
    if n == 0:
        raise DataError(
            f"{source}: has none of the result's tasks ({shorten(result.task_ids)}); name the "
            "export it was made from, and the same task= (command line: --task)"
        )


def write_json(document: object, out: Path) -> None:
    """Write a JSON document, atomically."""
    with replacing(out) as temporary:
        temporary.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def training_columns(result: Result, residual_variance: float | None = None) -> dict[str, Any]:
    """Return the labels for training a model: task, value, sd, and ``sample_weight``.

    A label of variance v counts 1 / (v + r), scaled to a mean of one. ``residual_variance`` r is
    what the model will not explain even of perfect labels; left out, the median variance of the
    labels, so that the surest label counts twice the usual one at most.
    """
    variance = result.variance.mean(axis=1)
    rest = float(np.median(variance)) if residual_variance is None else residual_variance
    total = variance + rest
    # With nothing but perfect labels, all count the same.
    weight: Floats = np.ones_like(total) if not total.all() else 1 / total
    columns: dict[str, Any] = {"task": result.task_ids}
    taken = {"task", "sd", "sample_weight"}
    for j, name in enumerate(result.value_names):
        columns[f"{name}_estimate" if name in taken else name] = result.estimate[:, j]
    one = len(result.value_names) == 1
    for j, name in enumerate(result.value_names):
        columns["sd" if one else f"sd_{name}"] = result.sd[:, j]
    return columns | {"sample_weight": weight / weight.mean()}
