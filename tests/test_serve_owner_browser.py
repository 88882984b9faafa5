"""What an owner does on the dashboard, in a real browser: links of platforms, and what is left."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chromium import browser
from tests.serve_site import Site
from tests.test_serve_browser import SUMMARY, owner, site, visit

pytestmark = pytest.mark.slow
__all__ = ["browser", "owner", "site", "visit"]


def test_a_link_for_prolific_comes_with_its_codes(site: Site, visit: Any, owner: Any) -> None:
    """Made and used with nothing but the dashboard: the worker leaves with a code of the study."""
    slug = site.campaign("number", 1)
    page = owner(f"/owner/{slug}").page
    page.get_by_role("button", name="for Prolific").click()
    page.get_by_role("button", name="Make the link").click()
    page.get_by_text("Give the code for “Completed”").wait_for()
    page.get_by_label("Completed").fill(" C1A2 ")
    page.get_by_label("Nothing left to do").fill("N3B4")
    page.get_by_role("button", name="Make the link").click()
    page.get_by_text("Enter it as the URL of your study").wait_for()
    assert page.get_by_text("Try it as a worker").count() == 0, "nobody's id is filled in"
    rules = site.ask("GET", f"/campaigns/{slug}")["rules"]
    assert rules["prolific"] == {"completed": "C1A2", "nothing_left": "N3B4"}
    link = page.get_by_label("Invite link").input_value()
    for name, told in (("PROLIFIC_PID", "p-1"), ("STUDY_ID", "s-1"), ("SESSION_ID", "v-1")):
        link = link.replace(f"{{{{%{name}%}}}}", told)
    worker = visit(link)
    worker.page.locator("input.number").fill("30")
    worker.send()
    back = worker.page.get_by_role("link", name="Finish on Prolific")
    assert (back.get_attribute("href") or "").endswith("submissions/complete?cc=C1A2")
    # The codes are there the next time.
    page.get_by_role("button", name="Make another link").click()
    page.get_by_role("button", name="for Prolific").click()
    assert page.get_by_label("Nothing left to do").input_value() == "N3B4"
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Make an invite link").wait_for()


@pytest.mark.parametrize(
    ("where", "host"),
    [("Real work", "www.mturk.com"), ("The sandbox", "workersandbox.mturk.com")],
)
def test_a_link_for_mturk_opens_its_frame(
    site: Site, visit: Any, owner: Any, where: str, host: str
) -> None:
    slug = site.campaign("number", 1)
    page = owner(f"/owner/{slug}").page
    page.get_by_role("button", name="for MTurk").click()
    page.get_by_role("button", name=where).click()
    page.get_by_text("ExternalQuestion").wait_for()
    link = page.get_by_label("Invite link").input_value()
    worker = visit(f"{link}&assignmentId=A-1&workerId=W-1&hitId=H-1")
    seen = worker.page.request.get(link).headers["content-security-policy"]
    assert f"https://{host.replace('www', 'worker')}" in seen.partition("frame-ancestors")[2]
    worker.page.locator("input.number").fill("30")
    worker.send()
    form = worker.page.locator(".ending form")
    assert form.get_attribute("action") == f"https://{host}/mturk/externalSubmit"


def test_when_every_task_is_done_no_answers_are_announced(site: Site, owner: Any) -> None:
    slug = site.campaign("number", 2, half_width=8)
    site.take(slug, [(f"task {k}", f"w{u}", [30 + u]) for k in range(2) for u in range(4)])
    done: dict[str, Any] = {"n_done": 2, "answers_to_finish": 0.0}
    done["next"] = {"n_answers": 100, "rmse_after": None, "tasks": 0}
    site.publish(slug, SUMMARY | done, {}, {})
    page = owner(f"/owner/{slug}").page
    told = page.locator(".tile.next").inner_text()
    assert "Every task has the answers" in told
    assert "is known after" not in told
    assert "no more answers are needed" in page.locator("#purse").inner_text()


def test_a_new_price_is_shown_however_late_the_reply_comes(site: Site, owner: Any) -> None:
    """The live summary may be there before the reply to the change."""
    slug = site.campaign("number", 3, budget=1000, price=5)
    page = owner(f"/owner/{slug}").page

    def late(route: Any) -> None:
        reply = route.fetch()
        page.wait_for_timeout(2500)
        route.fulfill(response=reply)

    page.route(lambda url: url.endswith(slug), late)
    page.get_by_text("Change the price or the budget").click()
    page.get_by_label("Price of an answer").fill("0.07")
    page.get_by_role("button", name="Change", exact=True).click()
    page.get_by_text("The price applies to tasks").wait_for()
    page.locator("#purse .price", has_text="€0.07").wait_for(timeout=5000)


def test_what_is_typed_at_once_is_kept(site: Site, owner: Any) -> None:
    """The form is filled when it is opened, not some time later."""
    slug = site.campaign("number", 3, budget=1000, price=5)
    page = owner(f"/owner/{slug}").page
    page.evaluate("""() => {
        document.querySelector("#terms").closest("details").querySelector("summary").click();
        document.querySelector("#terms").elements.price.value = "0.09";
    }""")
    page.wait_for_timeout(300)
    assert page.get_by_label("Price of an answer").input_value() == "0.09"
