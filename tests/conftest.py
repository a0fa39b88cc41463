"""Fixtures of all tests."""

import logging
import os
import ssl
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import settings

from tests.houses import Cast, Ground, House, Person, RunningService, in_a_file
from tests.postgres_server import DatabasesOfFolders, PostgresServer
from tests.redis_server import RedisServer

settings.register_profile("listings", deadline=None, derandomize=True)
settings.load_profile("listings")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a test that was skipped has failed: every one can run there."""
    report = yield
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
    return report


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL for all tests; each has databases of its own."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """What houses have their data in: "sqlite", or "postgres" where a test is run on both (tests/api/conftest.py)."""
    name = getattr(request, "param", "sqlite")
    if name == "sqlite":
        yield name
        return
    with DatabasesOfFolders(request.getfixturevalue("postgres")) as databases:
        Ground.database_of = databases.of
        yield name
        Ground.database_of = in_a_file


@pytest.fixture
def house(tmp_path: Path, engine: str) -> Iterator[House]:
    """The service in this process, with a clock to turn."""
    assert engine
    with House(tmp_path) as house:
        yield house


@pytest.fixture(scope="session")
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, engine: str
) -> Iterator[RunningService]:
    """One service behind a real socket for all tests; each test has a cast of its own.

    It answers once by the protocol's own extension and once as any ASGI application does.
    """
    folder = tmp_path_factory.mktemp(f"running-{engine}")
    with RunningService(folder, plain=getattr(request, "param", "one write") == "plain ASGI") as service:
        yield service


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One Redis for all tests, which tell their keys apart by the database's id; none may stop or change it."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def cast(running: RunningService) -> Cast:
    """alice, bob and charlie, new for each test."""
    return running.cast()


class Client:
    """Calls the API over HTTP with somebody's key."""

    def __init__(self, http: httpx.Client, person: Person) -> None:
        self.person = person
        self._http = http

    def request(self, method: str, path: str = "", **more: Any) -> httpx.Response:
        """`path` is below /api/v1/listings; headers given win over the key's."""
        headers = {"X-API-Key": self.person.key} | more.pop("headers", {})
        return self._http.request(method, f"/api/v1/listings{path}", headers=headers, **more)

    def get(self, path: str = "", **more: Any) -> httpx.Response:
        return self.request("GET", path, **more)

    def post(self, path: str = "", **more: Any) -> httpx.Response:
        return self.request("POST", path, **more)

    def patch(self, path: str = "", **more: Any) -> httpx.Response:
        return self.request("PATCH", path, **more)

    def put(self, path: str = "", **more: Any) -> httpx.Response:
        return self.request("PUT", path, **more)

    def delete(self, path: str = "", **more: Any) -> httpx.Response:
        return self.request("DELETE", path, **more)

    def create(self, **fields: object) -> int:
        """A listing with these fields; returns its id."""
        response = self.post(json={"title": "Bicycle", "content": "Two wheels.", **fields})
        assert response.status_code == 201, response.text
        return int(response.json()["id"])

    def read(self, listing_id: int) -> dict[str, object]:
        """The record of a listing."""
        response = self.get(f"/{listing_id}")
        assert response.status_code == 200, response.text
        record: dict[str, object] = response.json()
        return record


@pytest.fixture
def http(running: RunningService) -> Iterator[httpx.Client]:
    """A connection without any key."""
    no_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # httpx's own loads every authority, 30 ms a client
    with httpx.Client(base_url=running.base_url, timeout=10, verify=no_tls) as client:
        yield client


@pytest.fixture
def alice(http: httpx.Client, cast: Cast) -> Client:
    """The owner."""
    return Client(http, cast.alice)


@pytest.fixture
def bob(http: httpx.Client, cast: Cast) -> Client:
    """Another account."""
    return Client(http, cast.bob)


@pytest.fixture
def charlie(http: httpx.Client, cast: Cast) -> Client:
    """An account whose plan has expired."""
    return Client(http, cast.charlie)


@pytest.fixture
def logging_kept() -> Iterator[None]:
    """Logging is as before, whatever a command has set it to."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
