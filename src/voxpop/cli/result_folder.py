"""Where a result goes: beside its input, and over another input's result only on request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from voxpop.errors import require


def source_name(answers: str) -> str:
    """Name the input without its folder, or the credentials of a URL."""
    return "stdin" if answers == "-" else Path(answers.partition("?")[0]).name or "answers"


def source_of(answers: str, settings: Mapping[str, Any]) -> str:
    """Describe the answers: the input, and what was selected from it."""
    asked = ((name, settings.get(name)) for name in ("question", "query"))
    return " ".join([source_name(answers), *(f"--{name} {part}" for name, part in asked if part)])


def result_folder(output: Path | None, answers: str, source: str) -> Path:
    """Return the folder for a result: as asked for, or beside the input.

    Unless it was asked for, the result of another input stays.
    """
    from voxpop.data.output import require_folder
    from voxpop.results import saved

    folder = output or default_folder(answers)
    require_folder(folder)
    earlier = saved.source_of(folder)
    require(
        output is not None or earlier in (None, source),
        f"{folder}: holds the result of {earlier}; name a directory with -o "
        f"(-o {folder} replaces that result)",
    )
    return folder


def folder_of(answers: str) -> Path | None:
    """Folder of the input, where its pictures may be; None where it is no file."""
    path = Path(answers)
    return path.parent if path.is_file() else path if path.is_dir() else None


def _without_pattern(answers: str) -> str:
    """Name the folder that the files of a pattern are in; anything else stays what it is."""
    if not re.search(r"[*\[]", answers) or Path(answers).exists():
        return answers
    return re.split(r"[^/]*[*\[]", answers, maxsplit=1)[0].rstrip("/") or "answers"


def default_folder(answers: str) -> Path:
    """Name the output after the input, beside it, without the ending of its kind of file."""
    answers = _without_pattern(answers)
    name = source_name(answers)
    beside = Path() if answers == "-" or "://" in answers else Path(answers).parent
    endings = (".gz", ".csv", ".tsv", ".txt", ".parquet", ".pq", ".jsonl", ".ndjson", ".json")
    for ending in (*endings, ".xlsx", ".ods", ".xml", ".py", ".db", ".sqlite", ".duckdb"):
        name = name[: -len(ending)] if name.lower().endswith(ending) else name
    return beside / f"{name or 'answers'}.voxpop"
