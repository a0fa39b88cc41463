"""GET /api/v1/rate_limit: the remaining requests of the hour, at no cost (decision G29)."""

from pathlib import Path

import httpx2
import pytest

from tests.api.helpers import LISTINGS
from tests.conftest import Client
from tests.harness import START, Harness, Reply

PATH = "/api/v1/rate_limit"


def send(http: httpx2.Client, client: Client, method: str = "GET", path: str = PATH) -> httpx2.Response:
    return http.request(method, path, headers={"X-API-Key": client.person.key})


def read_headers(reply: Reply) -> dict[str, int]:
    names = {"limit": "x-ratelimit-limit", "remaining": "x-ratelimit-remaining", "reset": "x-ratelimit-reset"}
    return {name: int(reply.headers[header]) for name, header in names.items()}


def test_an_unused_key_has_all_requests_of_its_hour(http: httpx2.Client, alice: Client) -> None:
    response = send(http, alice)
    content = response.json()
    assert (response.status_code, response.headers["Cache-Control"]) == (200, "no-store")
    assert list(content) == ["limit", "window", "remaining", "reset"]
    assert (content["limit"], content["window"], content["remaining"]) == (1000, 3600, 1000)


@pytest.mark.decision("G29")
def test_reading_the_limit_costs_nothing(http: httpx2.Client, alice: Client) -> None:
    for used in range(4):
        for _ in range(3):
            response = send(http, alice)
            assert response.json()["remaining"] == 1000 - used
            assert response.headers["X-RateLimit-Remaining"] == str(1000 - used)
        alice.get()


@pytest.mark.decision("G29")
def test_the_body_and_the_headers_agree(harness: Harness) -> None:
    alice = harness.person("alice")
    harness.fetch("GET", LISTINGS, key=alice.key)
    harness.clock.advance(100)
    reply = harness.fetch("GET", PATH, key=alice.key)
    assert reply.json() == {"window": 3600, **read_headers(reply)}
    assert reply.headers["ratelimit-policy"] == '"hour";q=1000;w=3600'
    assert reply.json()["remaining"] == 999


@pytest.mark.decision("G29")
def test_the_limit_can_be_read_when_it_is_used_up(tmp_path: Path) -> None:
    with Harness(tmp_path, rate_limit="2", rate_window="60") as harness:
        alice = harness.person("alice")
        statuses = [harness.fetch("GET", LISTINGS, key=alice.key).status for _ in range(3)]
        for _ in range(5):
            reply = harness.fetch("GET", PATH, key=alice.key)
            assert (reply.status, reply.json()["remaining"], reply.json()["limit"]) == (200, 0, 2)
            assert reply.json()["window"] == 60
            assert START < reply.json()["reset"] <= START + 61
            assert "retry-after" not in reply.headers
        assert statuses == [200, 200, 429]
        assert harness.fetch("GET", LISTINGS, key=alice.key).status == 429


def test_all_values_are_null_without_a_limit(tmp_path: Path) -> None:
    with Harness(tmp_path, rate_limit="0") as harness:
        reply = harness.fetch("GET", PATH, key=harness.person("alice").key)
        assert (reply.status, reply.json()) == (
            200,
            {"limit": None, "window": None, "remaining": None, "reset": None},
        )
        assert not [name for name in reply.headers if "ratelimit" in name]
