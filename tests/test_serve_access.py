"""Who may do what: every endpoint of the OpenAPI document with every wrong token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from tests.serve_api import House, house_on
from tests.test_serve_api import is_problem
from voxpop.service.tokens import hash_token

# Whoever comes here has no token yet. Everything else must ask for one: add nothing lightly.
OPEN = {
    ("POST", "/api/v1/c/{slug}/enter"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
}
# Pages, which the document leaves out: these open with an owner's session,
OWNERS_PAGES = {"/", "/new", "/owner/{slug}"}
# these to everybody, who finds nothing behind them without a token,
PEOPLES_PAGES = {"/login", "/logout", "/c/{slug}", "/static/{path:path}"}
# and these by what is in the path (tests/test_serve_label_studio.py, tests/test_serve_guard.py).
SECRET_IN_PATH = {
    *(f"/ls/{{token}}/{name}" for name in ("", "health", "setup", "predict", "webhook")),
    "/files/{signature}/{path:path}",
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
    filled = path.format(slug=slug, offer=offer, worker=1, link="0" * 64)
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
    hidden = set(paths_of(site.app.routes)) - listed
    assert hidden == {"/api/v1/openapi.json", *OWNERS_PAGES, *PEOPLES_PAGES, *SECRET_IN_PATH}


def paths_of(routes: Any, prefix: str = "") -> Iterator[str]:
    """The paths of all routes, those of routers and mounted apps included."""
    for route in routes:
        inner = getattr(route, "original_router", None)
        if inner is not None:  # a router keeps its prefix in the paths of its routes
            yield from paths_of(inner.routes, prefix)
        elif getattr(route, "methods", None) is None:
            yield from paths_of(route.routes, prefix + route.path)
        else:
            yield prefix + route.path


def test_no_owners_page_opens_without_a_session(site: House, slugs: tuple[str, str]) -> None:
    from fastapi.testclient import TestClient

    def read(path: str, cookie: str | None, token: str | None = None) -> Any:
        visitor = TestClient(site.app, raise_server_exceptions=False)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if cookie:
            headers["Cookie"] = f"{site.service.sessions.cookie}={cookie}"
        return visitor.get(path.format(slug=slugs[0]), headers=headers)

    def session(token: str) -> str:
        visitor = TestClient(site.app)
        visitor.get(f"/login?token={token}")
        return str(visitor.cookies[site.service.sessions.cookie])

    theirs, brief = session(site.link(slugs[1], "owner")), site.link(slugs[0], "owner", days=1)
    expired = session(brief)
    worker = TestClient(site.app)
    assert worker.get(f"/login?token={site.worker(slugs[0])}").status_code == 403
    assert not worker.cookies
    site.clock.ahead += 2 * 86_400
    try:
        for path in OWNERS_PAGES:
            assert read(path, session(site.owner)).status_code == 200, path
            for cookie in (None, "x" * 5000, expired):
                assert read(path, cookie).status_code == 401, path
            # A page is for browsers: a token in a header opens none.
            assert read(path, None, site.owner).status_code == 401, path
        assert read("/owner/{slug}", theirs).status_code == 404
    finally:
        site.clock.ahead -= 2 * 86_400


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


def test_a_revoked_link_opens_nothing(site: House, slugs: tuple[str, str]) -> None:
    ours, theirs = (f"/campaigns/{slug}/links" for slug in slugs)
    before = {row["id"] for row in site.ask("GET", ours).json()["rows"]}
    made = {
        kind: site.ask("POST", ours, {"kind": kind, "note": f"for {kind}"}).json()
        for kind in ("invite", "owner", "label_studio", "prolific")
    }
    rows = {row["id"]: row for row in site.ask("GET", ours).json()["rows"]}
    assert rows.keys() - before == {one["id"] for one in made.values()}
    for kind, one in made.items():
        expected = {"id": one["id"], "kind": "invite" if kind == "prolific" else kind}
        assert rows[one["id"]] == expected | {"note": f"for {kind}", "expires": None}
        assert one["token"] not in str(rows)
    pages = [site.ask("GET", f"{ours}?limit=1").json()]
    while pages[-1]["next"]:
        pages.append(site.ask("GET", f"{ours}?limit=1&cursor={pages[-1]['next']}").json())
    assert [row["id"] for page in pages for row in page["rows"]] == sorted(rows)

    def opened() -> list[int]:
        invite, owner, studio = (
            made[kind]["token"] for kind in ("invite", "owner", "label_studio")
        )
        return [
            site.enter(slugs[0], invite=invite).status_code,
            site.ask("GET", ours, token=owner).status_code,
            site.client.get(f"/login?token={owner}").status_code,
            site.client.get(f"/ls/{studio}/health").status_code,
        ]

    worker = site.enter(slugs[0], invite=made["invite"]["token"]).json()["worker_token"]
    assert opened() == [200] * 4
    session = site.client.cookies[site.service.sessions.cookie]
    for one in made.values():
        assert is_problem(site.ask("DELETE", f"{theirs}/{one['id']}"), 404, "no_link")
        assert site.ask("DELETE", f"{ours}/{one['id']}").json() == {"n": 1}
        assert is_problem(site.ask("DELETE", f"{ours}/{one['id']}"), 404, "no_link")
    assert opened() == [403, 401, 403, 401]
    site.client.cookies.set(site.service.sessions.cookie, session)
    assert site.client.get("/").status_code == 401, "the login by a revoked link is over"
    site.client.cookies.clear()
    # Whoever came in by it stays, and no worker's own token is a link.
    assert site.ask("POST", "/next", token=worker).status_code == 200
    own = f"{ours}/{hash_token(worker)}"
    assert is_problem(site.ask("DELETE", own), 404, "no_link")
    assert is_problem(site.ask("DELETE", f"{ours}/{hash_token(site.owner)}"), 404, "no_link")


def test_new_owner_links_may_end_the_old_ones(tmp_path: Path) -> None:
    from voxpop.service.api.app import owner_link

    with house_on(str(tmp_path / "a.db")) as house:
        brief = house.link(house.campaign(), "owner")
        token = str(owner_link(house.app, renew=True)).partition("token=")[2]
        assert house.ask("GET", "/campaigns", token=token).status_code == 200
        last = str(owner_link(house.app, revoke=True)).partition("token=")[2]
        house.clock.ahead += 60  # what a running process remembers is that old at most
        for gone in (house.owner, token):
            assert house.ask("GET", "/campaigns", token=gone).status_code == 401
        for left in (last, brief):  # links of one campaign are revoked there
            assert house.ask("GET", "/campaigns", token=left).status_code == 200


def test_tokens_are_kept_as_hashes_only(site: House, slugs: tuple[str, str]) -> None:
    made = [site.owner, site.worker(slugs[0]), site.link(slugs[0])]
    site.service.database.engine.dispose()
    held = b"".join(
        path.read_bytes() for path in Path(site.url).parent.glob("ages.db*") if path.is_file()
    )
    for token in made:
        assert token.encode() not in held
        assert token.partition("_")[2].encode() not in held
