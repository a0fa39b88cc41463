"""Retries: nothing doubles, nothing is lost, and every call ends at its deadline."""

import json
import re
from collections.abc import Callable
from time import monotonic, sleep
from typing import Any

import httpx2
import pytest

import listings_client
from listings.api.rehearsal import SLOW_SECONDS
from tests.client.conftest import Open
from tests.client.scripted_server import build_response, serve
from tests.harness import unused_port

LAMP: dict[str, Any] = {"title": "Lamp", "content": "Brass."}
FAULTS = ["503", "lost-response"]
WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "create": lambda client, _: client.create(**LAMP),
    "batch": lambda client, _: client.batch([listings_client.create(**LAMP)]),
    "put": lambda client, _: client.put("sku", **LAMP),
    "update": lambda client, lamp: client.update(lamp, price=5),
    "update of an id": lambda client, lamp: client.update(lamp.id, price=5),
    "delete": lambda client, lamp: client.delete(lamp),
    "restore": lambda client, lamp: client.restore(lamp),
    "revert": lambda client, _: client.revert(change=1),
}
EXPECTED = {"create": 2, "batch": 2, "put": 2, "delete": 0, "revert": 0}


class Waits(list[tuple[float, str]]):
    def record(self, seconds: float, reason: str) -> None:
        self.append((seconds, reason))


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_write_is_applied_once_whatever_happens(connect: Open, client: Any, fault: str, write: str) -> None:
    lamp = client.create(**LAMP)
    faulty = connect(headers={"X-Rehearse": f"{fault};{write.replace(' ', '-')}"})
    WRITES[write](faulty, lamp)
    left = list(client.list())
    assert len(left) == EXPECTED.get(write, 1)
    if "update" in write:
        assert left[0].price == 5
    assert len([one for one in client.history(lamp) if one.kind != "created"]) <= 1


def test_a_create_that_times_out_is_applied_once(connect: Open, client: Any) -> None:
    faulty = connect(headers={"X-Rehearse": "slow;once"})
    faulty.options.read_timeout = 1
    created = faulty.create(**LAMP)
    sleep(SLOW_SECONDS)  # until the first attempt has been processed, too
    assert list(client.list()) == [created]


@pytest.mark.parametrize("fault", ["429", *FAULTS])
def test_a_read_is_repeated(connect: Open, client: Any, fault: str) -> None:
    lamp = client.create(**LAMP)
    faulty = connect(headers={"X-Rehearse": f"{fault};read"})
    assert list(faulty.stream()) == [lamp]


@pytest.mark.parametrize(
    ("fault", "kind"), [("plan-expired", listings_client.PlanExpiredError), ("stale", listings_client.StaleError)]
)
def test_final_errors_are_not_repeated(connect: Open, client: Any, fault: str, kind: type[Exception]) -> None:
    faulty = connect(headers={"X-Rehearse": f"{fault};once"})
    waits = Waits()
    faulty.options.on_wait = waits.record
    with pytest.raises(kind):
        faulty.create(**LAMP)
    assert (list(client.list()), waits) == ([], [])
    assert faulty.create(**LAMP).title == "Lamp"  # the fault was used up by a single attempt


def test_a_stale_update_is_reported_after_a_lost_response(connect: Open, client: Any) -> None:
    lamp = client.create(**LAMP)
    client.update(lamp.id, price=6)
    faulty = connect(headers={"X-Rehearse": "lost-response;stale"})
    with pytest.raises(listings_client.StaleError):
        faulty.update(lamp, price=5)
    assert client.get(lamp).price == 6


def test_a_missing_listing_is_reported_without_a_lost_response(client: Any) -> None:
    lamp = client.create(**LAMP)
    client.delete(lamp)
    with pytest.raises(listings_client.NotFoundError):
        client.delete(lamp)


def test_the_wait_is_that_of_the_service_and_a_random_part(connect: Open) -> None:
    waits = Waits()
    faulty = connect(headers={"X-Rehearse": "429;wait"})
    faulty.options.on_wait = waits.record
    faulty.key()
    ((seconds, reason),) = waits
    assert 1 <= seconds <= 1.5
    assert "rate limit" in reason


def find_header(request: bytes, name: str) -> str:
    found = re.search(rf"\r\n{name}: (.*?)\r\n".encode(), request, re.IGNORECASE)
    assert found is not None
    return found[1].decode()


def test_a_repetition_has_the_same_key_and_body(connect: Open) -> None:
    created = json.dumps({"results": [{"status": 201, "body": {"id": 1}}]}).encode()
    lost = (b"", build_response(502, b"<html>"), build_response(503, b"{}", "retry-after: 0"))
    with serve(*lost, build_response(200, created)) as server:
        client = connect(base_url=server.base_url)
        client.batch([listings_client.create(**LAMP)])
    assert len({find_header(request, "idempotency-key") for request in server.requests}) == 1
    assert len({request.partition(b"\r\n\r\n")[2] for request in server.requests}) == 1


def test_two_calls_have_different_keys(connect: Open) -> None:
    created = build_response(200, b'{"results": []}')
    with serve(created, created) as server:
        client = connect(base_url=server.base_url)
        for _ in range(2):
            client.batch([listings_client.create(**LAMP)])
    first, second = (find_header(request, "idempotency-key") for request in server.requests)
    assert first != second


@pytest.mark.parametrize("status", [400, 404, 405, 411, 301])
def test_other_errors_are_not_repeated(connect: Open, status: int) -> None:
    with serve(build_response(status, b"not JSON")) as server, pytest.raises(listings_client.ApiError) as caught:
        connect(base_url=server.base_url).key()
    assert caught.value.status == status
    assert f"status {status}" in caught.value.message


def test_a_wait_beyond_the_deadline_is_an_error_instead(connect: Open) -> None:
    started = monotonic()
    limited = build_response(429, b'{"error": "Too many requests"}', "retry-after: 3000")
    with serve(limited) as server, pytest.raises(listings_client.RateLimitedError) as caught:
        connect(base_url=server.base_url, timeout=5).key()
    assert caught.value.retry_after == 3000
    assert monotonic() - started < 5


def test_a_refused_connection_ends_at_the_deadline(connect: Open) -> None:
    started = monotonic()
    with unused_port() as port, pytest.raises(listings_client.NoResponseError):
        connect(base_url=f"http://127.0.0.1:{port}", timeout=2).create(**LAMP)
    assert monotonic() - started < 5


def cut(server_body: bytes, length: int) -> bytes:
    """Return a response that ends too early."""
    return build_response(200, server_body)[: -len(server_body) + length]


def test_a_list_that_is_cut_off_continues(connect: Open, client: Any) -> None:
    client.batch([listings_client.create(**LAMP, external_id=f"ü{number}") for number in range(20)])
    expected = list(client.stream())
    body = read_list(client)
    with serve(
        *(cut(body, length) for length in (0, 5, 900, 3000, len(body) - 2)), build_response(200, body)
    ) as server:
        assert list(connect(base_url=server.base_url).stream()) == expected


def read_list(client: Any) -> bytes:
    query = {"sort": "id", "include": "all,deleted_at,external_id,etag"}
    headers = {"X-API-Key": client.options.key}
    return httpx2.get(f"{client.options.base_url}/api/v1/listings", params=query, headers=headers).content


def limited_response(remaining: int, reset: int) -> bytes:
    limits = ('ratelimit-policy: "hour";q=2000;w=4', f'ratelimit: "hour";r={remaining};t={reset}')
    return build_response(200, b'{"limit": 1, "window": 1, "remaining": 1, "reset": 1}', *limits)


@pytest.mark.parametrize(
    ("pace", "remaining", "waits"), [(True, 1500, []), (True, 900, [0.002]), (True, 0, [1.0]), (False, 900, [])]
)
def test_requests_are_paced_only_if_wanted(connect: Open, pace: bool, remaining: int, waits: list[float]) -> None:  # noqa: FBT001
    recorded = Waits()
    with serve(limited_response(remaining, 1)) as server:
        client = connect(base_url=server.base_url, pace=pace)
        client.options.on_wait = recorded.record
        client.limit()
    assert [seconds for seconds, _ in recorded] == waits
