"""The page: cards, tables and numbers in one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import zlib
from collections.abc import Iterable
from dataclasses import replace
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from string import Template

import numpy as np

from voxpop.data.answers import Answers
from voxpop.data.output import replacing
from voxpop.models.scale import LINEAR
from voxpop.present.report.content import choose, columns, looks
from voxpop.present.report.contents import find_contents
from voxpop.present.report.summary import Card, Gain, Tile, cards, gain_over_mean, tiles
from voxpop.results.answer_weights import require_match
from voxpop.results.diagnosis import Diagnosis
from voxpop.results.metrics import align_truth
from voxpop.results.result import Result
from voxpop.results.saved import run_id
from voxpop.words import number_text, percent

# Small enough to be mailed; what does not fit is left out, and the page says so.
_MOST_BYTES = 2_900_000
_SCRIPTS = ("draw.js", "listing.js", "details.js", "page.js")
# Nobody reads more than these.
_MOST_TYPOS = 200
# Numbers to begin with: about three bytes each, compressed.
_MOST_NUMBERS = 900_000


def write_report(
    answers: Answers,
    result: Result,
    path: str | Path,
    *,
    truth: object = None,
    title: str | None = None,
    pictures: str | Path | None = None,
) -> Path:
    """Write a report of a result as one HTML file, to be opened in any browser, also offline.

    It begins with the decision: what is ready, what needs a look and why, which workers to talk to,
    and what more answers would buy. Then come the tasks that need a look, every task and worker, to
    sort, search, open and save as CSV; how sure the estimates are; and how they were made.
    It contains the answers: protect it as you protect them. It is at most 3 MB: of very many tasks
    it holds the most uncertain ones. The same answers and result give the same file.

    Parameters
    ----------
    answers, result
        The answers, and what an estimator found in them.
    path
        The file to write; an older one is replaced when the new one is complete.
    truth
        True values: an array in the order of the tasks, NaN where unknown, or a mapping, data frame
        or path with one vector per task. The error is then measured against them.
    title
        The title of the report; by default the name of the file's folder.
    pictures
        Folder of the pictures that tasks are about, by the names that the export or the task ids
        have: those of tasks that need a look come into the file first, made small where Pillow is
        installed, about 1 MB in all.
    """
    require_match(answers, result)
    place = Path(path)
    true = None if truth is None else align_truth(truth, result)
    if result._review is None or result.review.diagnosis is None:
        result = replace(result, _answers=answers, _review=None)  # one that was loaded
    gain = gain_over_mean(answers, result, true)
    folder = None if pictures is None else Path(pictures)
    top = tiles(answers, result)
    name = title or place.absolute().parent.name or "answers"
    budget = _MOST_NUMBERS
    while True:
        shown = choose(answers, result, budget)
        first = [place for place, _ in looks(result, shown)]
        contents = find_contents(answers, result.task_ids[shown.tasks].tolist(), first, folder)
        content = columns(answers, result, shown, true, contents)
        page = _page(result, name, top, gain, content, contents.sources)
        if len(page) <= _MOST_BYTES or len(shown.tasks) == 1:
            break
        budget = int(0.9 * budget * _MOST_BYTES / len(page))
    with replacing(place) as temporary:
        temporary.write_bytes(page)
    return place


def _page(
    result: Result,
    title: str,
    top: list[Tile],
    gain: Gain,
    content: dict[str, object],
    sources: str,
) -> bytes:
    found = result.review.diagnosis
    parts = files("voxpop.present.report")
    style = parts.joinpath("page.css").read_text("utf-8")
    script = "\n".join(parts.joinpath(name).read_text("utf-8") for name in _SCRIPTS)
    # Compressed, and in base64, which is safe inside HTML whatever an id holds.
    packed = zlib.compress(json.dumps(content, allow_nan=False, separators=(",", ":")).encode())
    page = Template(parts.joinpath("page.html").read_text("utf-8")).substitute(
        policy=_policy(style, script, sources),
        title=html.escape(title),
        headline=html.escape(result.review.summary()),
        measured=f'<p class="soft">{html.escape(gain.headline())}</p>' * bool(gain.headline()),
        share=f"{100 * result.review.n_ready / max(len(result.task_ids), 1):.1f}",
        tiles="".join(map(_tile, top)),
        counts=_counts(content["totals"]),  # type: ignore[arg-type]
        cards="".join(_card(*item) for item in cards(result, gain, found).items()),
        notes="".join(f"<li>{html.escape(note)}</li>" for note in result.all_notes()),
        typos=_typos(found),
        levels=_levels(result),
        comparison=_comparison(result),
        version=html.escape(version("voxpop")),
        run=run_id(result),
        loads=", and loads pictures only when you ask for them"
        if "http" in sources
        else " and loads nothing from the network",
        style=style,
        script=script,
        data=base64.b64encode(packed).decode("ascii"),
    )
    return page.encode("utf-8", "replace")


def _policy(style: str, script: str, pictures: str) -> str:
    """Allow this style and this script, by their hashes, pictures from there, and nothing else."""
    digests = (hashlib.sha256(text.encode()).digest() for text in (style, script))
    style, script = (base64.b64encode(digest).decode("ascii") for digest in digests)
    images = f"img-src {pictures}; " if pictures else ""
    return (
        f"default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; {images}"
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )


def _counts(totals: dict[str, int]) -> str:
    counts = ((name, totals[name]) for name in ("answers", "tasks", "workers"))
    return " · ".join(f"<b>{n:,}</b> {name if n != 1 else name[:-1]}" for name, n in counts)


def _tile(tile: Tile) -> str:
    kind, figure, unit, text, link = map(html.escape, tile)
    inner = f'<span class="figure">{figure}</span> <span class="unit">{unit}</span>'
    head = f'<a href="{link}">{inner}</a>' if link else inner
    return f'<li class="tile {kind}"><p>{head}</p><p class="text">{text}</p></li>\n'


def _card(title: str, card: Card) -> str:
    kind = "figure" if len(card.figure) < 10 else "figure words"
    figure, unit, text = map(html.escape, card)
    return (
        f'<section class="card"><h2>{html.escape(title)}</h2><p class="{kind}">{figure}</p>'
        f'<p class="unit">{unit}</p><p>{text}</p></section>\n'
    )


def _typos(found: Diagnosis | None) -> str:
    """Answers that look mistyped, as a table; the surest where there are many."""
    if found is None or not found.typos:
        return ""
    many = len({typo.name for typo in found.typos}) > 1
    rows = [
        (
            str(typo.task),
            str(typo.worker),
            f"{typo.name} {typo.value:.6g}" if many else f"{typo.value:.6g}",
            f"{typo.looks_like:.6g}",
            typo.kind,
            f"{typo.others:.6g}",
        )
        for typo in found.typos[:_MOST_TYPOS]
    ]
    heads = ("task", "worker", "answer", "looks like", "kind", "median of the others")
    return _table("Answers that look mistyped", heads, rows)


def _levels(result: Result) -> str:
    """The noise levels as a table, where the method has levels."""
    if not result.levels.size:
        return ""
    rows = [
        (number_text(float(np.sqrt(level))), percent(weight, 1))
        for level, weight in zip(result.levels, result.level_weights, strict=True)
    ]
    on = "" if result.scale == LINEAR else f", on the {result.scale.name} scale"
    return _table(f"Noise levels of the workers{on}", ("noise sd", "share of workers"), rows)


def _comparison(result: Result) -> str:
    """The noise models compared, where that was done."""
    contest = result.settings.get("contest")
    if not contest:
        return ""
    rows = [
        (
            str(row["model"]),
            f"{row['log_score']:.3f}",
            f"{row['squared_error']:.3f}",
            f"{row['standard_errors_worse']:.1f}",
        )
        for row in sorted(contest, key=lambda row: -float(row["log_score"]))
    ]
    heads = ("model", "log score", "squared error", "standard errors worse")
    return _table("Models compared by leave-one-out prediction", heads, rows)


def _table(caption: str, heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f'<th scope="col">{html.escape(text)}</th>' for text in heads)
    cells = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return (
        f'<div class="wide"><table class="plain"><caption>{html.escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
