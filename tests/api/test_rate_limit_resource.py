"""GET /api/v1/rate_limit: what is left of the hour, at no cost (decision G29)."""

from pathlib import Path

import httpx
import pytest

from tests.conftest import Client
from tests.harness import START, Harness, Reply

LISTINGS = "/api/v1/listings"
PATH = "/api/v1/rate_limit"


def look(http: httpx.Client, client: Client, method: str = "GET", path: str = PATH) -> httpx.Response:
    return http.request(method, path, headers={"X-API-Key": client.person.key})


def told(reply: Reply) -> dict[str, int]:
    """The same by the headers."""
    names = {"limit": "x-ratelimit-limit", "remaining": "x-ratelimit-remaining", "reset": "x-ratelimit-reset"}
    return {name: int(reply.headers[header]) for name, header in names.items()}


def test_a_key_that_was_never_used_has_all_of_its_hour(http: httpx.Client, alice: Client) -> None:
    response = look(http, alice)
    content = response.json()
    assert response.status_code == 200
    assert list(content) == ["limit", "window", "remaining", "reset"]
    assert (content["limit"], content["window"], content["remaining"]) == (1000, 3600, 1000)


@pytest.mark.decision("G29")
def test_it_costs_nothing_and_tells_what_others_cost(http: httpx.Client, alice: Client) -> None:
    for used in range(4):
        for _ in range(3):
            response = look(http, alice)
            assert response.json()["remaining"] == 1000 - used
            assert response.headers["X-RateLimit-Remaining"] == str(1000 - used)
        alice.get()


@pytest.mark.decision("G29")
def test_body_and_headers_tell_the_same(harness: Harness) -> None:
    alice = harness.person("alice")
    harness.fetch("GET", LISTINGS, key=alice.key)
    harness.clock.advance(100)
    reply = harness.fetch("GET", PATH, key=alice.key)
    assert reply.json() == {"window": 3600, **told(reply)}
    assert reply.headers["ratelimit-policy"] == '"hour";q=1000;w=3600'
    assert reply.json()["remaining"] == 999


@pytest.mark.decision("G29")
def test_it_is_answered_beyond_the_limit_too(tmp_path: Path) -> None:
    with Harness(tmp_path, rate_limit="2", rate_window="60") as harness:
        alice = harness.person("alice")
        answers = [harness.fetch("GET", LISTINGS, key=alice.key).status for _ in range(3)]
        for _ in range(5):
            reply = harness.fetch("GET", PATH, key=alice.key)
            assert (reply.status, reply.json()["remaining"], reply.json()["limit"]) == (200, 0, 2)
            assert reply.json()["window"] == 60
            assert START < reply.json()["reset"] <= START + 61
            assert "retry-after" not in reply.headers
        assert answers == [200, 200, 429]
        assert harness.fetch("GET", LISTINGS, key=alice.key).status == 429


def test_without_a_limit_there_is_nothing_to_tell(tmp_path: Path) -> None:
    with Harness(tmp_path, rate_limit="0") as harness:
        reply = harness.fetch("GET", PATH, key=harness.person("alice").key)
        assert (reply.status, reply.json()) == (
            200,
            {"limit": None, "window": None, "remaining": None, "reset": None},
        )
        assert not [name for name in reply.headers if "ratelimit" in name]


def test_each_key_has_its_own(http: httpx.Client, alice: Client, bob: Client) -> None:
    alice.get()
    assert (look(http, alice).json()["remaining"], look(http, bob).json()["remaining"]) == (999, 1000)


def test_it_needs_a_key_and_a_plan(http: httpx.Client, charlie: Client) -> None:
    without = http.get(PATH)
    assert (without.status_code, without.headers["X-Error-Code"]) == (401, "api_key_required")
    expired = look(http, charlie)
    assert (expired.status_code, expired.json()) == (403, {"error": "Business plan expired"})
    assert expired.headers["X-RateLimit-Remaining"] == "1000"
    assert expired.headers["RateLimit"] == '"hour";r=1000;t=0'


@pytest.mark.parametrize("path", [f"{PATH}/", f"{PATH}?colour=red"])
def test_it_has_the_forms_of_every_path(http: httpx.Client, alice: Client, path: str) -> None:
    assert look(http, alice, path=path).status_code == 200


def test_head_and_other_methods(http: httpx.Client, alice: Client) -> None:
    head = look(http, alice, "HEAD")
    assert (head.status_code, head.content) == (200, b"")
    response = look(http, alice, "POST")
    assert (response.status_code, response.headers["Allow"]) == (405, "GET, HEAD")


def test_it_is_not_to_be_stored(http: httpx.Client, alice: Client) -> None:
    assert look(http, alice).headers["Cache-Control"] == "no-store"
