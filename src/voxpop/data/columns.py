"""Columns: which of a table is the task, the worker and the answer, by the names that tools use."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from voxpop.arrays import Codes, Ids
from voxpop.data.tables import Table
from voxpop.errors import DataError, shorten

# Names seen in users' files, in order of preference; matched by their letters and digits alone.
SYNONYMS: dict[str, tuple[str, ...]] = {
    "task": (
        *("task", "task_id", "item", "item_id", "question", "question_id", "hitid", "subject_ids"),
        *("image", "image_id", "image_name", "photo", "photo_id", "picture", "img", "file_name"),
        *("file", "file_url", "doc", "doc_id", "document", "document_id", "text_id", "orig_id"),
        *("record_id", "pvs_id", "video", "video_id", "video_name", "clip", "clip_id", "sample"),
        *("sample_id", "example", "example_id", "stimulus", "submission", "submission_id"),
        *("essay", "paper", "product", "listing", "prompt", "prompt_id", "case", "case_id"),
    ),
    "worker": (
        *("worker", "worker_id", "performer", "annotator", "annotator_id", "workerid", "user_id"),
        *("user_name", "user", "uid", "completed_by", "rater", "rater_id", "judge", "judge_id"),
        *("observer", "observer_id", "source", "forecaster", "grader", "grader_id", "labeller"),
        *("labeler", "labeller_id", "labeler_id", "worker_name", "annotator_name", "rater_name"),
        *("labeller_name", "labeler_name", "judge_name", "reviewer", "reviewer_id", "coder"),
        *("participant", "participant_id", "respondent", "respondent_id", "evaluator", "assessor"),
        *("person", "assignment:worker_id", "!amt_worker_ids"),
    ),
    "value": (
        *("value", "label", "answer", "rating", "score", "response", "vote", "estimate", "grade"),
        *("judgment", "judgement", "measurement"),
    ),
    "variance": ("variance",),
    "truth": ("truth", "gold"),
}
# Sets of columns that together are one vector: boxes and points.
VECTORS: tuple[tuple[str, ...], ...] = (
    ("xmin", "ymin", "xmax", "ymax"),
    ("left", "top", "width", "height"),
    ("x", "y", "width", "height"),
    ("x", "y", "z"),
    ("x", "y"),
)
# Columns that hold what a task shows: the address of a picture, a text, a link.
CONTENTS = ("image_url", "image_path", "picture", "photo_url", "url", "link", "text")
# Columns of the canonical long table that are never the answer itself.
_NEVER_VALUES = {
    *(name.replace("_", "") for name in CONTENTS),
    *("time", "duration", "gold", "truth", "cost", "group", "run", "conf", "dim", "object"),
    *("date", "timestamp", "comment", "comments", "note", "notes"),
}


class UnknownColumns(DataError):
    """No column has a name that is known for some role.

    ``options`` suggests columns for these roles, as options of the command line.
    """

    def __init__(self, message: str, options: str) -> None:
        super().__init__(message)
        self.options = options


def simple(name: str) -> str:
    """Return the letters and digits of a name: ``Labeller Name`` and ``labeller_name`` are one."""
    return "".join(mark for mark in name.lower() if mark.isalnum())


def find_column(columns: Sequence[str], names: Sequence[str]) -> str | None:
    """Find the first of some names among the columns, by letters and digits alone."""
    known = {simple(name): name for name in reversed(columns)}
    return next((known[simple(name)] for name in names if simple(name) in known), None)


def find_vector(columns: Sequence[str]) -> list[str]:
    """Find a set of columns that together are one vector; none where there is no such set."""
    for vector in VECTORS:
        found = [find_column(columns, [name]) for name in vector]
        if None not in found:
            return cast("list[str]", found)
    return []


def resolve_column(table: Table, role: str, asked: str | None) -> str:
    """Find the column that plays a role: the one asked for, or the best-known synonym."""
    if asked is not None and asked not in table.columns:
        raise DataError(
            f"{table.name}: no column {asked!r} for the {role}; the columns are "
            f"{shorten(table.columns, 12)}"
        )
    found = find_column(table.columns, SYNONYMS[role]) if asked is None else asked
    if found is None:
        raise _unknown(table, {role: None})
    return found


def resolve_aside(table: Table, role: str, asked: str | None) -> str:
    """Find a role in a table beside the answers: the answers' column, or else one by its name."""
    try:
        return resolve_column(table, role, asked if asked in table.columns else None)
    except UnknownColumns as error:
        raise DataError(str(error)) from None  # the options are for the answers


def resolve_values(table: Table, asked: Sequence[str] | None, taken: set[str]) -> list[str]:
    """Find the value columns, or raise an error."""
    found = find_values(table, asked, taken)
    if not found:
        raise _unknown(table, {"value": None})
    return found


def find_values(table: Table, asked: Sequence[str] | None, taken: set[str]) -> list[str]:
    """Find the value columns: as asked, a synonym, ``value_*``, a known vector, or what is left."""
    if asked is not None:
        names = [resolve_column(table, "value", name) for name in asked]
        if not names or len(set(names)) < len(names):
            raise DataError(f"value columns must be one or more different names, got {asked!r}")
        return names
    left = [name for name in table.columns if name not in taken]
    synonym = find_column(left, SYNONYMS["value"])
    numbered = [name for name in left if name.lower().startswith("value_")]
    rest = [name for name in left if simple(name) not in _NEVER_VALUES]
    found = [synonym] if synonym is not None else numbered or find_vector(left) or rest
    return [] if found is rest and len(rest) > 1 else found


def resolve_roles(
    table: Table,
    task: str | None,
    worker: str | None,
    values: Sequence[str] | None,
    gold: Sequence[str],
) -> tuple[str, str, list[str]]:
    """Find task, worker and values; one error names all that could not be found."""
    asked = {"task": task, "worker": worker}
    roles = {
        role: find_column(table.columns, SYNONYMS[role])
        if name is None
        else resolve_column(table, role, name)
        for role, name in asked.items()
    }
    taken = {name for name in roles.values() if name is not None} | set(gold)
    # The column left over is the value only if nothing else could be.
    if None not in roles.values() or values is not None:
        found = find_values(table, values, taken)
    else:
        left = [name for name in table.columns if name not in taken]
        synonym = find_column(left, SYNONYMS["value"])
        found = [synonym] if synonym is not None else find_vector(left)
    if None in roles.values() or not found:
        raise _unknown(table, roles | {"value": found[0] if found else None})
    for name in found:
        if name in taken:
            raise DataError(f"column {name!r} cannot be both the value and a task, worker or gold")
    return cast("str", roles["task"]), cast("str", roles["worker"]), found


def _unknown(table: Table, roles: Mapping[str, str | None]) -> UnknownColumns:
    """Make the error that names roles without a column, and columns that could play them."""
    wanted = [role for role, name in roles.items() if name is None]
    guessed = _guess(table, wanted, {name for name in roles.values() if name is not None})
    options = " ".join(f"--{role} {shlex.quote(name)}" for role, name in guessed.items())
    python = {"value": "values"}
    arguments = ", ".join(f"{python.get(r, r)}={n!r}" for r, n in guessed.items())
    example = f", like {arguments}" if guessed else ""
    on_command_line = options or " ".join(f"--{role}" for role in wanted)
    return UnknownColumns(
        f"{table.name}: no column that looks like the {' or the '.join(wanted)}; the columns are "
        f"{shorten(table.columns, 12)}; name the columns{example} "
        f"(command line: {on_command_line})",
        options,
    )


def _guess(table: Table, wanted: Sequence[str], taken: set[str]) -> dict[str, str]:
    """Guess which columns could play the roles: numbers are values, and workers the fewest."""
    # A name with a line break in it cannot be typed.
    left = [name for name in table.columns if name not in taken and name.isprintable()]
    found: dict[str, str] = {}
    if "value" in wanted:
        numeric = [name for name in left if _is_numeric(table, name)]
        if numeric:
            found["value"] = numeric[-1]
            left.remove(numeric[-1])
    counts = {name: len(set(table.texts(name))) for name in left}
    # A column with one value in all rows distinguishes nobody.
    by_count = sorted((name for name in left if counts[name] > 1), key=lambda name: counts[name])
    for role in ("worker", "task"):
        if role in wanted and by_count:
            found[role] = by_count.pop(0 if role == "worker" else -1)
    return {role: found[role] for role in ("task", "worker", "value") if role in found}


def _is_numeric(table: Table, name: str) -> bool:
    try:
        return not np.isnan(table.spelling.read(table.texts(name), name, table.where).value).all()
    except DataError:
        return False


def ids_of_rows(table: Table, role: str, column: str | None = None) -> list[Any]:
    """Return the id that each row has in the column of a role: ``task`` or ``worker``."""
    codes, ids = tidy_ids(*table.ids(resolve_aside(table, role, column)))[:2]
    return ids[codes].tolist()  # type: ignore[no-any-return]


def tidy_ids(codes: Codes, ids: Ids) -> tuple[Codes, Ids, list[str]]:
    """Trim the white space around ids, and return the ids that had some; -1 for an empty one."""
    if ids.dtype.kind in "iu":
        return codes, ids, []
    listed = ids.tolist()
    trimmed = [item.strip() if isinstance(item, str) else item for item in listed]
    around = [
        item
        for item, plain in zip(listed, trimmed, strict=True)
        if isinstance(item, str) and item != plain
    ]
    if not around:
        return codes, ids, []
    places: dict[Any, int] = {}
    new = [-1 if item == "" else places.setdefault(item, len(places)) for item in trimmed]
    kept = np.empty(len(places), dtype=object)
    kept[:] = list(places)
    if all(isinstance(item, str) and item.isascii() and item.isdigit() for item in places):
        whole = [int(item) for item in places]
        if [str(item) for item in whole] == list(places) and max(whole, default=0) < 2**63:
            kept = np.array(whole, dtype=np.int64)
    lookup = np.array([*new, -1], dtype=np.int32)
    return lookup[codes], kept, around
