"""Fixtures shared by all tests."""

import gc
import logging
import os
import shutil
import signal
import ssl
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpcore2
import httpx2
import jinja2
import pytest
from hypothesis import HealthCheck, settings

from listings import is_compiled
from listings.http.connection import protocol
from listings.store.postgres import pool
from listings.store.postgres import store as postgres_store
from tests.citus_cluster import ADDRESS, CitusCluster, find_problem, hold_background_work
from tests.harness import TIMEOUT, Cast, DatabaseUrls, Harness, Person, RunningService, build_sqlite_url, create_member
from tests.postgres_server import FolderDatabases, PostgresServer
from tests.redis_server import RedisServer

if TYPE_CHECKING:
    from tests.mail_server import Mailbox
    from tests.s3_server import Bucket, S3Server

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # otherwise hundreds of subprocesses would compile every module
os.environ.pop("PYTHONUNBUFFERED", None)  # users run the program with buffering
_MEMORY = Path("/dev/shm")  # noqa: S108 - pytest makes a folder for this user in it
_MEMORY_BYTES = 4 * 2**30  # more than a run needs: 0.6 GiB were in use in the middle of one
if "TMPDIR" not in os.environ and _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _MEMORY_BYTES:
    os.environ["TMPDIR"] = str(_MEMORY)  # thousands of databases, none of which has to survive a power cut
    tempfile.tempdir = None  # pytest has already read the variable
_API_TESTS = Path(__file__).parent / "api"
collect_ignore = ["specification"]  # test_specification.py runs it as a program, as users do
COVERAGE_OF_PROGRAMS = "COVERAGE_PROCESS_CONFIG"
"""The variable with which coverage also measures the programs that tests start."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job; subprocesses would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Drawing examples is slow on a busy machine.
settings.register_profile("listings", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("listings")


def pytest_sessionstart() -> None:
    """Fail if the compiled program should be tested, but is not compiled."""
    if os.environ.get("LISTINGS_TEST_COMPILED") and not is_compiled():
        raise pytest.UsageError("The program is not compiled: run `make test-compiled`")
    if ADDRESS and (problem := find_problem()) is not None:
        raise pytest.UsageError(problem)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--decision", metavar="ROW", help="run only the tests of this row of docs/decisions.md")
    parser.addoption("--measure-all", action="store_true", help="measure the coverage of every test and its programs")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Start the slow files first, so that the last process does not run one of them alone."""
    if decision := config.getoption("decision"):
        items[:] = [item for item in items if any(decision in mark.args for mark in item.iter_markers("decision"))]
    for item in items:
        for mark in ("alone", "timing"):  # the Makefile finds the files of these tests by this text
            if item.get_closest_marker(mark) and f"mark.{mark}" not in item.path.read_text("utf-8"):
                raise pytest.UsageError(f"{item.path} must contain mark.{mark}")
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """Collect garbage rarely, and never search the modules and tests for it: they take a fifteenth of the user time."""
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report skipped tests with one line per reason. In CI they fail: everything they need must be installed there."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple):
        report.longrepr = ("tests", None, report.longrepr[2])  # type: ignore[assignment]  # no line number
        report.outcome = "failed" if os.environ.get("CI") else "skipped"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run a test marked `uncovered` and its threads without coverage, and programs unless it `covers_programs`."""
    with ExitStack() as stack:
        if COVERAGE_OF_PROGRAMS in os.environ and not item.config.getoption("measure_all"):
            is_covered_elsewhere = _is_covered_elsewhere(item)
            if is_covered_elsewhere:
                stack.enter_context(_without_coverage())
            if is_covered_elsewhere or item.get_closest_marker("covers_programs") is None:
                stack.enter_context(_without_coverage_of_programs())
        return (yield)


@contextmanager
def _without_coverage_of_programs() -> Iterator[None]:
    """Start programs unmeasured: measuring doubles the time of a short command."""
    measured = os.environ.pop(COVERAGE_OF_PROGRAMS)
    try:
        yield
    finally:
        os.environ[COVERAGE_OF_PROGRAMS] = measured


@contextmanager
def _without_coverage() -> Iterator[None]:
    trace, thread_trace = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    try:
        yield
    finally:
        threading.settrace(thread_trace)
        sys.settrace(trace)


def _is_covered_elsewhere(item: pytest.Item) -> bool:
    """Return whether other tests run the same code. The tests of the contract cover PostgreSQL's store."""
    is_api_on_postgres = item.path.is_relative_to(_API_TESTS) and "postgres" in item.name
    return is_api_on_postgres or item.get_closest_marker("uncovered") is not None


@pytest.fixture(scope="session", autouse=True)
def _long_timeouts() -> Iterator[None]:
    """Tolerate stalls of the machine: requests after a rejected one may arrive late."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "DISCARD_SECONDS", TIMEOUT / 2)
        yield


@pytest.fixture(scope="session", autouse=True)
def _templates_compiled_once() -> Iterator[None]:
    """Compile a template once, not for each service: that takes 40% of the time of the console's tests."""
    compile_template, compiled = jinja2.Environment.compile, dict[tuple[object, ...], Any]()

    def compile_once(self: jinja2.Environment, source: Any, name: Any = None, filename: Any = None) -> Any:
        options = (self.autoescape, self.trim_blocks, self.lstrip_blocks, *self.extensions)
        key = (source, name, filename, self.globals.get("path_prefix"), *options)  # the prefix is added to the source
        if key not in compiled:
            compiled[key] = compile_template(self, source, name, filename)
        return compiled[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jinja2.Environment, "compile", compile_once)
        yield


@pytest.fixture(scope="session", autouse=True)
def _certificates_loaded_once() -> Iterator[None]:
    """Load the trusted certificates once, not for each client: that takes 50 ms, and clients of services need none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpcore2, "default_ssl_context", cache(httpcore2.default_ssl_context))
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL server for all tests; each test has its own databases."""
    with _adapt_timing(), PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def citus() -> Iterator[CitusCluster]:
    with _adapt_timing(), CitusCluster(ADDRESS) as cluster:
        yield cluster


@contextmanager
def _adapt_timing() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "_MIN_CONNECT_TIMEOUT_SECONDS", TIMEOUT)
        patch.setattr(postgres_store, "_CALLER_CHANGE_SECONDS", 0)  # other processes are tested in test_revocation.py
        yield


@pytest.fixture(scope="session")
def databases_in_postgres(postgres: PostgresServer) -> Iterator[FolderDatabases]:
    with FolderDatabases(postgres) as databases:
        yield databases


@pytest.fixture(scope="session")
def databases_in_citus(citus: CitusCluster) -> Iterator[FolderDatabases]:
    with FolderDatabases(citus) as databases:
        yield databases


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """The engine of the harness: SQLite, or another one if a test is parametrised (tests/api/conftest.py)."""
    name = getattr(request, "param", "sqlite")
    if name == "sqlite":
        yield name
        return
    databases: FolderDatabases = request.getfixturevalue(f"databases_in_{name}")
    if "running" in request.fixturenames:
        request.getfixturevalue(f"running_on_{name}")  # first, so that its database is not released after this test
    before = databases.folders
    DatabaseUrls.build = databases.get_url
    yield name
    DatabaseUrls.build = build_sqlite_url
    for folder in databases.folders - before:
        databases.release(folder)


@pytest.fixture
def harness(tmp_path: Path, engine: str) -> Iterator[Harness]:
    """The service in this process, with a manual clock."""
    assert engine
    with Harness(tmp_path) as harness:
        yield harness


@pytest.fixture(scope="session")
def start_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[bool], RunningService]]:
    """Start services with and without the server's own ASGI extension, each at most once per process."""
    services: dict[bool, RunningService] = {}
    with ExitStack() as stack:

        def get_service(plain: bool) -> RunningService:  # noqa: FBT001 - a single argument
            if plain not in services:
                folder = tmp_path_factory.mktemp("running")
                services[plain] = stack.enter_context(RunningService(folder, plain=plain))
            return services[plain]

        yield get_service


@pytest.fixture(scope="session")
def running_on_postgres(
    tmp_path_factory: pytest.TempPathFactory, databases_in_postgres: FolderDatabases
) -> Iterator[RunningService]:
    folder = tmp_path_factory.mktemp("running-on-postgres")
    with RunningService(folder, database=databases_in_postgres.get_url(folder)) as service:
        yield service


@pytest.fixture(scope="session")
def running_on_citus(
    tmp_path_factory: pytest.TempPathFactory, databases_in_citus: FolderDatabases
) -> Iterator[RunningService]:
    folder = tmp_path_factory.mktemp("running-on-citus")
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            hold_background_work(patch)  # before the service starts, which reads the intervals once
            running = RunningService(folder, database=databases_in_citus.get_url(folder))
            stack.enter_context(running)
        yield running


@pytest.fixture
def running(request: pytest.FixtureRequest, engine: str) -> RunningService:
    """One service on a real socket for all tests; each test has its own accounts.

    API tests run with the server's own extension ("one write") and with plain ASGI.
    """
    if engine != "sqlite":
        service: RunningService = request.getfixturevalue(f"running_on_{engine}")
        return service
    get_service: Callable[[bool], RunningService] = request.getfixturevalue("start_once")
    return get_service(getattr(request, "param", "one write") == "plain ASGI")


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One Redis for all tests, with keys separated by database id; tests must not stop or change it."""
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def s3_server() -> Iterator["S3Server"]:
    """One S3 for all tests, each of which has a prefix of its own."""
    from tests.s3_server import S3Server  # noqa: PLC0415 - few tests need it

    with S3Server() as server:
        yield server


@pytest.fixture
def bucket(s3_server: "S3Server", monkeypatch: pytest.MonkeyPatch) -> "Bucket":
    """A bucket without pictures, which the environment gives access to."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return s3_server.create_bucket()


@pytest.fixture
def mailbox() -> Iterator["Mailbox"]:
    from tests.mail_server import run_mail_server  # noqa: PLC0415 - few tests need it

    with run_mail_server() as mailbox:
        yield mailbox


@pytest.fixture
def create_once(running: RunningService) -> Callable[[str], Person]:
    """Create a new account for alice, bob or charlie when the test first needs it."""
    return cache(lambda name: running.run(lambda services: create_member(services, name)))


@pytest.fixture
def cast(create_once: Callable[[str], Person]) -> Cast:
    """New accounts for alice, bob and charlie."""
    return Cast(*map(create_once, Cast._fields))


class Client:
    """Calls the API over HTTP with an account's key."""

    def __init__(self, http: httpx2.Client, person: Person) -> None:
        self.person = person
        self._http = http

    def request(self, method: str, path: str = "", **options: Any) -> httpx2.Response:
        """Send a request; `path` is relative to /api/v1/listings, and `headers` override the key."""
        headers = {"X-API-Key": self.person.key} | options.pop("headers", {})
        return self._http.request(method, f"/api/v1/listings{path}", headers=headers, **options)

    def get(self, path: str = "", **options: Any) -> httpx2.Response:
        return self.request("GET", path, **options)

    def post(self, path: str = "", **options: Any) -> httpx2.Response:
        return self.request("POST", path, **options)

    def patch(self, path: str = "", **options: Any) -> httpx2.Response:
        return self.request("PATCH", path, **options)

    def put(self, path: str = "", **options: Any) -> httpx2.Response:
        return self.request("PUT", path, **options)

    def delete(self, path: str = "", **options: Any) -> httpx2.Response:
        return self.request("DELETE", path, **options)

    def create(self, **fields: object) -> int:
        """Create a listing with these fields and return its id."""
        response = self.post(json={"title": "Bicycle", "content": "Two wheels.", **fields})
        assert response.status_code == 201, response.text
        return int(response.json()["id"])

    def read(self, listing_id: int) -> dict[str, object]:
        response = self.get(f"/{listing_id}")
        assert response.status_code == 200, response.text
        record: dict[str, object] = response.json()
        return record


class TransportPerThread(httpx2.BaseTransport):
    """Uses separate connections in each thread; a shared pool may close one that another thread has just taken."""

    _NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # httpx2's default loads all CA certificates, 30 ms per client

    def __init__(self) -> None:
        self._own = threading.local()
        self._all: list[httpx2.HTTPTransport] = []

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        if not hasattr(self._own, "transport"):
            self._own.transport = httpx2.HTTPTransport(verify=self._NO_TLS)
            self._all.append(self._own.transport)
        response: httpx2.Response = self._own.transport.handle_request(request)
        return response

    def close(self) -> None:
        for transport in self._all:
            transport.close()


@pytest.fixture
def http(running: RunningService) -> Iterator[httpx2.Client]:
    """A client without a key, with separate connections per thread."""
    with httpx2.Client(base_url=running.base_url, timeout=TIMEOUT, transport=TransportPerThread()) as client:
        yield client


@pytest.fixture
def alice(http: httpx2.Client, create_once: Callable[[str], Person]) -> Client:
    return Client(http, create_once("alice"))


@pytest.fixture
def bob(http: httpx2.Client, create_once: Callable[[str], Person]) -> Client:
    return Client(http, create_once("bob"))


@pytest.fixture
def charlie(http: httpx2.Client, create_once: Callable[[str], Person]) -> Client:
    return Client(http, create_once("charlie"))


@pytest.fixture
def restore_logging() -> Iterator[None]:
    """Restore the logging configuration, which commands change."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
