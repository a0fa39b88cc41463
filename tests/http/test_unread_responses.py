"""Clients that read large responses slowly or not at all."""

import asyncio
import random
import select
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from listings.api import lists
from listings.http import byte_budget, throttle
from listings.http.byte_budget import ByteBudget
from listings.http.connection import protocol, unsent
from listings.http.limits import ConnectionLimits
from tests.api.test_large_lists import count_files
from tests.harness import Cast, Person, RunningService
from tests.http.raw import Connection, request
from tests.waiting import until, until_async

PATH = "/api/v1/listings"
SMALL_BUFFER = 4096
WRITE_SECONDS = 1.0


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    limits = ConnectionLimits(write_seconds=WRITE_SECONDS)
    with RunningService(tmp_path_factory.mktemp("unread"), limits=limits) as service:
        yield service


@pytest.fixture
def cast(service: RunningService) -> Cast:
    """The cast, each with a list of 1 MB."""
    cast = service.cast()
    for person in cast[:2]:
        fill(service, person)
    return cast


def fill(service: RunningService, person: Person) -> None:
    text = random.Random(1).randbytes(50_000).hex()  # compressed, it is half as long
    body = f'{{"title": "Large", "content": "{text}"}}'.encode()
    with Connection(service) as connection:
        for _ in range(10):
            assert connection.send(request("POST", PATH, person.key, body=body)).read_response().status == 201


def request_without_reading(service: RunningService, person: Person, encoding: bytes = b"identity") -> Connection:
    sent = request("GET", PATH, person.key, b"Accept-Encoding: " + encoding)
    connection = Connection(service, receive_buffer=SMALL_BUFFER).send(sent)
    assert select.select([connection.socket], [], [], 10)[0]  # the response has begun
    time.sleep(0.1)  # until the kernel's buffers are full
    return connection


def get_status(service: RunningService, person: Person, path: str = PATH) -> tuple[int, str]:
    with Connection(service) as connection:
        response = connection.send(request("GET", path, person.key)).read_response()
        return response.status, response.headers.get("retry-after", "")


def test_pipelined_large_lists_arrive_in_order(service: RunningService, cast: Cast) -> None:
    with Connection(service) as connection:
        connection.send(*(request("GET", path, cast.alice.key) for path in (PATH, "/healthz", PATH, "/healthz")))
        sizes = [len(connection.read_response().body) for _ in range(4)]
    assert sizes[0] == sizes[2] > 1_000_000
    assert sizes[1] == sizes[3] < 100


def test_a_connection_closes_after_a_large_list_if_asked_to(service: RunningService, cast: Cast) -> None:
    with Connection(service).send(request("GET", PATH, cast.alice.key, b"Connection: close")) as connection:
        response = connection.read_response()
        assert (response.headers["connection"], len(response.json()["listings"])) == ("close", 10)
        assert connection.is_closed()


def test_a_client_that_reads_below_the_minimum_rate_is_dropped(service: RunningService, cast: Cast) -> None:
    started = time.monotonic()
    with Connection(service, SMALL_BUFFER).send(request("GET", PATH, cast.alice.key)) as connection:
        with suppress(ConnectionError):
            while connection.socket.recv(400):  # 8 kB/s
                time.sleep(0.05)
                assert time.monotonic() - started < 15
        assert time.monotonic() - started >= WRITE_SECONDS


def test_a_client_that_reads_at_the_minimum_rate_gets_everything(service: RunningService, cast: Cast) -> None:
    started, size = time.monotonic(), 0
    with Connection(service, SMALL_BUFFER).send(
        request("GET", PATH, cast.alice.key, b"Connection: close")
    ) as connection:
        while data := connection.socket.recv(20_000):
            size += len(data)
            time.sleep(0.02)
    assert time.monotonic() - started > 1.5 * WRITE_SECONDS
    assert size > 1_000_000


@pytest.mark.as_written
def test_a_client_that_waits_for_its_turn_is_not_slow(
    service: RunningService, cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unsent, "_MIN_SEND_RATE", 1_000_000)
    monkeypatch.setattr(throttle, "_INTERVAL_SECONDS", 0.2)  # a third of that rate
    monkeypatch.setattr(throttle, "_BURST_SECONDS", 0.0)
    started = time.monotonic()
    with Connection(service).send(request("GET", PATH, cast.alice.key)) as connection:
        assert len(connection.read_response().json()["listings"]) == 10
    assert time.monotonic() - started > 2 * WRITE_SECONDS


@pytest.mark.parametrize("path", [f"{PATH}?limit=2", "/"])
def test_pipelined_responses_arrive_at_the_clients_pace(service: RunningService, cast: Cast, path: str) -> None:
    """A response that is sent in one piece counts too, of the API (200 kB each) and of the pages."""
    started, size = time.monotonic(), 0
    requests = request("GET", path, cast.alice.key) * (18 if "?" in path else 400)
    with Connection(service, SMALL_BUFFER).send(requests) as connection:
        connection.socket.shutdown(1)
        while data := connection.socket.recv(20_000):
            size += len(data)
            time.sleep(0.005)
    assert time.monotonic() - started > 3 * WRITE_SECONDS
    assert size > 3_000_000


def test_a_slow_client_gets_everything_before_an_invalid_request(
    service: RunningService, cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "DISCARD_SECONDS", 0.3)
    started, received = time.monotonic(), b""
    pipelined = request("GET", f"{PATH}?limit=2", cast.alice.key) * 3 + b"invalid\r\n\r\n"
    with Connection(service, SMALL_BUFFER).send(pipelined) as connection:
        while data := connection.socket.recv(4000):
            received += data
            time.sleep(0.01)
    assert time.monotonic() - started > 1
    assert len(received) > 600_000
    assert received.endswith(b'"error":"The request is not valid HTTP"}')


MIB = 1024 * 1024


def fill_budget(*sizes: int) -> ByteBudget:
    """Return a budget in which owner 1 has the first size, owner 2 the second one, and so on, in MiB."""
    budget = ByteBudget()
    for owner, size in enumerate(sizes, 1):
        budget.change(owner, size * MIB)
    return budget


def test_an_owner_has_room_for_eight_mebibytes() -> None:
    budget = fill_budget(6)
    assert (budget.has_room(1, 2 * MIB), budget.has_room(1, 2 * MIB + 1)) == (True, False)


def test_the_first_response_of_an_owner_may_be_larger() -> None:
    assert fill_budget().has_room(1, 60 * MIB)
    assert fill_budget(1).has_room(2, 10 * MIB)


def test_beyond_the_maximum_owners_with_the_average_or_more_have_no_room() -> None:
    budget = fill_budget(7, 7, 7, 7, 5, 1)
    assert [owner for owner in range(1, 8) if budget.has_room(owner, MIB // 2)] == [5, 6, 7]
    assert [owner for owner in range(1, 8) if budget.is_above_share(owner)] == [1, 2, 3, 4]


def test_below_the_maximum_nobody_is_above_the_share() -> None:
    budget = fill_budget(7, 7, 7, 7, 4)
    assert not any(budget.is_above_share(owner) for owner in range(1, 6))


def test_owners_with_the_same_number_of_bytes_are_above_the_share() -> None:
    assert fill_budget(7, 7, 7, 7, 7).is_above_share(3)


def test_the_reserve_for_new_owners_is_limited() -> None:
    budget = fill_budget(*[6] * 8)
    assert not budget.has_room(9, 1)


def test_small_responses_beyond_their_limit_leave_room_for_others() -> None:
    budget = fill_budget(100)
    assert (budget.has_room(1, 1), budget.has_room(2, 7 * MIB)) == (False, True)


def test_a_budget_forgets_owners_without_bytes() -> None:
    budget = fill_budget(9, 40)
    budget.change(1, -9 * MIB)
    budget.change(2, -40 * MIB)
    assert (budget.total, budget.has_room(1, 48 * MIB), budget.is_above_share(1)) == (0, True, False)


def test_unread_bytes_of_an_account_are_limited(
    service: RunningService, cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byte_budget, "_MAX_BYTES_OF_OWNER", 1)
    for encoding in (b"identity", b"gzip"):
        with request_without_reading(service, cast.alice, encoding):
            before = count_responses(service, cast.alice)
            assert get_status(service, cast.alice) == (503, "1")
            assert count_responses(service, cast.alice) == before + 1
            assert get_status(service, cast.alice, "/healthz")[0] == 200
            assert get_status(service, cast.alice, f"{PATH}?limit=1&type=job")[0] == 200
            assert get_status(service, cast.bob)[0] == 200
        until(lambda: get_status(service, cast.alice)[0] == 200)


def test_beyond_the_limit_clients_that_do_not_read_are_dropped_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byte_budget, "_MAX_BYTES", 1)
    monkeypatch.setattr(byte_budget, "_RESERVED_BYTES", 0)
    monkeypatch.setattr(unsent, "_HURRIED_SECONDS", 0.5)
    with RunningService(tmp_path) as service:
        alice, bob, _ = service.cast()
        for person in (alice, bob):
            fill(service, person)
        with request_without_reading(service, alice):
            assert get_status(service, bob) == (503, "1")
            until(lambda: get_status(service, bob)[0] == 200)


def test_a_client_that_leaves_during_a_large_list_releases_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "_KEEP_SECONDS", 0.0)
    with RunningService(tmp_path) as service:
        alice = service.cast().alice
        fill(service, alice)
        with request_without_reading(service, alice):
            assert count_files(tmp_path) == 1
        asyncio.run(until_async(lambda: count_files(tmp_path) == 0))
        assert service.connection_count == 0


def count_responses(service: RunningService, person: Person) -> int:
    usage = service.run(lambda services: services.usage.get(person.account))
    return sum(usage.total.by_status.values())
