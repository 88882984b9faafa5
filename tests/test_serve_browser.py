"""The pages of the service in a real browser: answer by mouse, finger and keys, and watch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from tests.chromium import browser
from tests.serve_site import PICTURE, QUESTIONS, Site, running

pytest.importorskip("fastapi", reason="the extra serve is not installed")
pytest.importorskip("jinja2", reason="the extra serve is not installed")

from sqlalchemy.exc import OperationalError

from voxpop.service.inference import run_inference
from voxpop.service.pages.render import words

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.slow
__all__ = ["browser"]
DESK: dict[str, Any] = {"viewport": {"width": 1200, "height": 850}}
PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 780}, "is_mobile": True, "has_touch": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running(tmp_path_factory.mktemp("site")) as found:
        yield found


@dataclass
class Visitor:
    """A page, what it must not do, and what it may complain about."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    expected: tuple[str, ...] = ()

    def start(self) -> None:
        self.page.get_by_role("button", name="Start").click()

    def send(self) -> None:
        self.page.get_by_role("button", name="Submit", exact=True).click()

    def settled(self) -> None:
        """Wait until the page has taken the answer."""
        self.page.wait_for_selector(".ending, .truth-panel, [aria-busy='false']")


@pytest.fixture
def visit(browser: Browser) -> Iterator[Any]:
    """Open a page; whatever happens in the test, it must not have complained."""
    visitors: list[Visitor] = []

    def opened(
        url: str, *, like: Visitor | None = None, clock: bool = False, **settings: Any
    ) -> Visitor:
        context = like.page.context if like else browser.new_context(**(DESK | settings))
        # A machine that does other work beside may take long for a page.
        context.set_default_timeout(30_000)
        page = context.new_page()
        if clock:
            page.clock.install()
        visitor = Visitor(page)
        visitors.append(visitor)
        told = visitor.complaints
        page.on(
            "console",
            lambda said: told.append(f"console: {said.text} {said.location.get('url', '')}"),
        )
        page.on("pageerror", lambda error: told.append(f"error: {error}"))
        page.on("dialog", lambda dialog: told.append(f"dialog: {dialog.message}"))
        page.on("request", lambda sent: visitor.sent.append(f"{sent.method} {sent.url}"))
        page.goto(url)
        return visitor

    yield opened
    for visitor in visitors:
        wrong = [
            line
            for line in visitor.complaints
            if not any(allowed in line for allowed in visitor.expected)
        ]
        visitor.page.context.close()
        assert wrong == []


@pytest.fixture
def owner(site: Site, visit: Any) -> Any:
    """Open a page as the owner, logged in by the link."""

    def opened(path: str, **settings: Any) -> Visitor:
        visitor: Visitor = visit(f"{site.url}/login?token={site.token}", **settings)
        visitor.page.wait_for_url(f"{site.url}/")
        visitor.page.wait_for_selector("html[data-ready]")
        if path != "/":
            visitor.page.goto(site.url + path)
            visitor.page.wait_for_selector("html[data-ready]")
        return visitor

    return opened


def fingers(page: Page, *steps: list[tuple[float, float]]) -> None:
    """Put fingers down at the first step, move them along the others, and lift them."""
    session = page.context.new_cdp_session(page)

    def touch(kind: str, at: list[tuple[float, float]]) -> None:
        points = [{"x": x, "y": y, "id": k} for k, (x, y) in enumerate(at)]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", steps[0])
    for step in steps[1:]:
        touch("touchMove", step)
    page.wait_for_timeout(80)  # a finger that rests does not fling
    touch("touchEnd", [])


def on_picture(page: Page, x: float, y: float) -> tuple[float, float]:
    """Where a pixel of the picture is on the screen."""
    box = page.locator(".view img").bounding_box()
    assert box is not None
    return box["x"] + x * box["width"] / 640, box["y"] + y * box["height"] / 420


# Each kind in three ways: what is done, and what the answer then is.


def by_mouse(page: Page, kind: str) -> list[float]:
    if kind == "number":
        page.locator("input.number").fill("38")
        return [38]
    if kind == "slider":
        return [_along(page.locator(".slider"), 0.7, page)]
    if kind == "rating":
        page.locator(".choice").nth(4).click()
        return [5]
    page.wait_for_selector(".stage.ready")
    if kind == "point":
        page.mouse.click(*on_picture(page, 200, 100))
        return [200, 100]
    page.mouse.move(*on_picture(page, 250, 200))
    page.mouse.down()
    page.mouse.move(*on_picture(page, 300, 240))
    page.mouse.move(*on_picture(page, 430, 290))
    page.mouse.up()
    return [250, 200, 180, 90]


def by_touch(page: Page, kind: str) -> list[float]:
    if kind == "number":
        page.locator("input.number").tap()
        page.keyboard.type("38")
        return [38]
    if kind == "slider":
        box = page.locator(".slider").bounding_box()
        assert box is not None
        y = box["y"] + box["height"] / 2
        ends = (box["x"] + share * box["width"] for share in (0.2, 0.5))
        fingers(page, *([(x, y)] for x in ends))
        return [50]
    if kind == "rating":
        page.locator(".choice").nth(4).tap()
        return [5]
    page.wait_for_selector(".stage.ready")
    page.locator(".view").scroll_into_view_if_needed()
    if kind == "point":
        page.touchscreen.tap(*on_picture(page, 200, 100))
        return [200, 100]
    fingers(
        page,
        [on_picture(page, 250, 200)],
        [on_picture(page, 300, 240)],
        [on_picture(page, 430, 290)],
    )
    return [250, 200, 180, 90]


def by_keys(page: Page, kind: str) -> list[float]:
    """Type only: the page has put the focus where the answer goes."""
    press = page.keyboard.press
    if kind == "number":
        page.keyboard.type("38")
        return [38]
    if kind == "slider":
        for key in ("ArrowRight", "ArrowRight", "PageUp", "ArrowLeft"):
            press(key)
        return [10]
    if kind == "rating":
        press("5")
        return [5]
    page.wait_for_selector(".stage.ready")
    if kind == "point":
        for key in ("ArrowRight", "ArrowRight", "Shift+ArrowDown"):
            press(key)
        return [321, 220]
    for key in ("ArrowRight", "ArrowRight", "Shift+ArrowDown", "Control+ArrowRight"):
        press(key)
    return [161, 115, 321, 210]


def _along(track: Locator, share: float, page: Page) -> float:
    box = track.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
    return 100 * share


@pytest.mark.parametrize("kind", QUESTIONS)
@pytest.mark.parametrize("way", ["mouse", "touch", "keys"])
def test_every_kind_is_answered(kind: str, way: str, site: Site, visit: Any) -> None:
    slug = site.campaign(kind, 1)
    visitor = visit(site.invite(slug), **(PHONE if way == "touch" else {}))
    page = visitor.page
    page.wait_for_selector("form.answer")
    if kind == "slider":
        assert page.locator(".thumb").is_hidden(), "a preset thumb pulls answers to itself"
    wanted = {"mouse": by_mouse, "touch": by_touch, "keys": by_keys}[way](page, kind)
    if way == "keys":
        page.keyboard.press("Enter")
    elif way == "touch":
        page.get_by_role("button", name="Submit", exact=True).tap()
    else:
        visitor.send()
    page.wait_for_selector(".ending.done")
    (answer,) = site.answers(slug)
    assert answer["value"] == pytest.approx(wanted, abs=1.01 if len(wanted) > 1 else 0.51)
    if way == "keys":
        assert answer["value"] == wanted
    assert answer["counts"]


def test_marks_are_moved_resized_cleared_and_typed(site: Site, visit: Any) -> None:
    slug = site.campaign("box", 1)
    page = visit(site.invite(slug)).page
    by_mouse(page, "box")
    fields = page.locator(".coordinate input")
    before = [float(fields.nth(k).input_value()) for k in range(4)]
    page.mouse.move(*on_picture(page, 340, 245))  # inside: it moves
    page.mouse.down()
    page.mouse.move(*on_picture(page, 380, 265), steps=3)
    page.mouse.up()
    moved = [float(fields.nth(k).input_value()) for k in range(4)]
    assert moved == pytest.approx([before[0] + 40, before[1] + 20, *before[2:]], abs=1.5)
    page.mouse.move(*on_picture(page, moved[0] + moved[2], moved[1] + moved[3]))  # a corner
    page.mouse.down()
    page.mouse.move(*on_picture(page, 600, 400), steps=3)
    page.mouse.up()
    assert float(fields.nth(2).input_value()) == pytest.approx(600 - moved[0], abs=2)
    page.keyboard.press("Delete")
    assert fields.first.input_value() == ""
    for field_, text in zip(fields.all(), ("10", "20", "30.5", "40"), strict=True):
        field_.fill(text)
    fields.first.press("ArrowUp")
    fields.first.press("Enter")
    page.wait_for_selector(".ending.done")
    assert site.answers(slug)[0]["value"] == [11, 20, 30.5, 40]


def test_pictures_zoom_by_wheel_fingers_and_keys(site: Site, visit: Any) -> None:
    slug = site.campaign("point", 1)
    link = site.invite(slug)
    page = visit(link).page
    page.wait_for_selector(".stage.ready")

    def width(of: Page) -> float:
        box = of.locator(".view img").bounding_box()
        assert box is not None
        return box["width"]

    whole = width(page)
    page.mouse.move(*on_picture(page, 100, 100))
    page.mouse.wheel(0, -500)
    page.wait_for_function(
        "w => document.querySelector('.view img').getBoundingClientRect().width > 1.8 * w",
        arg=whole,
    )
    assert on_picture(page, 100, 100) == pytest.approx(on_picture(page, 100, 100))
    page.mouse.click(*on_picture(page, 110, 105))  # what is clicked is a pixel of the picture
    at = [float(one.input_value()) for one in page.locator(".coordinate input").all()]
    assert at == pytest.approx([110, 105], abs=1)
    page.keyboard.press("0")
    assert width(page) == pytest.approx(whole)
    page.keyboard.press("+")
    assert width(page) > 1.2 * whole
    phone = visit(link, **PHONE).page
    phone.wait_for_selector(".stage.ready")
    small, (x, y) = width(phone), on_picture(phone, 320, 210)
    fingers(
        phone, [(x - 20, y), (x + 20, y)], [(x - 40, y), (x + 40, y)], [(x - 60, y), (x + 60, y)]
    )
    assert width(phone) == pytest.approx(3 * small, rel=0.1)
    assert phone.locator(".coordinate input").first.input_value() == "", "a pinch sets no point"


ADVICE = "Look *well*.\n\n- Take time.\n\n[More](https://example.org/help)"


def test_practice_shows_the_truth_and_does_not_count(site: Site, visit: Any) -> None:
    tasks: list[dict[str, Any]] = [
        {"name": "p", "content": {"text": "Practice."}, "kind": "practice", "truth": [42]},
        {"name": "t", "content": {"text": "Real."}},
    ]
    slug = site.campaign("number", tasks, instructions=ADVICE, practice=1)
    visitor = visit(site.invite(slug))
    page = visitor.page
    assert page.locator(".prose li").inner_text() == "Take time."
    link = page.get_by_role("link", name="More")
    assert link.get_attribute("href") == "https://example.org/help"
    assert link.get_attribute("rel") == "noreferrer noopener"
    visitor.start()
    page.locator("input.number").fill("40")
    visitor.send()
    assert page.locator(".truth-line").inner_text() == "The right answer is 42 years."
    page.get_by_role("button", name="Continue").click()
    page.get_by_text("Real.").wait_for()
    page.get_by_role("button", name="Instructions").click()
    assert page.locator("dialog em").inner_text() == "well"
    assert [answer["value"] for answer in site.answers(slug) if answer["counts"]] == []


WRITTEN = {
    "de": {"38,5": 38.5, "38.5": 38.5, "1.234,5": 1234.5, "1.234": 1234, "0.125": 0.125},
    "en": {"1,234": 1234, "38,5": 38.5, "1,234.5": 1234.5, "\u22122e1": -20, "1'000": 1000},
    "fr": {"1 234,5": 1234.5, "1\u202f234": 1234, ",5": 0.5, "1,234": 1.234},
}
UNREADABLE = ("", "-", "1,2,3", "1.2,3.4", "12a", "1e9999", "0x10", "1.23,4,5")


@pytest.mark.parametrize("language", WRITTEN)
def test_numbers_are_read_as_they_are_written(language: str, site: Site, visit: Any) -> None:
    question = {"kind": "number", "text": "How much?"}
    page = visit(site.invite(site.campaign(question, 2, language=language))).page
    page.wait_for_selector("input.number")
    assert page.locator("html").get_attribute("lang") == language
    read = """async (texts) => {
      const { parseNumber } = await import('/static/words.js');
      return texts.map((text) => parseNumber(text));
    }"""
    typed = WRITTEN[language]
    assert page.evaluate(read, list(typed)) == list(typed.values())
    assert page.evaluate(read, list(UNREADABLE)) == [None] * len(UNREADABLE)
    page.locator("input.number").fill("1234,5")
    assert page.locator(".echo").inner_text().endswith("1234.5" if language == "en" else "1234,5")


def test_wrong_numbers_are_named_in_the_language(site: Site, visit: Any) -> None:
    slug = site.campaign("number", 1, language="de")
    page = visit(site.invite(slug)).page
    page.wait_for_selector("input.number")
    german = words("de")
    send = page.get_by_role("button", name=german["submit"])
    unreadable = german["not_a_number"].format(example="12,5")
    for text, told in (
        ("", german["need_value"]),
        ("forty", unreadable),
        ("1.2.3", unreadable),
        ("500", german["between"].format(low=0, high=120)),
    ):
        page.locator("input.number").fill(text)
        send.click()
        assert page.locator(".wrong").inner_text() == told
    assert site.answers(slug) == []


def test_a_reload_keeps_the_task_and_the_unsent_answer(site: Site, visit: Any) -> None:
    tasks = [{"name": f"t{k}", "content": {"text": f"Portrait {k}."}} for k in range(20)]
    page = visit(site.invite(site.campaign("number", tasks))).page
    shown = page.locator(".task-text").inner_text()
    page.locator("input.number").fill("41,5")
    page.reload()
    page.wait_for_selector("input.number")
    assert page.locator(".task-text").inner_text() == shown
    assert page.locator("input.number").input_value() == "41,5"


def test_offline_keeps_the_answer_and_sends_it_later(site: Site, visit: Any) -> None:
    slug = site.campaign("number", 3)
    visitor = visit(site.invite(slug))
    page = visitor.page
    page.locator("input.number").fill("30")
    page.context.set_offline(True)
    visitor.send()
    page.get_by_text("You are offline. Your answer is kept on this device").wait_for()
    assert site.answers(slug) == []
    page.context.set_offline(False)
    page.locator("input.number:not([readonly])").wait_for()
    assert page.locator("input.number").input_value() == ""
    assert [answer["value"] for answer in site.answers(slug)] == [[30]]
    # And where the page is closed before: whoever comes back has not lost it.
    page.locator("input.number").fill("31")
    page.context.set_offline(True)
    visitor.send()
    page.get_by_text("You are offline").wait_for()
    page.close()
    visitor.page.context.set_offline(False)
    again = visit(f"{site.url}/c/{slug}", like=visitor)
    again.page.get_by_text("Your answer has been sent").wait_for()
    assert sorted(answer["value"] for answer in site.answers(slug)) == [[30], [31]]


def test_an_outage_of_the_database_is_waited_out(
    site: Site, visit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    slug = site.campaign("number", 2)
    visitor = visit(site.invite(slug))
    visitor.expected = ("503",)
    page = visitor.page
    page.locator("input.number").fill("30")
    service = site.app.state.service
    with monkeypatch.context() as away:

        def gone(*_: Any) -> Any:
            raise OperationalError("SELECT", None, OSError("server closed the connection"))

        away.setattr(service.database, "connect", gone)
        away.setattr(service.database, "begin", gone)
        service.doors._known.clear()  # the token has to be read
        visitor.send()
        page.get_by_text("The server is busy").wait_for()
    page.locator("input.number:not([readonly])").wait_for()
    assert page.locator("input.number").input_value() == ""
    assert [answer["value"] for answer in site.answers(slug)] == [[30]]


def test_a_double_click_sends_once(site: Site, visit: Any) -> None:
    slug = site.campaign("number", 5)
    visitor = visit(site.invite(slug))
    visitor.page.locator("input.number").fill("30")
    button = visitor.page.get_by_role("button", name="Submit", exact=True)
    button.dblclick(no_wait_after=True)
    visitor.page.get_by_text("1 answer").wait_for()
    assert len([sent for sent in visitor.sent if sent.startswith("PUT")]) == 1
    assert len(site.answers(slug)) == 1


def test_two_tabs_are_told_apart(site: Site, visit: Any) -> None:
    slug = site.campaign("number", 5)
    first = visit(site.invite(slug))
    first.page.wait_for_selector("input.number")
    second = visit(f"{site.url}/c/{slug}", like=first)
    second.page.wait_for_selector("input.number")
    first.page.locator("input.number").fill("30")
    first.send()
    first.page.get_by_text("1 answer").wait_for()
    second.page.locator("input.number").fill("60")
    second.expected = ("409",)  # Chromium writes every refused request to the console
    second.send()
    second.page.get_by_text("Answered in another tab").wait_for()
    assert "The first answer stands" in second.page.locator(".conflict").inner_text()
    assert [answer["value"] for answer in site.answers(slug)] == [[30]]
    second.page.get_by_role("button", name="Continue").click()
    second.page.locator("input.number:not([readonly])").fill("61")
    second.send()
    second.page.get_by_text("2 answers").wait_for()


def test_a_task_is_skipped_or_reported(site: Site, visit: Any, owner: Any) -> None:
    tasks = [{"name": f"t{k}", "content": {"text": f"Portrait {k}."}} for k in range(3)]
    slug = site.campaign("number", tasks)
    page = visit(site.invite(slug)).page
    seen = [page.locator(".task-text").inner_text()]
    page.get_by_role("button", name="Skip").click()
    page.get_by_role("button", name="I cannot tell").click()
    page.wait_for_function(
        "t => document.querySelector('.task-text')?.innerText !== t", arg=seen[0]
    )
    seen.append(page.locator(".task-text").inner_text())
    page.get_by_role("button", name="Report a problem").click()
    page.get_by_role("textbox", name="What is wrong").fill("The picture is <b>upside down</b>.")
    page.get_by_role("button", name="Send the report").click()
    page.get_by_text("Your report has been sent").wait_for()
    seen.append(page.locator(".task-text").inner_text())
    assert len(set(seen)) == 3
    assert site.answers(slug) == []
    # And so it is.
    watching = owner(f"/owner/{slug}").page
    report = watching.locator("#report-list li")
    assert report.locator("blockquote").inner_text() == "The picture is <b>upside down</b>."
    report.get_by_role("button", name="Withdraw the task").click()
    report.locator(".small-state.withdrawn").wait_for()
    (row,) = site.ask("GET", f"/campaigns/{slug}/tasks?state=withdrawn")["rows"]
    assert row["name"] == report.locator("a.id").inner_text()


def test_the_last_answer_can_be_changed(site: Site, visit: Any) -> None:
    slug = site.campaign("number", 2)
    visitor = visit(site.invite(slug))
    page = visitor.page
    page.locator("input.number").fill("30")
    visitor.send()
    page.get_by_role("button", name="Change my last answer").click()
    assert page.locator("input.number").input_value() == "30"
    page.locator("input.number").fill("33")
    page.get_by_role("button", name="Save the change").click()
    page.get_by_text("Changed.").wait_for()
    assert [answer["value"] for answer in site.answers(slug)] == [[33]]
    assert page.locator("input.number").input_value() == ""


def test_the_next_picture_is_there_before_its_task(site: Site, visit: Any) -> None:
    """Pictures by relative paths come from the service's folder, the next one ahead of time."""
    for name in ("first.png", "second.png"):
        Image.new("RGB", (64, 40), "#c93a2e").save(site.folder / name)
    tasks: list[dict[str, Any]] = [
        {"name": "p", "content": {"image": "first.png"}, "kind": "practice", "truth": [5, 5]},
        {"name": "t", "content": {"image": "second.png"}},
    ]
    visitor = visit(site.invite(site.campaign("point", tasks, practice=1)))
    visitor.start()
    by_mouse(visitor.page, "point")
    assert not any("second.png" in sent for sent in visitor.sent)
    visitor.send()
    visitor.page.wait_for_selector(".truth-panel")
    assert any("second.png" in sent for sent in visitor.sent)
    visitor.page.get_by_role("button", name="Continue").click()
    visitor.page.wait_for_selector(".stage.ready")
    assert visitor.page.locator(".view img").evaluate("image => image.naturalWidth") == 64


def test_a_lease_is_kept_while_someone_works(site: Site, visit: Any) -> None:
    visitor = visit(site.invite(site.campaign("number", 3, lease_seconds=300)), clock=True)
    page = visitor.page
    page.locator("input.number").fill("3")

    def extended() -> int:
        return sum(sent.endswith("/extend") for sent in visitor.sent)

    page.keyboard.press("5")
    with page.expect_response("**/extend"):
        page.clock.run_for(130_000)
    before = extended()
    page.clock.run_for(400_000)  # nobody is there: it may go
    assert extended() == before


def test_prolific_and_mturk_workers_get_back(site: Site, visit: Any) -> None:
    slug = site.campaign("number", 1, prolific={"completed": "C0DE"})
    link = site.invite(slug).partition("?")[0]
    token = site.invite(slug).partition("invite=")[2]
    visitor = visit(f"{link}?invite={token}&PROLIFIC_PID=p1&STUDY_ID=s&SESSION_ID=v1")
    visitor.page.locator("input.number").fill("30")
    visitor.send()
    back = visitor.page.get_by_role("link", name="Finish on Prolific")
    assert back.get_attribute("href") == "https://app.prolific.com/submissions/complete?cc=C0DE"
    assert visitor.page.locator(".code").inner_text() == "C0DE"
    slug = site.campaign("number", 1, mturk={"sandbox": True}, instructions="Say how old.")
    query = f"{site.invite(slug)}&hitId=h&turkSubmitTo=https://workersandbox.mturk.com"
    page = visit(f"{query}&assignmentId=ASSIGNMENT_ID_NOT_AVAILABLE").page
    page.get_by_text("Accept the HIT to begin").wait_for()
    assert page.get_by_role("button", name="Submit", exact=True).count() == 0
    visitor = visit(f"{query}&assignmentId=a1&workerId=w1")
    visitor.start()
    visitor.page.locator("input.number").fill("30")
    visitor.send()
    form = visitor.page.locator(".ending form")
    form.wait_for()
    assert form.get_attribute("action") == "https://workersandbox.mturk.com/mturk/externalSubmit"
    assert form.locator("input[name=assignmentId]").get_attribute("value") == "a1"


def test_a_link_that_opens_nothing_says_so(site: Site, visit: Any) -> None:
    slug = site.campaign("number", 1)
    visitor = visit(f"{site.url}/c/{slug}?invite=wrong")
    visitor.expected = ("403",)
    visitor.page.get_by_text("This link does not open the campaign").wait_for()
    site.ask("PATCH", f"/campaigns/{slug}", {"state": "paused"})
    page = visit(site.invite(slug)).page
    page.get_by_text("A short break").wait_for()


HOSTILE = (
    '<img src=x onerror=alert(1)><script>alert(2)</script> **b** [j](javascript:alert(3)) "&lt;'
)


def test_hostile_words_are_shown_as_words(site: Site, visit: Any, owner: Any) -> None:
    question = {
        "kind": "rating", "text": HOSTILE, "unit": "<i>u", "min": 1, "max": 3,
        "labels": ["<b>low", "<b>high"],
    }  # fmt: skip
    content = {"text": HOSTILE, "link": "javascript:alert(4)", "image": "javascript:alert(5)"}
    tasks = [{"name": "<b>name</b>", "content": content}]
    slug = site.campaign(question, tasks, title=HOSTILE, instructions=HOSTILE)
    visitor = visit(site.invite(slug))
    visitor.expected = ("404", "files")
    page = visitor.page
    visitor.start()
    page.wait_for_selector(".choices")
    assert page.locator(".question").inner_text() == HOSTILE
    shown = page.locator(".task-text").inner_text()
    assert "<img src=x onerror=alert(1)><script>alert(2)</script> b" in shown
    assert "[j](javascript:alert(3))" in shown
    assert page.locator("main script, main b, main i, main a, main img[src=x]").count() == 0
    page.locator(".choice").first.click()
    visitor.send()
    page.wait_for_selector(".ending")
    site.publish(slug, SUMMARY, {"<b>name</b>": "<i>why</i>"}, {"0": [HOSTILE]})
    watching = owner(f"/owner/{slug}")
    watching.expected = ("404", "files")
    assert watching.page.locator("#title").inner_text() == HOSTILE
    watching.page.get_by_role("link", name="<b>name</b>").click()
    watching.page.locator("dialog tbody tr").wait_for()
    assert watching.page.locator("main i, main u, dialog script, dialog img[src=x]").count() == 0


SUMMARY: dict[str, Any] = {
    "expected_rmse": 4.0, "even_rmse": 5.0, "ready": 2, "need_a_look": 1, "workers_to_talk_to": 1,
    "stop": "2 of 3 tasks meet the stop rule.", "coverage": "95 % intervals held 94 % of answers.",
    "model": "Workers differ in noise.", "next": {"n_answers": 100, "rmse_after": 3.0, "tasks": 3},
    "answers_to_finish": 12.0,
    "history": [[10, 0, 9.0, 9.0, 0.0], [20, 1, 6.0, 7.0, 0.4], [30, 2, 4.0, 5.0, 1.1]],
}  # fmt: skip


def busy(site: Site, kind: str = "number") -> str:
    """A campaign of three tasks with answers of four workers, one of whom stands out."""
    slug = site.campaign(kind, 3, price=10, budget=1000, half_width=8)
    values = {
        "number": lambda k, u: [30 + 10 * k + u],
        "box": lambda k, u: [100 + k, 90 + u, 50, 40],
    }
    given = [(f"task {k}", f"w{u}", values[kind](k, u)) for k in range(3) for u in range(4)]
    site.take(slug, given)
    site.publish(slug, SUMMARY, {"task 1": "two camps"}, {"2": ["constant"]})
    return slug


def test_the_dashboard_begins_with_the_decision(site: Site, owner: Any) -> None:
    slug = busy(site)
    page = owner(f"/owner/{slug}").page
    assert (
        page.locator("#headline").inner_text()
        == "2 tasks ready, 1 needs a look, 1 worker to talk to"
    )
    assert page.locator(".tile .figure").all_inner_texts() == ["2", "1", "1", "25 %"]
    assert "from 4.00 to 3.00" in page.locator(".tile.next").inner_text()
    assert page.locator("#pictures svg").count() == 2
    assert page.locator("#pictures").get_by_text("Dashed: as many answers").count() == 2
    assert "94 % of answers" in page.locator("#sentences").inner_text()
    assert "About 12 more answers" in page.locator("#purse").inner_text()
    names = page.locator("#task-list tbody td:first-child")
    names.first.wait_for()
    assert names.all_inner_texts()[0] == "task 1"
    page.locator("#task-list").get_by_role("button", name="Task").click()
    assert names.all_inner_texts() == ["task 0", "task 1", "task 2"]
    page.locator("#task-list").get_by_role("button", name="needs a look").click()
    assert names.all_inner_texts() == ["task 1"]
    names.first.click()
    page.locator("dialog .picture svg").first.wait_for()
    assert page.locator("dialog tbody tr").count() == 4
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="hidden")
    with page.expect_download() as saved:
        page.locator("#exports a").first.click()
    assert saved.value.suggested_filename == f"{slug}-answers.csv"
    text = saved.value.path().read_text()
    assert text.count("\n") == 13
    page.get_by_role("button", name="Make an invite link").click()
    link = page.get_by_label("Invite link").input_value()
    assert f"/c/{slug}?invite=" in link


def test_quarantine_is_one_click_and_undone_by_one(site: Site, owner: Any) -> None:
    slug = busy(site)
    page = owner(f"/owner/{slug}").page
    person = page.locator("#people li")
    name = person.locator("a").inner_text()

    def state() -> str:
        rows = site.ask("GET", f"/campaigns/{slug}/workers")["rows"]
        return str(next(row["state"] for row in rows if row["pseudonym"] == name))

    assert state() == "active", "nothing happens by itself"
    person.get_by_role("button", name="Quarantine").click()
    page.get_by_text("do not count any more").wait_for()
    assert state() == "quarantined"
    page.locator("#people li").wait_for(state="detached")
    page.locator("#worker-list").get_by_role("link", name=name).click()
    page.get_by_role("button", name="Count them again").click()
    page.locator("dialog .small-state.active").wait_for()
    assert state() == "active"


def test_the_dashboard_is_live(site: Site, visit: Any, owner: Any) -> None:
    slug = site.campaign("number", 3)
    page = owner(f"/owner/{slug}").page
    assert page.locator("#headline").inner_text() == "Ready for the first answer: invite workers."
    worker = visit(site.invite(slug))
    worker.page.locator("input.number").fill("30")
    worker.send()
    page.locator("#counts", has_text="1 answer").wait_for()
    page.get_by_role("button", name="Pause").click()
    page.locator(".pill.paused").wait_for()
    worker.page.locator("input.number:not([readonly])").fill("31")
    worker.send()
    worker.page.get_by_text("A short break").wait_for()
    page.get_by_role("button", name="Resume").click()
    page.locator(".pill.open").wait_for()


def test_links_are_revoked_and_terms_changed_on_the_dashboard(
    site: Site, visit: Any, owner: Any
) -> None:
    slug = site.campaign("number", 3, budget=1000, price=5)
    page = owner(f"/owner/{slug}").page
    page.get_by_role("button", name="Make an invite link").click()
    invite = page.get_by_label("Invite link").input_value()
    page.get_by_text("Links in use").click()
    page.locator("#link-list li", has_text="the one above").get_by_role("button").click()
    page.get_by_text("No link opens this campaign.").wait_for()
    page.get_by_role("button", name="Make an invite link").wait_for()
    stranger = visit(invite)
    stranger.expected = ("403",)
    stranger.page.get_by_text("This link does not open the campaign").wait_for()

    page.get_by_text("Change the price or the budget").click()
    price, budget = page.get_by_label("Price of an answer"), page.get_by_label("Budget")
    assert (price.input_value(), budget.input_value()) == ("0.05", "10")
    price.fill("lots")
    page.get_by_role("button", name="Change", exact=True).click()
    page.get_by_text("The price is an amount like 0.05, not lots.").wait_for()
    price.fill("0,07")
    budget.fill("")
    page.get_by_role("button", name="Change", exact=True).click()
    page.locator("#purse .price", has_text="€0.07").wait_for()
    page.locator("#purse .left", has_text="no limit").wait_for()
    made = site.ask("GET", f"/campaigns/{slug}")
    assert (made["rules"]["price"], made["budget"]) == (7, None)


@pytest.fixture
def inference(site: Site) -> Iterator[None]:
    """Inference beside the pages, as it is in real life."""
    stop = threading.Event()
    running = threading.Thread(target=run_inference, args=(str(site.folder / "site.db"), stop))
    running.start()
    yield
    stop.set()
    running.join(60)


@pytest.mark.usefixtures("inference")
def test_the_example_makes_a_campaign_that_asks(visit: Any, owner: Any) -> None:
    """The first minute, with inference beside it: at no stage does the page complain."""
    page = owner("/new").page
    page.get_by_role("button", name="Fill in the example").click()
    page.locator("#found", has_text="13 tasks").wait_for()
    page.locator("#preview .stage.ready").wait_for()
    page.get_by_role("button", name="Make the campaign").click()
    page.wait_for_url("**/owner/how-many-dots*")
    page.get_by_role("button", name="Make an invite link").click()
    worker = visit(page.get_by_label("Invite link").input_value())
    worker.start()
    for answer in ("24", "61"):  # practice
        worker.page.locator("input.number:not([readonly])").fill(answer)
        worker.send()
        worker.page.get_by_role("button", name="Continue").click()
    assert page.locator("#task-list").inner_text() == "Tasks appear here with their first answers."
    worker.page.locator("input.number:not([readonly])").fill("50")
    worker.send()
    page.locator("#counts", has_text="1 answer").wait_for()
    page.locator("#task-list tbody a").first.wait_for()
    assert "known after about two answers per task" in page.locator("#purse").inner_text()
    assert page.locator("#headline").inner_text() == "0 tasks ready, 0 need a look"


def test_campaigns_are_made_of_what_is_pasted(site: Site, owner: Any) -> None:
    page = owner("/new").page
    make = page.get_by_role("button", name="Make the campaign")
    make.click()
    assert page.locator("#wrong").inner_text() == "Give a title."
    page.get_by_label("Title").fill("Wörter & <b>mehr</b>")
    page.get_by_label("Question", exact=True).fill("How happy?")
    page.get_by_label("Slider: a place on a scale").check()
    page.locator("#preview .slider").wait_for()
    tasks = page.get_by_label("One per line")
    tasks.fill('name;text;kind;truth\na;"one; two";;\nb;three;gold;1,5\nc;four;silver;')
    page.locator("#found", has_text="Row 4: kind is real, gold or practice, not silver.").wait_for()
    tasks.fill('name;text;kind;truth\na;"one; two";;\nb;three;gold;1,5\nc;four;;')
    page.locator("#found", has_text="3 tasks (1 gold)").wait_for()
    page.get_by_label("Price of an answer").fill("0,12")
    make.click()
    page.wait_for_url("**/owner/*")
    slug = page.url.rpartition("/")[2]
    made = site.ask("GET", f"/campaigns/{slug}")
    assert (made["title"], made["state"]) == ("Wörter & <b>mehr</b>", "open")
    assert made["question"]["max"] == 100
    assert made["rules"]["price"] == 12
    rows = site.ask("GET", f"/campaigns/{slug}/tasks")["rows"]
    assert [(row["name"], row["content"], row["truth"]) for row in rows] == [
        ("a", {"text": "one; two"}, None),
        ("b", {"text": "three"}, [1.5]),
        ("c", {"text": "four"}, None),
    ]


def violations(page: Page) -> list[str]:
    """What axe finds against a page at desk and phone widths, light and dark, in words."""
    from axe_playwright_python.sync_playwright import Axe

    told = []
    before = page.viewport_size
    for size in (DESK, PHONE):
        page.set_viewport_size(size["viewport"])
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            found = Axe().run(page, options={"resultTypes": ["violations"]})
            for one in found.response["violations"]:
                look = f"{size['viewport']['width']} px, {scheme}: {one['id']}"
                told += [f"{look}: {node['html'][:120]}" for node in one["nodes"]]
    assert before is not None
    page.set_viewport_size(before)
    return told


STILL: dict[str, Any] = {"reduced_motion": "reduce"}


@pytest.mark.parametrize("kind", QUESTIONS)
def test_worker_pages_are_accessible(kind: str, site: Site, visit: Any) -> None:
    pytest.importorskip("axe_playwright_python")
    slug = site.campaign(kind, 1, instructions="Look **well**.", price=5)
    visitor = visit(site.invite(slug), **STILL)
    page = visitor.page
    page.wait_for_selector(".card-page")
    if kind == "rating":
        assert violations(page) == []
    visitor.start()
    page.wait_for_selector("form.answer")
    by_mouse(page, kind)
    assert violations(page) == []
    if kind != "rating":
        return
    page.get_by_role("button", name="Skip").click()
    assert violations(page) == []
    page.keyboard.press("Escape")
    visitor.send()
    page.wait_for_selector(".ending")
    assert violations(page) == []


def test_practice_and_mistakes_are_accessible(site: Site, visit: Any) -> None:
    pytest.importorskip("axe_playwright_python")
    for kind in ("number", "rating", "box"):
        truth = {"number": [42], "rating": [5], "box": [250, 200, 180, 90]}[kind]
        shown = {"content": {"image": PICTURE}}
        practice = {"name": "p", **shown, "kind": "practice", "truth": truth}
        slug = site.campaign(kind, [practice, {"name": "t", **shown}], practice=1)
        visitor = visit(site.invite(slug), **STILL, **PHONE)
        visitor.start()
        visitor.page.wait_for_selector("form.answer")
        if kind == "number":
            visitor.page.locator("input.number").fill("500")
            visitor.send()
            assert violations(visitor.page) == []
            visitor.page.locator("input.number").fill("50")
        else:
            by_touch(visitor.page, kind)
        visitor.send()
        visitor.page.wait_for_selector(".truth-panel")
        assert violations(visitor.page) == [], kind


@pytest.mark.parametrize("kind", ["number", "box"])
def test_owner_pages_are_accessible(kind: str, site: Site, visit: Any, owner: Any) -> None:
    pytest.importorskip("axe_playwright_python")
    slug = busy(site, kind)
    page = visit(site.invite(slug)).page
    page.get_by_role("button", name="Report a problem").click()
    page.get_by_role("textbox", name="What is wrong").fill("It is upside down.")
    page.get_by_role("button", name="Send the report").click()
    page.get_by_text("Your report has been sent").wait_for()
    watching = owner("/", **STILL)
    watching.expected = ("401", "404")  # Chromium writes the status of a page to the console
    page = watching.page
    assert violations(page) == []
    page.goto(f"{site.url}/new")
    page.wait_for_selector("html[data-ready]")
    assert violations(page) == []
    page.goto(f"{site.url}/owner/{slug}")
    page.locator("#worker-list tbody tr").first.wait_for()
    page.locator("#task-list tbody a").first.wait_for()
    page.locator("#report-list li").wait_for()
    page.get_by_role("button", name="Make an invite link").click()
    page.get_by_label("Invite link").wait_for()
    assert violations(page) == []
    page.locator("#task-list tbody a").first.click()
    page.locator("dialog tbody tr").first.wait_for()
    assert violations(page) == []
    page.goto(f"{site.url}/owner/none")
    assert violations(page) == []
    page.context.clear_cookies()
    page.goto(site.url)
    assert violations(page) == []


def test_pages_fit_a_phone(site: Site, visit: Any, owner: Any) -> None:
    """Nothing is wider than the screen but tables, which scroll by themselves."""
    slug = busy(site)
    page = owner(f"/owner/{slug}", **PHONE).page
    page.locator("#task-list tbody tr").first.wait_for()
    wide = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) <= 0
    page.goto(f"{site.url}/new")
    page.wait_for_selector("html[data-ready]")
    assert page.evaluate(wide) <= 0
    long = "W" * 180
    content = {"text": long, "image": PICTURE}
    slug = site.campaign("number", [{"name": "t", "content": content}], title=long)
    page = visit(site.invite(slug), **PHONE).page
    page.wait_for_selector("form.answer")
    assert page.evaluate(wide) <= 0
