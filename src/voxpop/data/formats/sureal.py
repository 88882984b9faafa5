"""sureal: its data sets, ``.json`` or ``.py``, in; ``output.json`` out.

A ``.py`` file is a program. It is parsed, and only literals that are assigned to names are read;
nothing is ever run.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voxpop.data.formats.base import Export, Mark
from voxpop.data.formats.parsing import get, identity, load_json, number
from voxpop.data.formats.writing import estimates_by_image, refuse_strangers, write_json
from voxpop.data.unpack import read_text
from voxpop.errors import DataError

if TYPE_CHECKING:
    from voxpop.results.result import Result

NAME = "sureal"
# A syntax tree takes about a hundred times the size of its text.
_LARGEST_PROGRAM = 20 << 20


def fits(document: object) -> bool:
    """Return whether a JSON document looks like a data set."""
    return isinstance(document, Mapping) and "dis_videos" in document


def _literals(path: Path) -> dict[str, Any]:
    text = read_text(path, _LARGEST_PROGRAM)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise DataError(f"{path}: is not Python: {error}") from None
    except (RecursionError, MemoryError):
        raise DataError(f"{path}: is nested too deeply to be a data set") from None
    found: dict[str, Any] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            try:
                found[statement.targets[0].id] = ast.literal_eval(_Nan().visit(statement.value))
            except (ValueError, TypeError, RecursionError, MemoryError):
                # Not a literal: never run, and reported only where it is needed.
                continue
    if "dis_videos" not in found:
        raise DataError(
            f"{path}: has no literal dis_videos = [...]; voxpop does not run programs: save the "
            "data set as .json"
        )
    return found


class _Nan(ast.NodeTransformer):
    """Writes a missing score, ``np.nan`` in sureal's own data sets, as the literal None."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Take ``np.nan`` and ``numpy.nan``; leave anything else, which is no literal."""
        known = isinstance(node.value, ast.Name) and node.value.id in ("np", "numpy")
        return ast.Constant(None) if known and node.attr.lower() == "nan" else node


def collect(path: Path, task: str | None, names: bool = False) -> Export:  # noqa: ARG001
    """Read the opinion scores; repeated ones of a subject count as their mean."""
    videos, name = _videos(path, task)
    fields = {"task": name, "worker": "os"}
    found = Export(format=NAME, path=path, fields=fields, repeats="mean")
    for position, video in enumerate(videos, start=1):
        where = f"{path}: video {position}"
        item = identity(get(video, name, object, where), where)
        scores = get(video, "os", object, where)
        if isinstance(scores, list | tuple):
            scores = dict(enumerate(scores, start=1))
        if not isinstance(scores, dict):
            raise DataError(f"{where}: 'os' must be a list or an object of scores")
        for worker, score in scores.items():
            listed = score if isinstance(score, list | tuple) else [score]
            kept = [given for given in listed if given is not None and given == given]
            for position, given in enumerate(kept):
                value = (number(given, f"{where}, {worker!r}"),)
                found.add("score", value, Mark(item, identity(worker, where)))
                if position > 0:
                    found.skip("repetitions, each averaged with the first score of its subject")
    return found


def _videos(path: Path, asked: str | None) -> tuple[list[Any], str]:
    """Return the videos, and the field that names them: ``path`` where it is unique."""
    program = path.name.lower().removesuffix(".gz").endswith(".py")
    document = _literals(path) if program else load_json(path)
    if not isinstance(document, dict):
        raise DataError(f"{path}: expected an object with 'dis_videos'")
    videos = get(document, "dis_videos", list, str(path))
    paths = [video.get("path") for video in videos if isinstance(video, dict)]
    unique = len(set(map(str, paths))) == len(videos) and None not in paths
    return videos, asked or ("path" if unique else "asset_id")


def write(result: Result, source: Path, out: Path, task: str | None) -> str:
    """Write what sureal writes: scores with std and 95 % half-widths, observers' inconsistency.

    The model is called ``voxpop``. Videos stand in the order of the data set.
    """
    _, by_image = estimates_by_image(result)
    videos, name = _videos(source, task)
    low, high = result.interval(0.95)
    document: dict[str, Any] = {"dis_videos": {}, "observers": {}}
    n = 0
    for position, video in enumerate(videos):
        item = get(video, name, object, f"{source}: video {position + 1}")
        for i, _, value in by_image.get(str(item), []):
            n += 1
            model: dict[str, Any] = {
                "quality_score": value[0],
                "quality_score_std": float(result.sd[i, 0]),
                "quality_score_ci95": [value[0] - float(low[i, 0]), float(high[i, 0]) - value[0]],
            }
            document["dis_videos"][str(position)] = {
                "dis_video_name": video.get("path", video.get("asset_id")),
                "models": {"voxpop": model},
            }
    refuse_strangers(n, result, source)
    spread = np.sqrt(result.worker_variance)
    bounds = np.sqrt(result.worker_interval)
    for u, worker in enumerate(result.worker_ids.tolist()):
        below, above = float(spread[u] - bounds[u, 0]), float(bounds[u, 1] - spread[u])
        model = {
            "observer_inconsistency": float(spread[u]),
            "observer_inconsistency_ci95": [below, above],
        }
        if result.worker_bias.size:
            sd = float(result.worker_bias_sd[u, 0])
            model["observer_bias"] = float(result.worker_bias[u, 0])
            model["observer_bias_std"] = sd
            model["observer_bias_ci95"] = [1.96 * sd, 1.96 * sd]
        document["observers"][str(u)] = {"observer": str(worker), "models": {"voxpop": model}}
    write_json(document, out)
    return f"{n} scores of {len(videos)} videos"
