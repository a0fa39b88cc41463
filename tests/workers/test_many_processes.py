"""Many processes over one PostgreSQL: no update is lost, and a key has one limit."""

import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.commands import DEADLINE, Program, Serving
from tests.cli.crowds import PATH, connections_to_each
from tests.harness import Harness, Person
from tests.http.raw import Connection, request
from tests.postgres_server import PostgresServer
from tests.redis_server import RedisServer

UPDATES = int(os.environ.get("LISTINGS_TEST_UPDATES", "400"))
ROUNDS = int(os.environ.get("LIMIT_ROUNDS", "1"))
PROCESSES = 4
FIELDS = ("price", "location", "region", "title")
LONGEST = 600  # seconds of the long form


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    with postgres.database() as url:
        yield url


def people(folder: Path, url: str, count: int) -> list[Person]:
    with Harness(folder / "data", database=url) as harness:
        return [harness.person(f"alice{number}") for number in range(count)]


def program(folder: Path, url: str, **environment: str) -> Program:
    return Program(
        folder,
        LISTINGS_DATABASE_URL=url,
        LISTINGS_DATABASE_CONNECTIONS="4",
        LISTINGS_DATABASE_TIMEOUT="120",
        LISTINGS_LOG_LEVEL="error",
        **environment,
    )


# Updates


class Editor(threading.Thread):
    """Counts up in one field of a listing, by one process; notes each time that another's write has undone its own."""

    def __init__(self, connection: Connection, person: Person, listing_id: int, field: str) -> None:
        super().__init__(daemon=True)
        self._connection = connection
        self._ask = (f"{PATH}/{listing_id}", person.key)
        self._field = field
        self.lost: list[object] = []
        self.done = 0

    def value(self, number: int) -> object:
        return number if self._field == "price" else str(number)

    def run(self) -> None:
        for number in range(1, UPDATES // PROCESSES + 1):
            body = json.dumps({self._field: self.value(number)}).encode()
            changed = self._connection.send(request("PATCH", *self._ask, body=body)).read_response()
            assert changed.status == 200, changed
            found = self._connection.send(request("GET", *self._ask)).read_response().json()
            if found[self._field] != self.value(number):
                self.lost.append((number, found))
            self.done = number


def test_updates_of_different_fields_by_four_processes_are_all_kept(
    tmp_path: Path, postgres: PostgresServer, url: str
) -> None:
    (alice,) = people(tmp_path, url, 1)
    service = program(tmp_path, url, LISTINGS_WORKERS=str(PROCESSES), LISTINGS_RATE_LIMIT="0")
    with service.serve() as serving, connections_to_each(serving, PROCESSES) as connections:
        listing_id = serving.create(alice.key)
        editors = [
            Editor(of_one[0], alice, listing_id, field) for of_one, field in zip(connections, FIELDS, strict=True)
        ]
        for editor in editors:
            editor.start()
        for editor in editors:
            editor.join(LONGEST)
        record = serving.read(alice.key, listing_id).json()
    assert [(editor.done, editor.lost) for editor in editors] == [(UPDATES // PROCESSES, [])] * PROCESSES
    assert [record[field] for field in FIELDS] == [editor.value(UPDATES // PROCESSES) for editor in editors]
    database = url.rpartition("/")[2].partition("?")[0]
    assert postgres.execute("SELECT version FROM listings", database) == [(1 + UPDATES // PROCESSES * PROCESSES,)]


# The limit


def statuses(services: list[Serving], person: Person) -> Counter[int]:
    """What 1,500 requests with one key come to, on 64 connections that are spread over the services."""
    found: list[int] = []
    asked = request("GET", f"{PATH}?limit=1", person.key)

    def fetch(number: int, count: int) -> None:
        with Connection(services[number % len(services)]) as connection:
            found.extend(connection.send(asked).read_response().status for _ in range(count))

    counts = [1500 // 64 + (number < 1500 % 64) for number in range(64)]
    clients = [threading.Thread(target=fetch, args=pair) for pair in enumerate(counts)]
    for client in clients:
        client.start()
    for client in clients:
        client.join(DEADLINE)
    return Counter(found)


def test_the_processes_of_one_machine_count_a_key_exactly(tmp_path: Path, url: str) -> None:
    everybody = people(tmp_path, url, ROUNDS)
    with program(tmp_path, url, LISTINGS_WORKERS=str(PROCESSES)).serve() as serving:
        for person in everybody:
            assert statuses([serving], person) == {200: 1000, 429: 500}


def test_the_processes_of_several_machines_count_a_key_exactly(
    tmp_path: Path, url: str, redis_server: RedisServer
) -> None:
    everybody = people(tmp_path / "0", url, ROUNDS)
    shared = {"LISTINGS_REDIS_URL": redis_server.url, "LISTINGS_REDIS_TIMEOUT": "10000", "LISTINGS_WORKERS": "2"}
    with ExitStack() as stack:
        services = []
        for machine in range(PROCESSES // 2):
            folder = tmp_path / str(machine)
            folder.mkdir(exist_ok=True)
            services.append(stack.enter_context(program(folder, url, **shared).serve()))
        for person in everybody:
            assert statuses(services, person) == {200: 1000, 429: 500}
