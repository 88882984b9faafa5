"""The parts of the pages: words in every language, and files that a strict policy lets run."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

pytest.importorskip("jinja2", reason="the extra serve is not installed")

from voxpop.service.pages.render import LANGUAGES, asset, page, words

PAGES = files("voxpop.service.pages")
SCRIPTS = {
    f"{folder}{path.name}": path.read_text("utf-8")
    for folder, place in (("", PAGES / "static"), ("kinds/", PAGES / "static" / "kinds"))
    for path in place.iterdir()
    if path.name.endswith(".js")
}
CONTEXTS: dict[str, dict[str, str]] = {
    "worker": {"slug": "ages"},
    "dashboard": {"csrf": "c", "slug": "ages"},
    "campaigns": {"csrf": "c"},
    "new": {"csrf": "c"},
    "login": {},
    "welcome": {},
    "problem": {"title": "Not found", "detail": "There is no campaign."},
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_languages_have_the_same_words_with_the_same_gaps(language: str) -> None:
    gaps = re.compile(r"\{\w+\}")
    english, table = words("en"), words(language)
    assert table["language"] == language
    assert table.keys() == english.keys()
    for key, text in table.items():
        assert text.strip(), key
        assert sorted(gaps.findall(text)) == sorted(gaps.findall(english[key])), key
    if language != "en":
        same = [key for key in table if table[key] == english[key]]
        assert len(same) <= 0.1 * len(table), same


def test_an_unknown_language_is_english() -> None:
    assert words("xx")["language"] == "en"
    assert '<html lang="en">' in page("worker", language="xx", slug="a")
    assert '<html lang="de">' in page("worker", language="de", slug="a")


def test_every_word_is_said_and_every_word_said_is_there() -> None:
    code = "\n".join(SCRIPTS.values())
    said = set(re.findall(r"""\b(?:t|counted|button)\((?:"[^"]*", )?"(\w+)\"""", code))
    said |= set(re.findall(r'"(\w+)"', code)) & words("en").keys()
    reasons = ("done", "capacity", "budget", "wait", "paused", "closed", "banned")
    said |= {f"skip_{why}" for why in ("unsure", "unclear", "broken", "other")}
    said |= {*reasons, *(f"{reason}_title" for reason in reasons), "language", "loading"}
    said |= {f"{key}_1" for key in said if f"{key}_1" in words("en")} | {"needs_script"}
    assert words("en").keys() - said == set(), "words that nobody says"
    used = set(re.findall(r"""\b(?:t|counted)\("(\w+)\"""", code))
    assert used <= words("en").keys(), "words that are missing"


@pytest.mark.parametrize("name", CONTEXTS)
def test_pages_hold_no_inline_script_or_style(name: str) -> None:
    text = page(name, **CONTEXTS[name])
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", text)
    for tag in re.findall(r"<script[^>]*>", text):
        assert "src=" in tag or 'type="application/json"' in tag, tag
    for path in re.findall(r'(?:src|href)="/static/([^"]+)"', text):
        assert asset(path) is not None, path


def test_pages_escape_what_they_are_given() -> None:
    text = page("problem", title="<b>x</b>", detail='"><script>alert(1)</script>')
    assert "<b>" not in text
    assert "<script>" not in text
    assert "</script>" not in page("worker", slug="</script><script>alert(1)")[:200]


def test_scripts_import_scripts_that_are_there() -> None:
    for name, code in SCRIPTS.items():
        folder = name.rpartition("/")[0]
        for target in re.findall(r'from "([^"]+)"', code):
            parts = [*folder.split("/"), *target.split("/")] if folder else target.split("/")
            place: list[str] = []
            for part in parts:
                if part == "..":
                    place.pop()
                elif part != ".":
                    place.append(part)
            assert "/".join(place) in SCRIPTS, f"{name}: {target}"
        assert "innerHTML" not in code, name
        assert len(code.splitlines()) <= 450, name


@pytest.mark.parametrize(
    "path",
    ["nothing.js", "../render.py", "report/page.py", "kinds/../worker.js", "words/en.json", ""],
)
def test_only_files_for_the_browser_are_served(path: str) -> None:
    assert asset(path) is None


def test_a_file_has_its_type_and_a_tag() -> None:
    found = asset("worker.js")
    assert found is not None
    assert found.media_type == "text/javascript; charset=utf-8"
    assert re.fullmatch(r'"[0-9a-f]{20}"', found.etag)
    shared = asset("report/draw.js")
    assert shared is not None
    assert b"function curves" in shared.body
