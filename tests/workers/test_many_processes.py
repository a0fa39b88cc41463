"""Several processes on one PostgreSQL lose no update."""

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import Program
from tests.cli.crowds import PATH, connections_to_each
from tests.harness import Harness, Person
from tests.http.raw import Connection, request
from tests.postgres_server import PostgresServer

pytestmark = [pytest.mark.slow, pytest.mark.uncovered]

UPDATES = int(os.environ.get("LISTINGS_TEST_UPDATES", "400"))
PROCESSES = 4
FIELDS = ("price", "location", "region", "title")
JOIN_TIMEOUT_SECONDS = 600  # for the long variant


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


class Editor(threading.Thread):
    """Increments one field of a listing through one process, and records updates that another write has undone."""

    def __init__(self, connection: Connection, person: Person, listing_id: int, field: str) -> None:
        super().__init__(daemon=True)
        self._connection = connection
        self._target = (f"{PATH}/{listing_id}", person.key)
        self._field = field
        self.lost: list[object] = []
        self.done = 0

    def value(self, number: int) -> object:
        return number if self._field == "price" else str(number)

    def run(self) -> None:
        for number in range(1, UPDATES // PROCESSES + 1):
            body = json.dumps({self._field: self.value(number)}).encode()
            updated = self._connection.send(request("PATCH", *self._target, body=body)).read_response()
            assert updated.status == 200, updated
            record = self._connection.send(request("GET", *self._target)).read_response().json()
            if record[self._field] != self.value(number):
                self.lost.append((number, record))
            self.done = number


def test_four_processes_lose_no_update_of_different_fields(tmp_path: Path, postgres: PostgresServer, url: str) -> None:
    (alice,) = people(tmp_path, url, 1)
    service = program(tmp_path, url, LISTINGS_WORKERS=str(PROCESSES), LISTINGS_RATE_LIMIT="0")
    with service.serve() as serving, connections_to_each(serving, PROCESSES) as connections:
        listing_id = serving.create(alice.key)
        editors = [
            Editor(of_process[0], alice, listing_id, field)
            for of_process, field in zip(connections, FIELDS, strict=True)
        ]
        for editor in editors:
            editor.start()
        for editor in editors:
            editor.join(JOIN_TIMEOUT_SECONDS)
        record = serving.read(alice.key, listing_id).json()
    assert [(editor.done, editor.lost) for editor in editors] == [(UPDATES // PROCESSES, [])] * PROCESSES
    assert [record[field] for field in FIELDS] == [editor.value(UPDATES // PROCESSES) for editor in editors]
    database = url.rpartition("/")[2].partition("?")[0]
    assert postgres.execute("SELECT version FROM listings", database) == [(1 + UPDATES // PROCESSES * PROCESSES,)]
