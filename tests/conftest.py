"""Fixtures of all tests."""

import logging
import os
import signal
import ssl
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, settings

from listings import is_compiled
from listings.store.postgres import pool
from tests.citus_cluster import ADDRESS, CitusCluster
from tests.harness import TIMEOUT, Cast, DatabaseLocation, Harness, Person, RunningService, in_a_file
from tests.postgres_server import FolderDatabases, PostgresServer
from tests.redis_server import RedisServer

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or every one of hundreds of programs would be compiled anew
os.environ.pop("PYTHONUNBUFFERED", None)  # users' programs have buffers

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a job in a shell's background, as whose programs would be, too
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A machine that is busy is slow to draw examples, too.
settings.register_profile("listings", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("listings")


def pytest_sessionstart() -> None:
    """What is meant to test the compiled program must not pass by testing another."""
    if os.environ.get("LISTINGS_TEST_COMPILED") and not is_compiled():
        raise pytest.UsageError("Nothing is compiled that could be tested: see `make test-compiled`")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--decision", metavar="ROW", help="run only the tests of this row of docs/decisions.md")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Start the slow files first, so that the last process does not run one of them alone."""
    if decision := config.getoption("decision"):
        items[:] = [item for item in items if any(decision in mark.args for mark in item.iter_markers("decision"))]
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a test that was skipped has failed: every one can run there."""
    report = yield
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
    return report


@pytest.fixture(scope="session", autouse=True)
def _patient() -> Iterator[None]:
    """What is sent behind a refusal may come late from a machine that stands still for seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("listings.http.connection._DISCARD_SECONDS", TIMEOUT / 2)
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL for all tests; each has databases of its own.

    On a machine that stands still for seconds to connect may take that long.
    """
    with pytest.MonkeyPatch.context() as patch, PostgresServer() as server:
        patch.setattr(pool, "_MIN_CONNECT_TIMEOUT_SECONDS", TIMEOUT)
        yield server


@pytest.fixture(scope="session")
def citus() -> Iterator[CitusCluster]:
    """The cluster at LISTINGS_TEST_CITUS_URL, with databases of this run."""
    with CitusCluster(ADDRESS) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def databases_in_postgres(postgres: PostgresServer) -> Iterator[FolderDatabases]:
    """A database for each folder of a house."""
    with FolderDatabases(postgres) as databases:
        yield databases


@pytest.fixture(scope="session")
def databases_in_citus(citus: CitusCluster) -> Iterator[FolderDatabases]:
    """The same on Citus."""
    with FolderDatabases(citus) as databases:
        yield databases


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """What houses have their data in: "sqlite", or another where a test is run on all (tests/api/conftest.py)."""
    name = getattr(request, "param", "sqlite")
    if name == "sqlite":
        yield name
        return
    databases: FolderDatabases = request.getfixturevalue(f"databases_in_{name}")
    if "running" in request.fixturenames:
        request.getfixturevalue(f"running_on_{name}")  # before the look at what is lent: it stays for the next test
    before = databases.folders
    DatabaseLocation.database_of = databases.get_url
    yield name
    DatabaseLocation.database_of = in_a_file
    for folder in databases.folders - before:
        databases.release(folder)


@pytest.fixture
def harness(tmp_path: Path, engine: str) -> Iterator[Harness]:
    """The service in this process, with a clock to turn."""
    assert engine
    with Harness(tmp_path) as harness:
        yield harness


@pytest.fixture(scope="session")
def running_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[bool], RunningService]]:
    """Starts a service that answers by the protocol's own extension, or one that does not; each once a process."""
    services: dict[bool, RunningService] = {}
    with ExitStack() as stack:

        def once(plain: bool) -> RunningService:  # noqa: FBT001 - of two kinds
            if plain not in services:
                folder = tmp_path_factory.mktemp("running")
                services[plain] = stack.enter_context(RunningService(folder, plain=plain))
            return services[plain]

        yield once


@pytest.fixture(scope="session")
def running_on_postgres(
    tmp_path_factory: pytest.TempPathFactory, databases_in_postgres: FolderDatabases
) -> Iterator[RunningService]:
    """One service over PostgreSQL."""
    folder = tmp_path_factory.mktemp("running-on-postgres")
    with RunningService(folder, database=databases_in_postgres.get_url(folder)) as service:
        yield service


@pytest.fixture(scope="session")
def running_on_citus(
    tmp_path_factory: pytest.TempPathFactory, databases_in_citus: FolderDatabases
) -> Iterator[RunningService]:
    """One service over Citus."""
    folder = tmp_path_factory.mktemp("running-on-citus")
    with RunningService(folder, database=databases_in_citus.get_url(folder)) as service:
        yield service


@pytest.fixture
def running(request: pytest.FixtureRequest, engine: str) -> RunningService:
    """One service behind a real socket for all tests; each test has a cast of its own.

    Tests of the API get one that answers in one write and one that answers as any ASGI application.
    """
    if engine != "sqlite":
        elsewhere: RunningService = request.getfixturevalue(f"running_on_{engine}")
        return elsewhere
    once: Callable[[bool], RunningService] = request.getfixturevalue("running_once")
    return once(getattr(request, "param", "one write") == "plain ASGI")


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


class OnePerThread(httpx.BaseTransport):
    """Connections that no other thread uses: of a pool that they share one may close what another has just taken."""

    _NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # httpx's own loads every authority, 30 ms a client

    def __init__(self) -> None:
        self._own = threading.local()
        self._all: list[httpx.HTTPTransport] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if not hasattr(self._own, "transport"):
            self._own.transport = httpx.HTTPTransport(verify=self._NO_TLS)
            self._all.append(self._own.transport)
        response: httpx.Response = self._own.transport.handle_request(request)
        return response

    def close(self) -> None:
        for transport in self._all:
            transport.close()


@pytest.fixture
def http(running: RunningService) -> Iterator[httpx.Client]:
    """A connection without any key, and one of its own for each thread."""
    with httpx.Client(base_url=running.base_url, timeout=TIMEOUT, transport=OnePerThread()) as client:
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
