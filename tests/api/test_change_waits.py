"""GET /api/v1/changes with `timeout`: responses that wait for changes (decision G47)."""

import asyncio
import json
import socket
from contextlib import ExitStack
from email.utils import parsedate_to_datetime
from pathlib import Path
from time import monotonic, time
from typing import Any

import pytest

from listings.domain.api_keys import digest
from listings.domain.errors import Unavailable
from listings.service import Services
from listings.service.history import change_waits
from listings.service.history.change_waits import MAX_WAITS, Poll
from tests.api.helpers import LISTINGS
from tests.harness import TIMEOUT, Harness, Person, RunningService, fetch
from tests.http.raw import Connection, RawResponse, request
from tests.waiting import until

pytestmark = pytest.mark.decision("G47")

CHANGES = "/api/v1/changes"
LONG = "timeout=30"


class Seller:
    def __init__(self, running: RunningService, person: Person) -> None:
        self.running = running
        self.person = person

    def poll(self, connection: Connection, query: str) -> Connection:
        return connection.send(request("GET", f"{CHANGES}?{query}", self.person.key))

    def wait(self, connection: Connection, query: str = LONG) -> Connection:
        before = self.count_waits()
        self.poll(connection, query)
        until(lambda: self.count_waits() > before)
        return connection

    def count_waits(self) -> int:
        waits = self.running.services.change_waits._by_key  # noqa: SLF001 - there is no other sign of a wait
        return waits[self.person.key_id]

    def create(self) -> None:
        with Connection(self.running) as connection:
            body = json.dumps({"title": "Lamp", "content": "Brass."}).encode()
            connection.send(request("POST", LISTINGS, self.person.key, body=body))
            assert connection.read_response().status == 201


def read_ids(response: RawResponse) -> list[int]:
    assert response.status == 200, response
    return [one["id"] for one in response.json()["change_sets"]]


@pytest.fixture
def alice(running: RunningService) -> Seller:
    return Seller(running, running.cast().alice)


def test_a_response_has_the_date_at_which_it_is_sent(alice: Seller) -> None:
    """RFC 9110, 6.6.1."""
    with Connection(alice.running) as connection:
        alice.wait(connection)
        asked = time()
        until(lambda: time() > asked + 2)
        alice.create()
        date = parsedate_to_datetime(connection.read_response().headers["date"])
        assert date.timestamp() >= int(asked) + 1


@pytest.mark.every_engine
def test_a_response_waits_for_the_first_change(alice: Seller) -> None:
    with Connection(alice.running) as waiting:
        alice.wait(waiting)
        started = monotonic()
        alice.create()
        assert read_ids(waiting.read_response()) == [1]
        assert monotonic() - started < 25


def test_a_response_after_the_timeout_is_empty_and_counts_once(alice: Seller) -> None:
    alice.create()
    with Connection(alice.running) as connection:
        started = monotonic()
        empty = alice.poll(connection, "after=1&timeout=1").read_response()
        assert monotonic() - started >= 1
        assert empty.json() == {"change_sets": [], "last": 1, "more": False}
        again = alice.poll(connection, "after=1").read_response()
    counts = [int(one.headers["x-ratelimit-remaining"]) for one in (empty, again)]
    assert counts[0] - counts[1] == 1
    resets = [int(one.headers["x-ratelimit-reset"]) for one in (empty, again)]
    assert abs(resets[0] - resets[1]) <= 1  # although the first was counted a second earlier


def test_changes_that_are_there_are_sent_immediately_without_gather(alice: Seller) -> None:
    alice.create()
    with Connection(alice.running) as connection:
        started = monotonic()
        assert read_ids(alice.poll(connection, LONG).read_response()) == [1]
        assert json.loads(alice.poll(connection, f"limit=0&{LONG}").read_response().body)["last"] == 1
        assert monotonic() - started < 25


def test_gather_waits_for_more_changes_until_there_are_as_many_as_limit(alice: Seller) -> None:
    alice.create()
    with Connection(alice.running) as waiting:
        started = monotonic()
        assert read_ids(alice.poll(waiting, f"{LONG}&gather=1").read_response()) == [1]
        assert monotonic() - started >= 1
        alice.wait(waiting, f"after=1&limit=2&{LONG}&gather=30")
        alice.create()
        alice.create()
        assert read_ids(waiting.read_response()) == [2, 3]
        assert monotonic() - started < 25


def test_a_request_with_a_change_that_is_not_stored_does_not_wait(alice: Seller) -> None:
    with Connection(alice.running) as connection:
        assert alice.poll(connection, f"after=5&{LONG}").read_response().status == 410
        assert alice.poll(connection, "timeout=31").read_response().status == 400


async def revoke_key(services: Services, person: Person) -> None:
    await services.keys.revoke(person.key_id)


async def end_plan(services: Services, person: Person) -> None:
    await services.accounts.expire_plan(str(person.account.id))


@pytest.mark.parametrize(("change", "status"), [(revoke_key, 401), (end_plan, 403)])
def test_key_and_plan_are_checked_again_before_the_response(alice: Seller, change: Any, status: int) -> None:
    with Connection(alice.running) as waiting:
        alice.wait(waiting, "timeout=2")
        alice.running.run(lambda services: change(services, alice.person))
        assert waiting.read_response().status == status


def test_the_waits_of_a_key_are_limited_and_a_client_that_leaves_ends_one(alice: Seller) -> None:
    with ExitStack() as stack:
        connections = [stack.enter_context(Connection(alice.running)) for _ in range(MAX_WAITS + 1)]
        for connection in connections[:MAX_WAITS]:
            alice.wait(connection)
        rejected = alice.poll(connections[-1], LONG).read_response()
        assert (rejected.status, rejected.headers["x-error-code"]) == (429, "too_many_waits")
        assert rejected.headers["retry-after"] == "30"
        connections[0].socket.close()
        until(lambda: alice.count_waits() < MAX_WAITS)
        alice.wait(connections[-1])


def test_a_client_that_shuts_down_its_side_gets_its_response_at_once(alice: Seller) -> None:
    with Connection(alice.running) as waiting:
        alice.wait(waiting)
        started = monotonic()
        waiting.socket.shutdown(socket.SHUT_WR)
        assert read_ids(waiting.read_response()) == []
        assert waiting.is_closed()
        assert monotonic() - started < 25


def test_a_client_that_leaves_ends_its_wait_over_plain_asgi(harness: Harness) -> None:
    headers, started = [(b"x-api-key", harness.person("alice").key.encode())], monotonic()
    leaving = fetch(harness.application, "GET", f"{CHANGES}?{LONG}", headers, [b""], complete=False)
    assert harness.run(leaving).json() == {"change_sets": [], "last": 0, "more": False}
    assert monotonic() - started < 20


def test_a_stop_ends_waits_with_a_response(tmp_path: Path) -> None:
    with ExitStack() as stack:
        with RunningService(tmp_path) as running:
            alice = Seller(running, running.cast().alice)
            waiting = alice.wait(stack.enter_context(Connection(running)))
            started = monotonic()
        response = waiting.read_response()
        assert (read_ids(response), response.headers["connection"]) == ([], "close")
        assert monotonic() - started < 8  # otherwise the connection would be reset after ten


def test_a_wait_continues_after_a_failed_query(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    person = harness.person("alice")
    answers: list[Any] = [Unavailable("The database can't be read"), {}, {person.account.id: 1}]

    async def read(_account_ids: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Unavailable):
            raise answer
        return answer

    async def wait() -> None:
        caller = await harness.store.find_caller(digest(person.key))
        assert caller is not None
        await harness.services.change_waits.wait(caller, Poll(0, 1, TIMEOUT, 0), asyncio.Event().wait)

    monkeypatch.setattr(harness.store, "list_edit_revisions", read)
    monkeypatch.setattr(change_waits, "RETRY_SECONDS", 0)
    harness.run(wait())
    assert answers == []


def test_one_query_serves_all_waits_and_there_is_none_without_waits(harness: Harness) -> None:
    people = [harness.person("alice"), harness.person("bob"), harness.person("dora")]
    queries: list[set[int]] = []
    read = harness.store.list_edit_revisions

    async def count(account_ids: Any) -> Any:
        queries.append(set(account_ids))
        return await read(account_ids)

    async def wait() -> None:
        callers = [await harness.store.find_caller(digest(person.key)) for person in people]
        async with asyncio.TaskGroup() as group:
            for caller in callers:
                assert caller is not None
                group.create_task(waits.wait(caller, Poll(0, 1, timeout=0.3, gather=0), asyncio.Event().wait))
        assert waits._watching is not None  # noqa: SLF001 - to wait for its end
        await waits._watching  # noqa: SLF001

    waits = harness.services.change_waits
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(harness.store, "list_edit_revisions", count)
        harness.run(wait())
    assert queries
    assert all(query == {person.account.id for person in people} for query in queries)
