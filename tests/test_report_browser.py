"""The report as a reader meets it, in a real browser: open, sort, search, click, type, print.

Runs where playwright and a Chromium of the system are found; its own browsers are not needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from tests.chromium import browser
from tests.test_report import HOSTILE, content, hostile_answers
from voxpop import (
    BI,
    Answers,
    Average,
    Model,
    Noise,
    Result,
    assign_regular,
    diagnose,
    explain,
    read_answers,
    simulate,
    write_report,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow
__all__ = ["browser"]
LEVELS = (4.0, 40.0, 400.0)


@dataclass
class Reader:
    """A page, and whatever it should not do: complain, fail, ask the network, raise a dialog."""

    page: Page
    complaints: list[str] = field(default_factory=list)

    def row(self, section: str, number: int) -> list[str]:
        """The cells of a row as they are read."""
        return self.page.locator(f"#{section} tbody tr").nth(number).locator("td").all_inner_texts()

    def column(self, section: str, number: int) -> list[str]:
        """A column of the page of a table that is shown."""
        return self.page.locator(f"#{section} tbody td:nth-child({number})").all_inner_texts()


@pytest.fixture
def read(browser: Browser) -> Iterator[Any]:
    """Open a report; whatever happens in the test, it must not have complained."""
    readers: list[Reader] = []

    def opened(path: Path, **settings: Any) -> Reader:
        settings = {"viewport": {"width": 1200, "height": 900}} | settings
        page = browser.new_context(**settings).new_page()
        reader = Reader(page)
        readers.append(reader)
        told = reader.complaints
        page.on("console", lambda message: told.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: told.append(f"error: {error}"))
        page.on("dialog", lambda dialog: told.append(f"dialog: {dialog.message}"))
        page.on(
            "request",
            lambda request: (
                None if request.url == path.as_uri() else told.append(f"request: {request.url}")
            ),
        )
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]")
        return reader

    yield opened
    for reader in readers:
        reader.page.context.close()
        assert reader.complaints == []


@dataclass(frozen=True)
class Case:
    """Answers, what was found in them, and the report of it."""

    answers: Answers
    result: Result
    path: Path


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """120 tasks, of whose 20 workers one always says 40."""
    rng = np.random.default_rng(5)
    crowd = simulate(Model(support=LEVELS), assign_regular(120, 5, 30, rng), rng)
    value = crowd.answers.value.copy()
    value[crowd.answers.worker == 4] = 40.0
    answers = replace(crowd.answers, value=value)
    result = BI(support=LEVELS, noise=Noise(bias=True)).fit(answers)
    path = tmp_path_factory.mktemp("report") / "report.html"
    return Case(answers, result, write_report(answers, result, path, title="ages.csv"))


@pytest.fixture(scope="module")
def boxes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(6)
    crowd = simulate(Model(support=LEVELS, dimension=4), assign_regular(30, 4, 12, rng), rng)
    answers = replace(crowd.answers, value_names=("xmin", "ymin", "xmax", "ymax"))
    path = tmp_path_factory.mktemp("boxes") / "report.html"
    return write_report(answers, BI(support=LEVELS).fit(answers), path, truth=crowd.truth)


def test_it_opens_with_the_decision(case: Case, read: Any) -> None:
    page = read(case.path).page
    assert page.title() == "ages.csv · voxpop report"
    assert page.locator(".counts").inner_text() == "600 answers · 120 tasks · 20 workers"
    found = case.result.review
    assert page.locator(".headline").inner_text() == found.summary()
    figures = page.locator(".tile .figure").all_inner_texts()
    assert figures[:3] == [str(found.n_ready), str(len(found.tasks)), str(len(found.workers or ()))]
    assert "the expected RMSE of all labels falls" in page.locator(".tile.next").inner_text()
    top, sure = (page.locator(name).bounding_box() for name in (".decision", "#sure"))
    assert top
    assert sure
    assert top["y"] + top["height"] < 900 < sure["y"]
    assert page.locator("#sure .card").count() == 4
    assert page.locator("#pictures svg").count() == 4
    assert page.locator("#trace svg").count() == 1
    assert (
        f"Converged after {case.result.trace.n_sweeps} sweeps."
        in page.locator("#trace").inner_text()
    )
    assert page.locator("#failure").is_hidden()


def test_the_queue_is_in_order_filtered_and_saved(case: Case, read: Any, tmp_path: Path) -> None:
    keep = np.ones(case.answers.n_edges, dtype=bool)
    for i in (3, 50, 70):
        keep[case.answers.task_ptr[i] + 1 : case.answers.task_ptr[i + 1]] = False
    answers = case.answers.select(keep)
    result = BI(support=LEVELS).fit(answers)
    reader = read(write_report(answers, result, tmp_path / "r.html"))
    page, found = reader.page, result.review
    names = answers.task_ids[found.tasks].tolist()
    assert reader.column("look", 1) == names[:15]
    assert reader.row("look", 0)[-1].split() == " ".join(found.reasons[0]).split()
    assert page.locator("#look svg.sketch").count() == min(len(names), 15)
    kind = "few answers"
    chip = page.locator("#look .chip", has_text=kind)
    assert chip.locator(".n").inner_text() == str(found.counts()[kind])
    chip.click()
    assert chip.get_attribute("aria-pressed") == "true"
    some = [n for n, reasons in zip(names, found.reasons, strict=True) if kind in reasons]
    assert 0 < len(some) < len(names)
    assert page.locator("#look .status").inner_text() == f"{len(some)} of {len(names)} labels"
    with page.expect_download() as waiting:
        page.locator("#look .save").click()
    assert waiting.value.suggested_filename == "needs-a-look.csv"
    waiting.value.save_as(tmp_path / "q.csv")
    table = pd.read_csv(tmp_path / "q.csv", encoding="utf-8-sig")
    assert table["Task"].tolist() == some
    places = [answers.task_ids.tolist().index(name) for name in some]
    sd = float(np.median(result.sd))
    np.testing.assert_allclose(table["Estimate"], result.estimate[places, 0], atol=2e-3 * sd)
    assert table["Why"].str.contains(kind).all()
    chip.click()
    assert reader.column("look", 1) == names[:15]


def test_workers_to_talk_to_are_named_with_the_evidence(case: Case, read: Any) -> None:
    page = read(case.path).page
    found = diagnose(case.answers, case.result)
    told = page.locator("#talk li")
    assert told.count() == len(found.workers)
    assert found.flags[0].evidence in told.first.inner_text()
    told.first.get_by_role("link").click()
    assert page.locator("dialog h2").inner_text() == f"Worker {found.workers[0]}"


def test_the_mean_stands_beside_the_estimate(case: Case, read: Any) -> None:
    reader = read(case.path)
    assert reader.page.locator("#tasks th").all_inner_texts()[1:3] == ["Estimate", "Mean"]
    name, _, mean, *_ = reader.row("tasks", 0)
    i = case.answers.task_ids.tolist().index(name)
    own = case.answers.value[case.answers.task == i].mean()
    assert float(mean) == pytest.approx(own, abs=0.06)


def test_a_task_has_an_address_and_back_works(case: Case, read: Any) -> None:
    reader = read(case.path)
    page = reader.page
    first, second = (reader.row("tasks", k)[0] for k in (0, 1))
    page.locator("#tasks tbody tr").nth(0).click()
    assert page.url.endswith(f"#task={first}")
    worker = reader.row("details", 0)[0]
    page.locator("dialog tbody tr").first.click()
    assert page.url.endswith(f"#worker={worker}")
    page.go_back()
    # Not by a script that polls in the page, whose policy forbids scripts made of strings.
    page.locator("dialog h2", has_text=f"Task {first}").wait_for()
    page.go_back()
    page.locator("dialog").wait_for(state="hidden")
    page.go_forward()
    page.locator("dialog").wait_for(state="visible")
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="hidden")
    # Closing goes back in the history, which takes a moment.
    page.wait_for_url(lambda url: not url.endswith(first))
    page.goto(f"{case.path.as_uri()}#task={second}")
    page.wait_for_selector("dialog[open]")
    assert page.locator("dialog h2").inner_text() == f"Task {second}"


def test_all_rows_are_printed(case: Case, read: Any) -> None:
    page = read(case.path).page
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator("#tasks tbody tr").count() == 120
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.locator("#tasks tbody tr").count() == 25


def test_two_camps_are_shown_as_such(read: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    drawn = simulate(Model(support=(1.0,)), assign_regular(60, 3, 15, rng), rng).answers
    value = drawn.value.copy()
    value[drawn.task_ptr[5] : drawn.task_ptr[6], 0] = [8.0, 14.0, 8.5]
    answers = replace(drawn, value=value)
    path = write_report(answers, BI(support=(1.0,)).fit(answers), tmp_path / "r.html")
    page = read(path).page
    page.locator("#look tbody tr", has_text="two camps").click()
    assert page.locator("dialog h2").inner_text() == f"Task {answers.task_ids[5]}"
    said = page.locator("dialog .camps").inner_text()
    assert "2 answers about 8.2" in said
    assert "1 answer about 14.0" in said
    assert said.endswith("The estimate lies between the two, where nobody answered.")
    assert page.locator("dialog svg .dot.upper").count() == 1
    assert page.locator("dialog svg .dot:not(.upper)").count() == 2


def test_pictures_texts_and_links_of_tasks_are_shown(read: Any, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for name, size in (("a.png", (60, 30)), ("d.jpg", (1200, 900))):
        image.new("RGB", size, (200, 30, 30)).save(tmp_path / name)
    task = ["a.png", "b", "c", "d.jpg", "../secret.png"]
    rows = [(t, u) for t in task for u in "uvw"]
    tasks, workers = zip(*rows, strict=True)
    value = np.tile([[10.0, 5.0, 30.0, 20.0]], (15, 1)) + np.arange(15)[:, None] % 3
    names = ("xmin", "ymin", "xmax", "ymax")
    answers = Answers.from_arrays(tasks, workers, value, value_names=names)
    image.new("RGB", (9, 9)).save(tmp_path.parent / "secret.png")
    contents = {"b": "Two men\nand a <b>dog</b>.", "c": "https://example.com/page"}
    answers = replace(answers, contents=contents)
    path = write_report(answers, Average().fit(answers), tmp_path / "r.html", pictures=tmp_path)
    page = read(path).page

    def opened(name: str) -> Any:
        page.goto(f"{path.as_uri()}#task={name}")
        page.wait_for_selector("dialog[open]")
        return page.locator("dialog")

    shown = opened("a.png").locator("svg image")
    assert str(shown.get_attribute("href")).startswith("data:image/jpeg")
    box, outline = shown.bounding_box(), page.locator("dialog rect.estimate").bounding_box()
    assert box
    assert outline
    # The box stands where it is in the picture, which is 60 wide: from 11 on.
    assert (outline["x"] - box["x"]) / box["width"] == pytest.approx(11 / 60, abs=0.03)
    assert opened("b").locator("blockquote").inner_text() == contents["b"]
    link = opened("c").locator("a.content, .content a")
    assert link.get_attribute("href") == contents["c"]
    assert opened("d.jpg").locator("svg image").count() == 1
    assert opened("../secret.png".replace("/", "%2F")).locator("svg image").count() == 0
    held = content(path)
    assert held["images"]["d.jpg"]["size"] == [1200, 900]
    assert [*held["images"]] == ["a.png", "d.jpg"]


def test_a_picture_elsewhere_is_loaded_only_when_asked_for(
    browser: Browser, tmp_path: Path
) -> None:
    address = "https://pictures.invalid/a.jpg"
    data = {"task": ["a", "a"], "worker": ["u", "v"], "value": [1.0, 2.0], "url": [address] * 2}
    answers = read_answers(data)
    assert answers.contents == {"a": address}
    path = write_report(answers, Average().fit(answers), tmp_path / "r.html")
    page = browser.new_context().new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{path.as_uri()}#task=a")
    page.wait_for_selector("dialog[open]")
    assert address not in asked
    page.get_by_role("button", name="Show the picture (loads it from pictures.invalid)").click()
    page.locator("dialog img").wait_for(state="attached")
    page.wait_for_timeout(100)
    assert address in asked
    page.context.close()


def test_tasks_sort_by_any_column(case: Case, read: Any) -> None:
    reader = read(case.path)
    head = reader.page.locator("#tasks th")
    sd = np.sort(case.result.sd[:, 0])
    assert head.nth(3).get_attribute("aria-sort") == "descending"
    assert float(reader.row("tasks", 0)[3]) == pytest.approx(sd[-1], rel=0.01)
    head.nth(3).locator("button").click()
    assert head.nth(3).get_attribute("aria-sort") == "ascending"
    assert float(reader.row("tasks", 0)[3]) == pytest.approx(sd[0], rel=0.01)
    head.nth(0).locator("button").click()
    assert head.nth(0).get_attribute("aria-sort") == "ascending"
    assert head.nth(3).get_attribute("aria-sort") is None
    assert reader.column("tasks", 1) == sorted(case.answers.task_ids.tolist())[:25]
    head.nth(1).locator("button").click()
    shown = [float(text) for text in reader.column("tasks", 2)]
    largest = np.sort(case.result.estimate[:, 0])[::-1][:25]
    np.testing.assert_allclose(shown, largest, atol=0.06)


def test_tables_are_leafed_through(case: Case, read: Any) -> None:
    reader = read(case.path)
    pager = reader.page.locator("#tasks .pager")
    seen = reader.column("tasks", 1)
    for first in (26, 51, 76, 101):
        pager.get_by_label("Next tasks").click()
        assert pager.inner_text().split()[1].startswith(str(first))
        seen += reader.column("tasks", 1)
    assert pager.get_by_label("Next tasks").is_disabled()
    assert sorted(seen) == sorted(case.answers.task_ids.tolist())


def test_search_finds_by_id_and_by_flag(case: Case, read: Any) -> None:
    reader = read(case.path)
    wanted = [t for t in case.answers.task_ids.tolist() if "11" in t]
    reader.page.get_by_label("Search tasks").fill("11")
    assert sorted(reader.column("tasks", 1)) == sorted(wanted)
    assert reader.page.locator("#tasks .status").inner_text() == f"{len(wanted)} of 120 tasks"
    reader.page.get_by_label("Search tasks").fill("nothing like it")
    assert "No matching tasks." in reader.page.locator("#tasks tbody").inner_text()
    flagged = {str(worker) for worker in diagnose(case.answers, case.result).workers}
    assert flagged
    chip = reader.page.get_by_role("button", name="flagged only")
    chip.click()
    assert set(reader.column("workers", 1)) == flagged
    chip.click()
    reader.page.get_by_label("Search workers").fill("constant")
    assert reader.column("workers", 1) == [case.answers.worker_ids[4]]


def test_a_task_opens_with_its_answers_and_weights(case: Case, read: Any) -> None:
    reader = read(case.path)
    task = reader.row("tasks", 3)[0]
    reader.page.locator("#tasks tbody tr").nth(3).click()
    found = explain(case.answers, case.result, task)
    assert reader.page.locator("dialog h2").inner_text() == f"Task {task}"
    rows = [reader.row("details", k) for k in range(5)]
    assert {row[0] for row in rows} == set(found.worker.tolist())
    weight = [float(row[2].split()[0]) for row in rows]
    np.testing.assert_allclose(weight, 100 * found.weight, atol=0.6)
    said = {row[0]: float(row[1]) for row in rows}
    for worker, value in zip(found.worker, found.value[:, 0], strict=True):
        assert said[worker] == pytest.approx(value, abs=0.06)
    assert reader.page.locator("dialog svg .dot").count() == 5
    reader.page.locator("dialog svg .dot").first.hover()
    tip = reader.page.locator("#tip").inner_text()
    assert tip == f"{rows[0][0]}: {rows[0][1]}\nweight {rows[0][2]}"


def test_a_worker_opens_with_residuals_and_flags_and_leads_to_tasks(case: Case, read: Any) -> None:
    reader = read(case.path)
    page = reader.page
    worker = case.answers.worker_ids[4]
    page.get_by_label("Search workers").fill("constant")
    page.locator("#workers tbody tr").first.click()
    assert page.locator("dialog h2").inner_text() == f"Worker {worker}"
    evidence = next(f.evidence for f in diagnose(case.answers, case.result).flags)
    assert evidence in page.locator("dialog .evidence").inner_text()
    assert page.locator("dialog svg .dot").count() == 30
    task = reader.row("details", 0)[0]
    i = case.answers.task_ids.tolist().index(task)
    residual = 40.0 - case.result.estimate[:, 0]
    theirs = case.answers.task[case.answers.worker == 4]
    assert abs(residual[i]) == pytest.approx(np.abs(residual[theirs]).max())
    assert float(reader.row("details", 0)[3]) == pytest.approx(residual[i], abs=0.06)
    page.locator("dialog tbody tr").first.click()
    assert page.locator("dialog h2").inner_text() == f"Task {task}"
    page.get_by_role("button", name="Back").click()
    assert page.locator("dialog h2").inner_text() == f"Worker {worker}"
    page.get_by_role("button", name="Close").click()
    assert page.locator("dialog").is_hidden()


def test_pictures_tell_their_values_and_open_workers(case: Case, read: Any) -> None:
    page = read(case.path).page
    bars = page.locator("#pictures figure").nth(0).locator(".bar")
    bars.first.scroll_into_view_if_needed()
    page.wait_for_timeout(100)  # scrolling hides a tip
    told = 0
    for k in range(bars.count()):
        if float(bars.nth(k).get_attribute("height") or 0) > 3:
            bars.nth(k).hover()
            assert page.locator("#tip").is_visible()
            told += int(page.locator("#tip").inner_text().split("\n")[1].split()[0])
    assert 100 < told <= 120
    dot = page.locator("#pictures figure").nth(1).locator(".dot.flagged").first
    dot.scroll_into_view_if_needed()
    page.wait_for_timeout(100)
    dot.hover()
    name = page.locator("#tip").inner_text().split("\n")[0]
    dot.click()
    assert page.locator("dialog h2").inner_text() == f"Worker {name}"


def test_it_works_with_the_keyboard_alone(case: Case, read: Any) -> None:
    reader = read(case.path)
    page = reader.page
    focused = "document.activeElement.innerText"
    page.keyboard.press("Tab")
    assert page.evaluate(focused) == "Skip to the tasks"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type("t1")
    assert all("t1" in task for task in reader.column("tasks", 1))
    page.keyboard.press("Tab")
    assert page.evaluate(focused) == "Save as CSV"
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert page.locator("#tasks th").first.get_attribute("aria-sort") == "ascending"
    page.locator("#tasks tbody a").first.focus()
    page.keyboard.press("ArrowDown")
    second = reader.row("tasks", 1)[0]
    assert page.evaluate(focused) == second
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) != "none"
    page.keyboard.press("Enter")
    assert page.locator("dialog h2").inner_text() == f"Task {second}"
    page.keyboard.press("Escape")
    assert page.locator("dialog").is_hidden()
    assert page.evaluate(focused) == second


def sideways(page: Page) -> bool:
    wide = "[...document.querySelectorAll('html, dialog[open]')].map(e => e.scrollWidth)"
    return bool(max(page.evaluate(wide)) > page.evaluate("innerWidth"))


def test_it_fits_a_phone(case: Case, boxes: Path, read: Any) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}
    for path in (case.path, boxes):
        page = read(path, **phone).page
        assert not sideways(page)
        page.locator("#tasks tbody tr").first.tap()
        assert page.locator("dialog").is_visible()
        assert not sideways(page)
        page.get_by_role("button", name="Close").tap()
        page.locator("#workers tbody tr").first.tap()
        assert not sideways(page)


def test_it_is_dark_where_the_reader_likes_it_dark_and_paper_on_paper(
    case: Case, read: Any
) -> None:
    light = "getComputedStyle(document.body).backgroundColor"
    page = read(case.path, color_scheme="dark").page
    dark = page.evaluate(light)
    assert max(int(part) for part in dark[4:-1].split(",")) < 60
    assert read(case.path).page.evaluate(light) == "rgb(255, 255, 255)"
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(light) == "rgb(255, 255, 255)"
    assert page.locator("nav").is_hidden()
    assert page.locator("#tasks .tools").is_hidden()
    assert page.pdf().startswith(b"%PDF")


def test_boxes_are_drawn_in_the_image(boxes: Path, read: Any) -> None:
    reader = read(boxes)
    reader.page.locator("#tasks tbody tr").first.click()
    drawn = reader.page.locator("dialog figure").first
    assert drawn.locator("rect.outline").count() == 4
    assert drawn.locator("rect.estimate").count() == 1
    assert drawn.locator("rect.truth").count() == 1
    assert reader.page.locator("dialog figure").count() == 5


def test_hostile_ids_are_text_and_nothing_else(read: Any, tmp_path: Path) -> None:
    answers = hostile_answers()
    result = replace(Average().fit(answers), notes=HOSTILE[:5])
    reader = read(write_report(answers, result, tmp_path / "r.html", title=HOSTILE[1]))
    page = reader.page
    assert sorted(reader.column("tasks", 1)) == sorted(HOSTILE)
    for k in range(len(HOSTILE)):
        page.locator("#tasks tbody tr").nth(k).click()
        page.locator("dialog svg .dot").first.hover()
        page.locator("dialog tbody tr").nth(k).click()
        page.locator("dialog svg .dot").first.hover()
        page.keyboard.press("Escape")
    page.get_by_label("Search tasks").fill("<script>")
    assert len(reader.column("tasks", 1)) == 2
    assert page.evaluate("window.hit") is None
    assert page.locator("img").count() == 0


ODD: dict[str, dict[str, Any]] = {
    "one answer": {"task": ["a"], "worker": ["u"], "value": [3.0]},
    "equal answers": {"value": [7.0] * 6},
    "known": {"value": np.arange(6.0), "gold": [1.0, 3.0]},
    "huge": {"value": 1e90 * np.arange(6.0)},
    "tiny": {"value": 1e-90 * np.arange(6.0)},
    "far away": {"value": 1.7e9 + np.arange(6.0) ** 2},
    "long": {"value": np.arange(60.0).reshape(6, 10)},
}


@pytest.mark.filterwarnings("ignore::voxpop.DataWarning")
@pytest.mark.filterwarnings("ignore::voxpop.ConvergenceWarning")
@pytest.mark.parametrize("kind", ODD)
def test_odd_answers_are_shown_without_complaint(kind: str, read: Any, tmp_path: Path) -> None:
    """A wrong number in a picture is a complaint of the browser."""
    usual = {"task": list("aaabbb"), "worker": list("uvwuvw")}
    answers = Answers.from_arrays(**(usual | ODD[kind]))
    estimator = Average() if kind in ("equal answers", "long") else BI(max_iter=20, tol=1e-3)
    page = read(write_report(answers, estimator.fit(answers), tmp_path / "r.html")).page
    for section in ("tasks", "workers"):
        page.locator(f"#{section} tbody tr").first.click()
        assert "NaN" not in page.locator("dialog").inner_text()
        page.keyboard.press("Escape")
    assert "NaN" not in page.locator("body").inner_text()
