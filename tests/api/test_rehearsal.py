"""Simulated faults happen once, and only in a service that was started for them."""

import http.client
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import httpx2
import pytest

from listings.api.rehearsal import SLOW_SECONDS
from listings.api.routes import ROUTES
from tests.api.helpers import LISTINGS, REQUIRED
from tests.harness import TIMEOUT, Harness, Person, Reply, RunningService

ENDPOINTS = [(method, path) for path, methods in ROUTES.items() for method in methods]
BODIES: dict[str, Any] = {
    "/batch": {"operations": [{"op": "create", "listing": REQUIRED}]},
    "/revert": {"change": 1},
}
VARIABLE = {"x-request-id", "date", "x-ratelimit-remaining", "ratelimit"}
KEY_HINT = re.compile(rb'"hint":"[^"]*"')
pytestmark = pytest.mark.decision("G57")


def build_body(path: str) -> Any:
    return next((body for end, body in BODIES.items() if path.endswith(end)), {**REQUIRED, "price": 5})


def send_all(harness: Harness, headers: dict[str, str]) -> list[tuple[int, dict[str, str], bytes]]:
    """Return the comparable part of the response of each endpoint."""
    alice = harness.person("alice")
    created = harness.fetch("POST", LISTINGS, key=alice.key, json=REQUIRED)
    listing = str(json.loads(created.body)["id"])
    responses = []
    for method, path in ENDPOINTS:
        target = path.replace("{id}", "1" if "reverts" in path else listing).replace("{guide}", "sync")
        body = None if method in {"GET", "DELETE"} else build_body(path)
        reply: Reply = harness.fetch(method, target, key=alice.key, json=body, headers=headers)
        fields = {name: value for name, value in reply.headers.items() if name not in VARIABLE}
        responses.append((reply.status, fields, KEY_HINT.sub(b"", reply.body)))
    return responses


def test_without_the_flag_no_endpoint_heeds_the_header(tmp_path: Path) -> None:
    plain, rehearsed = tmp_path / "plain", tmp_path / "rehearsed"
    with Harness(plain) as first, Harness(rehearsed) as second:
        assert send_all(first, {}) == send_all(second, {"X-Rehearse": "503;one"})


class Rehearsing:
    """A client of a service that simulates faults, with alice's key."""

    def __init__(self, service: RunningService, alice: Person) -> None:
        self.alice = alice
        self.http = httpx2.Client(base_url=service.base_url, timeout=TIMEOUT)
        self.address = service.base_url.removeprefix("http://")

    def send(self, method: str, path: str, rehearse: str, body: Any = None, key: str = "") -> httpx2.Response:
        headers = {"X-API-Key": key or self.alice.key, "X-Rehearse": rehearse}
        return self.http.request(method, path, headers=headers, json=body)

    def count(self) -> int:
        return len(self.http.get(LISTINGS, headers={"X-API-Key": self.alice.key}).json()["listings"])


@pytest.fixture(scope="module")
def rehearsing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsing]:
    with RunningService(tmp_path_factory.mktemp("rehearsal"), rehearses=True, rate_limit="0") as service:
        client = Rehearsing(service, service.cast().alice)
        with client.http:
            yield client


ERRORS = {
    "429": (429, "rate_limited", "1"),
    "503": (503, "unavailable", "1"),
    "plan-expired": (403, "plan_expired", None),
    "stale": (412, "precondition_failed", None),
}


@pytest.mark.parametrize(
    ("method", "path", "fault"),
    [
        *(("GET", LISTINGS, fault) for fault in ERRORS),
        *((*endpoint, "503") for endpoint in ENDPOINTS if endpoint[1].startswith("/api/") and endpoint[1] != LISTINGS),
    ],
)
def test_an_error_happens_once(rehearsing: Rehearsing, method: str, path: str, fault: str) -> None:
    status, code, retry_after = ERRORS[fault]
    target = path.replace("{id}", "1")
    token = f"{fault};once-{method}-{path}"
    body = build_body(path)
    first = rehearsing.send(method, target, token, body)
    assert (first.status_code, first.headers["x-error-code"]) == (status, code)
    assert first.headers.get("retry-after") == retry_after
    assert list(first.json()) == ["error"]
    assert first.headers["x-request-id"]
    second = rehearsing.send(method, target, token, body)
    assert "Simulated" not in second.text


def test_a_rejected_create_stores_nothing(rehearsing: Rehearsing) -> None:
    before = rehearsing.count()
    assert rehearsing.send("POST", LISTINGS, "503;nothing", REQUIRED).status_code == 503
    assert rehearsing.count() == before


def test_a_lost_response_stores_and_sends_nothing(rehearsing: Rehearsing) -> None:
    before = rehearsing.count()
    connection = http.client.HTTPConnection(rehearsing.address, timeout=TIMEOUT)
    headers = {"X-API-Key": rehearsing.alice.key, "X-Rehearse": "lost-response;a"}
    connection.request("POST", LISTINGS, json.dumps(REQUIRED), headers)
    assert isinstance(connection.sock, socket.socket)
    with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
        connection.getresponse()
    connection.close()
    assert rehearsing.count() == before + 1
    assert rehearsing.send("POST", LISTINGS, "lost-response;a", REQUIRED).status_code == 201


def test_the_response_to_a_read_can_be_lost(rehearsing: Rehearsing) -> None:
    with pytest.raises(httpx2.TransportError):
        rehearsing.send("GET", LISTINGS, "lost-response;b")
    assert rehearsing.send("GET", LISTINGS, "lost-response;b").status_code == 200


def test_a_slow_response_comes_after_three_seconds(rehearsing: Rehearsing) -> None:
    started = monotonic()
    assert rehearsing.send("GET", LISTINGS, "slow;a").status_code == 200
    assert monotonic() - started >= SLOW_SECONDS


def test_each_key_has_its_own_tokens(rehearsing: Rehearsing) -> None:
    assert rehearsing.send("GET", LISTINGS, "503;mine").status_code == 503
    assert rehearsing.send("GET", LISTINGS, "503;mine", key="another").status_code == 503
    assert rehearsing.send("GET", LISTINGS, "429;mine").status_code == 429
    assert rehearsing.send("GET", LISTINGS, "503;mine").status_code == 200


def test_without_a_key_there_is_no_fault(rehearsing: Rehearsing) -> None:
    assert rehearsing.http.get(LISTINGS, headers={"X-Rehearse": "503;nobody"}).status_code == 401


@pytest.mark.parametrize("value", ["503", "503;", ";a", "500;a", "503;a b", "503;" + "a" * 65, "503;ü", ""])
def test_an_invalid_fault_is_rejected(rehearsing: Rehearsing, value: str) -> None:
    headers = [("X-API-Key", rehearsing.alice.key), ("X-Rehearse", value.encode("latin-1"))]
    response = rehearsing.http.get(LISTINGS, headers=headers)  # type: ignore[arg-type]  # bytes are fine
    assert response.status_code == 400
    assert response.json()["error"].startswith("X-Rehearse must be a fault (429, 503, lost-response, slow, ")
