"""Who may do what: every endpoint of the OpenAPI document with every wrong token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from tests.serve_api import House, house_on
from tests.test_serve_api import is_problem

# Whoever comes here has no token yet. Everything else must ask for one: add nothing lightly.
OPEN = {
    ("POST", "/api/v1/c/{slug}/enter"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
}
# What a request must hold so that only the token can be wrong with it.
BODIES: dict[tuple[str, str], Any] = {
    ("PUT", "/offers/{offer}/answer"): {"value": [4]},
    ("PUT", "/offers/{offer}/edit"): {"value": [4]},
    ("POST", "/offers/{offer}/skip"): {},
    ("POST", "/offers/{offer}/report"): {"text": "blurred"},
    ("POST", "/campaigns"): {"title": "x", "question": {"kind": "number", "text": "?"}},
    ("PATCH", "/campaigns/{slug}"): {"title": "other"},
    ("POST", "/campaigns/{slug}/tasks"): [{"name": "added"}],
    ("POST", "/campaigns/{slug}/tasks/withdraw"): {"names": ["t0"]},
    ("POST", "/campaigns/{slug}/gold"): {"gold": {"t0": [4]}},
    ("POST", "/campaigns/{slug}/answers"): [{"task": "t0", "worker": "ann", "value": [4]}],
    ("POST", "/campaigns/{slug}/links"): {},
    ("PATCH", "/campaigns/{slug}/workers/{worker}"): {"state": "banned"},
    ("POST", "/campaigns/{slug}/label-studio/reconcile"): {},
    ("POST", "/campaigns/{slug}/credits"): {"answers": [], "state": "approved"},
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    path: Path = tmp_path_factory.mktemp("access") / "ages.db"
    with house_on(str(path)) as found:
        yield found


@pytest.fixture(scope="module")
def slugs(site: House) -> tuple[str, str]:
    return site.campaign(3), site.campaign(3)


@pytest.fixture(scope="module")
def offer(site: House, slugs: tuple[str, str]) -> str:
    """An open offer of a worker of the first campaign."""
    return str(site.next(site.worker(slugs[0]))["offer"]["id"])


def operations(site: House) -> list[tuple[str, str, set[str]]]:
    """Method, path and the kinds of tokens that open it, of every endpoint."""
    found = []
    for path, methods in site.app.openapi()["paths"].items():
        for method, operation in methods.items():
            schemes = {name for one in operation.get("security", []) for name in one}
            found.append((method.upper(), path, schemes))
    return found


def send(site: House, method: str, path: str, slug: str, offer: str, token: str | None) -> Any:
    body = BODIES.get((method, path.removeprefix("/api/v1")))
    assert (
        body is not None or "requestBody" not in site.app.openapi()["paths"][path][method.lower()]
    )
    filled = path.format(slug=slug, offer=offer, worker=1)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    query = {"task": "t0"} if path.endswith("explain") else {}
    content = {} if body is None else {"json": body}
    return site.client.request(method, filled, headers=headers, params=query, **content)


def test_every_endpoint_asks_for_a_token_or_is_on_the_list(site: House) -> None:
    found = operations(site)
    assert {(method, path) for method, path, schemes in found if not schemes} == OPEN
    assert len(found) > 25
    for _, path, schemes in found:
        assert schemes in (set(), {"worker"}, {"owner", "session"}), path
    # No page but those for people is left out of the document.
    listed = {path for _, path, _ in found}
    hidden = {route.path for route in site.app.routes if hasattr(route, "methods")} - listed  # type: ignore[attr-defined]
    pages = {"/", "/new", "/owner/{slug}", "/login", "/logout", "/c/{slug}", "/static/{path:path}"}
    # The secret is in the path: tests/test_serve_label_studio.py.
    studio = {f"/ls/{{token}}/{name}" for name in ("", "health", "setup", "predict", "webhook")}
    assert hidden - {"/api/v1/openapi.json"} <= pages | studio | {"/files/{signature}/{path:path}"}


def test_no_endpoint_opens_without_a_token_or_with_a_wrong_one(
    site: House, slugs: tuple[str, str], offer: str
) -> None:
    ours, _ = slugs
    expired = {
        "owner": site.link(ours, "owner", days=1),
        "worker": _expired_worker(site, ours),
    }
    site.clock.ahead += 2 * 86_400
    try:
        others = {"owner": site.worker(ours), "worker": site.owner}
        for method, path, schemes in operations(site):
            if not schemes:
                continue
            kind = "worker" if "worker" in schemes else "owner"
            for token in (None, "vpo_guessed", "x" * 5000, expired[kind]):
                reply = send(site, method, path, ours, offer, token)
                assert is_problem(reply, 401), (method, path, token)
                assert reply.headers["www-authenticate"] == "Bearer"
            wrong = send(site, method, path, ours, offer, others[kind])
            assert is_problem(wrong, 403, "wrong_scope"), (method, path)
            link = send(site, method, path, ours, offer, site.link(ours))
            assert is_problem(link, 403, "wrong_scope"), (method, path)
    finally:
        site.clock.ahead -= 2 * 86_400


def _expired_worker(site: House, slug: str) -> str:
    """A worker's token whose time is up in a day."""
    from sqlalchemy import update

    from voxpop.service.schema import token
    from voxpop.service.tokens import hash_token

    made = site.worker(slug)
    with site.service.database.begin() as connection:
        row = update(token).where(token.c.hash == hash_token(made))
        connection.execute(row.values(expires=site.clock() + 86_400))
    return made


def test_no_endpoint_opens_with_another_campaigns_token(
    site: House, slugs: tuple[str, str], offer: str
) -> None:
    ours, theirs = slugs
    owner, worker = site.link(theirs, "owner"), site.worker(theirs)
    before = site.ask("GET", f"/campaigns/{ours}").json()
    for method, path, schemes in operations(site):
        if "{slug}" in path and schemes:
            for slug in (ours, "there-is-none"):
                reply = send(site, method, path, slug, offer, owner)
                assert is_problem(reply, 403, "other_campaign"), (method, path)
        elif "{offer}" in path:
            reply = send(site, method, path, ours, offer, worker)
            assert is_problem(reply, 404), (method, path)
        elif path == "/api/v1/campaigns" and method == "GET":
            rows = send(site, method, path, ours, offer, owner).json()["rows"]
            assert [row["slug"] for row in rows] == [theirs]
        elif schemes == {"owner", "session"}:
            assert is_problem(send(site, method, path, ours, offer, owner), 403), path
    assert site.ask("GET", f"/campaigns/{ours}").json() == before
    assert site.ask("GET", f"/campaigns/{theirs}", token=owner).status_code == 200


def test_every_campaign_in_a_path_of_nobody_is_not_found(site: House) -> None:
    for method, path, schemes in operations(site):
        if "{slug}" in path and schemes:
            reply = send(site, method, path, "there-is-none", "x", site.owner)
            assert is_problem(reply, 404), (method, path)


def test_a_session_needs_its_csrf_token_for_changes(site: House, slugs: tuple[str, str]) -> None:
    from fastapi.testclient import TestClient

    browser = TestClient(site.app, raise_server_exceptions=False)
    path = f"/api/v1/campaigns/{slugs[0]}"
    assert browser.get("/").status_code == 401
    assert browser.get("/login?token=vpo_no").status_code == 403
    login = browser.get(f"/login?token={site.owner}")
    cookie = login.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert site.owner not in cookie
    assert login.headers["refresh"] == "0; url=/"
    home = browser.get("/")
    assert home.status_code == 200
    assert browser.get(path).status_code == 200
    assert is_problem(browser.patch(path, json={"title": "Trees"}), 403, "bad_csrf")
    wrong = browser.patch(path, json={"title": "Trees"}, headers={"X-CSRF-Token": "0" * 64})
    assert is_problem(wrong, 403, "bad_csrf")
    session = site.service.sessions.read(browser.cookies.get(site.service.sessions.cookie))
    assert session.csrf in home.text
    headers = {"X-CSRF-Token": session.csrf}
    assert browser.patch(path, json={"title": "Trees"}, headers=headers).status_code == 200
    # Another session's is none of ours.
    other = TestClient(site.app)
    other.get(f"/login?token={site.owner}")
    assert is_problem(other.patch(path, json={"title": "T"}, headers=headers), 403, "bad_csrf")
    assert browser.post("/logout").status_code == 403
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    left = browser.post("/logout", content=f"csrf={session.csrf}", headers=form)
    assert left.status_code == 401  # after the redirect to the welcome page
    assert browser.get("/").status_code == 401


def test_an_altered_old_or_revoked_session_is_none(site: House, slugs: tuple[str, str]) -> None:
    from fastapi.responses import Response
    from sqlalchemy import delete

    from voxpop.service.schema import token as tokens
    from voxpop.service.tokens import hash_token

    token = site.link(slugs[0], "owner")
    made = Response()
    site.service.sessions.start(made, hash_token(token))
    cookie = made.headers["set-cookie"].partition("=")[2].partition(";")[0]
    assert site.service.sessions.read(cookie) is not None
    payload, stamp, signature = cookie.rsplit(".", 2)
    for altered in (f"{payload}x.{stamp}.{signature}", f"{payload}.{stamp}.x", "", "a.b.c", None):
        assert site.service.sessions.read(altered) is None
    site.client.cookies.set(site.service.sessions.cookie, cookie)
    try:
        path = f"/api/v1/campaigns/{slugs[0]}"
        assert site.client.get(path).status_code == 200
        with site.service.database.begin() as connection:
            gone = delete(tokens).where(tokens.c.hash == hash_token(token))
            assert connection.execute(gone).rowcount == 1
        site.service.doors.forget(hash_token(token))
        assert is_problem(site.client.get(path), 401)
    finally:
        site.client.cookies.clear()


def test_tokens_are_kept_as_hashes_only(site: House, slugs: tuple[str, str]) -> None:
    made = [site.owner, site.worker(slugs[0]), site.link(slugs[0])]
    site.service.database.engine.dispose()
    held = b"".join(
        path.read_bytes() for path in Path(site.url).parent.glob("ages.db*") if path.is_file()
    )
    for token in made:
        assert token.encode() not in held
        assert token.partition("_")[2].encode() not in held
