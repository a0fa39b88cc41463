"""The service over HTTP while its PostgreSQL server restarts as after a crash."""

import os
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from tests.api.helpers import LISTINGS
from tests.harness import TIMEOUT, Cast, RunningService
from tests.postgres_server import PostgresServer

RESTARTS = int(os.environ.get("LISTINGS_TEST_RESTARTS", "3"))
BODY = b'{"title": "Lamp", "content": "Bright."}'


class Load(threading.Thread):
    """Sends requests one after the other over one connection, until `stopping` is set."""

    def __init__(self, service: RunningService, key: str, *, writes: bool) -> None:
        super().__init__(daemon=True)
        self.stopping = threading.Event()
        self.acknowledged: list[int] = []
        self.successes: list[float] = []  # times of successful responses
        self.rejected = 0
        self.failures: list[str] = []
        self._host = urlsplit(service.base_url).netloc
        self._headers = {"X-API-Key": key}
        self._writes = writes

    def run(self) -> None:
        connection = HTTPConnection(self._host, timeout=TIMEOUT)
        while not self.stopping.is_set():
            if self._writes and len(self.acknowledged) % 4:
                connection.request("PATCH", f"{LISTINGS}/{self.acknowledged[-1]}", b'{"price": 1}', self._headers)
            else:
                method, body = ("POST", BODY) if self._writes else ("GET", None)
                connection.request(method, LISTINGS, body, self._headers)
            response = connection.getresponse()
            self._record(response.status, response.getheader("Retry-After"), response.read())
        connection.close()

    def _record(self, status: int, retry_after: str | None, body: bytes) -> None:
        if status in {200, 201}:
            self.successes.append(time.monotonic())
            if self._writes:
                self.acknowledged.append(int(msgspec.json.decode(body).get("id", 0)) or self.acknowledged[-1])
        elif status == 503 and retry_after == "1" and set(msgspec.json.decode(body)) == {"error"}:
            self.rejected += 1
            time.sleep(0.01)
        else:
            self.failures.append(f"{status} {retry_after} {body[:200]!r}")


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.mark.timing
def test_restarts_lose_nothing_and_take_less_than_five_seconds(server: PostgresServer, tmp_path: Path) -> None:
    with server.database() as url, RunningService(tmp_path, database=url, rate_limit="0") as service:
        cast: Cast = service.cast()
        loads = [Load(service, person.key, writes=writes) for person in cast[:2] for writes in (True, True, False)]
        for load in loads:
            load.start()
        seconds = []
        for _ in range(RESTARTS):
            _wait_for_successes(loads, time.monotonic())
            server.restart()
            seconds.append(_wait_for_successes(loads, time.monotonic()))
        for load in loads:
            load.stopping.set()
            load.join(TIMEOUT)
        assert [failure for load in loads for failure in load.failures] == []
        assert median(seconds) < 5  # a busy machine may pause once in a while
        assert sum(load.rejected for load in loads) > 0
        acknowledged = {listing_id for load in loads for listing_id in load.acknowledged}
        assert len(acknowledged) > RESTARTS
        stored = {row[0] for row in server.execute("SELECT id FROM listings", _get_database_name(url))}
        assert acknowledged <= stored


def _wait_for_successes(loads: list[Any], since: float) -> float:
    """Wait until each load has had a successful response after `since`; return the seconds."""
    end = time.monotonic() + TIMEOUT
    while not all(load.successes and load.successes[-1] > since for load in loads):
        assert time.monotonic() < end
        assert all(load.is_alive() for load in loads)
        time.sleep(0.01)
    return time.monotonic() - since


def _get_database_name(url: str) -> str:
    return url.rpartition("/")[2].partition("?")[0]
