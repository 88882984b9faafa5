"""schemathesis: whatever the OpenAPI document allows, and more, ends without a server error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")
pytest.importorskip("schemathesis", reason="schemathesis is not installed")

import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.core.result import Ok

from tests.serve_api import House, house_on
from tests.test_serve_api import is_problem

EXAMPLES = 8


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house_on(str(tmp_path_factory.mktemp("schema") / "ages.db")) as found:
        yield found


def test_the_document_is_openapi_3_1_and_says_what_things_are(site: House) -> None:
    document = site.client.get("/api/v1/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], (method, path)
            assert operation["description"], (method, path)
            for status, reply in operation["responses"].items():
                if status >= "400":
                    assert list(reply["content"]) == ["application/problem+json"], (path, status)


NO_BODIES = (
    b"", b"null", b"NaN", b"{}{}", b"[" * 100_000, b'{"a":' * 50_000, b"\xff\xfe\x00",
    b'{"value":[1e999]}', b'"\\ud800"', b"a=1&b=2",
)  # fmt: skip


def test_what_is_no_json_of_ours_is_a_problem_of_one_line(site: House) -> None:
    """Every endpoint that takes a body, with the right token and a body that no client sends."""
    slug = site.campaign(1)
    worker = site.worker(slug)
    known = {"slug": slug, "worker": 1, "offer": site.next(worker)["offer"]["id"], "link": "0" * 64}
    tried = 0
    for path, methods in site.app.openapi()["paths"].items():
        for method, operation in methods.items():
            if "requestBody" not in operation:
                continue
            tried += 1
            token = worker if "worker" in str(operation.get("security")) else site.owner
            for body in NO_BODIES:
                headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
                reply = site.client.request(
                    method.upper(), path.format(**known), content=body, headers=headers
                )
                assert reply.status_code in (400, 422), (method, path, body[:20])
                assert is_problem(reply, reply.status_code)
    assert tried > 12


@pytest.mark.slow
def test_no_request_is_a_server_error(site: House) -> None:
    """Every endpoint, with the right tokens and with ids that exist, as often as with others."""
    slug = site.campaign(5, price=1)
    tokens = {"worker": site.worker(slug), "owner": site.owner}
    known = {"slug": slug, "worker": 1, "offer": site.next(tokens["worker"])["offer"]["id"]}
    known["link"] = site.ask("GET", f"/campaigns/{slug}/links").json()["rows"][0]["id"]
    schema = schemathesis.openapi.from_dict(site.app.openapi())
    checked = 0
    for result in schema.get_all_operations():
        assert isinstance(result, Ok), result
        operation = result.ok()
        schemes = [name for one in operation.definition.raw.get("security", []) for name in one]
        token = tokens.get(schemes[0], "") if schemes else ""
        checked += _try(site, operation, known, token)
    assert checked > 25 * EXAMPLES / 2


def _try(site: House, operation: Any, known: dict[str, Any], token: str) -> int:
    seen = 0

    @settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy())
    def check(case: Any) -> None:
        nonlocal seen
        seen += 1
        # Half of the time what the path names is there.
        if seen % 2:
            for name in case.path_parameters or {}:
                case.path_parameters[name] = known[name]
        sent = case.as_transport_kwargs(base_url="http://testserver")
        sent.pop("cookies", None)
        headers = dict(sent.pop("headers", {}) or {}) | {"Authorization": f"Bearer {token}"}
        headers = {name: value for name, value in headers.items() if value.isascii()}
        known_keys = ("method", "url", "json", "params", "data", "content")
        arguments = {name: sent[name] for name in known_keys if name in sent}
        if "data" in arguments:
            arguments["content"] = arguments.pop("data")
        reply = site.client.request(headers=headers, **arguments)
        assert reply.status_code < 500, (arguments, reply.text)
        if reply.status_code >= 400:
            assert reply.headers["content-type"] == "application/problem+json", arguments

    check()
    return seen
