"""GET /metrics on a separate listener: the values of all metrics, and no personal data in labels."""

import fcntl
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from bench.data import store_of
from listings import __version__
from listings.api.routes import ROUTES
from listings.domain.errors import Problem
from listings.domain.mail import NewMail
from listings.domain.pictures import Picture
from listings.http.limits import ConnectionLimits
from listings.service import Services
from listings.site.market import ROUTES as MARKET
from listings.store.sqlite.maintenance.backup import back_up
from listings.telemetry.metrics import Listener, Metrics
from tests.cli.commands import DEADLINE, Program, Serving
from tests.harness import Cast, RunningService
from tests.http.raw import Connection, request
from tests.postgres_server import PostgresServer
from tests.processes import list_open_files

LISTINGS = "/api/v1/listings"
LISTING = "/api/v1/listings/{id}"
IPV6 = Path("/proc/net/if_inet6")
LOOPBACKS = ["127.0.0.1", *(["::1"] if IPV6.exists() and "0" * 31 + "1 " in IPV6.read_text("ascii") else [])]
FAIL = """
DO $do$ BEGIN
    CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'No space left on device' USING ERRCODE = '53100';
    END $$;
    CREATE TRIGGER fail BEFORE INSERT ON listings FOR EACH ROW EXECUTE FUNCTION fail();
END $do$
"""
BICYCLE = b'{"title": "Bicycle", "content": "Two wheels."}'

# Every label, with a pattern of its possible values.
ROUTE = "|".join(re.escape(route) for route in [*ROUTES, *(page.path for page in MARKET), "-"])
ALLOWED = {
    "method": "GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|TRACE|CONNECT|other|-",
    "route": ROUTE,
    "status": "[2-5][0-9][0-9]",
    "le": r"[0-9.]+|\+Inf",
    "version": re.escape(__version__) + r"|3\.\d+\.\d+",
    "implementation": "CPython",
    "major": r"\d+",
    "minor": r"\d+",
    "patchlevel": r"\d+",
    "generation": "[012]",
    "outcome": "sent|failed|given_up",
    "reason": "",  # why the service is not ready
    "state": "in_use|waiting",
}


class Scrape:
    def __init__(self, url: str) -> None:
        response = httpx2.get(url, trust_env=False, timeout=DEADLINE)
        assert response.status_code == 200
        self.text = response.text
        families = text_string_to_metric_families(response.text)
        self.samples = [sample for family in families for sample in family.samples]

    def __call__(self, name: str, **labels: str) -> float:
        """Return the value of a series, or 0 if it does not exist yet."""
        found = [sample.value for sample in self.samples if (sample.name, sample.labels) == (name, labels)]
        assert len(found) <= 1
        return found[0] if found else 0

    def requests(self, method: str, route: str, status: int) -> float:
        return self("listings_requests_total", method=method, route=route, status=str(status))


class Measured:
    def __init__(self, service: RunningService) -> None:
        assert service.observers.metrics is not None
        self.service = service
        self.base_url = service.base_url
        self.url = service.observers.metrics.url
        self.before = self.scrape()

    def scrape(self) -> Scrape:
        return Scrape(self.url)

    def send(self, *data: bytes) -> int:
        """Send bytes and return the status of the response."""
        with Connection(self).send(*data) as connection:
            return connection.read_response().status

    def wait_for(self, condition: Callable[[Scrape], bool]) -> Scrape:
        deadline = time.monotonic() + DEADLINE
        while not condition(scrape := self.scrape()):
            assert time.monotonic() < deadline, scrape.text
        return scrape


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    folder = tmp_path_factory.mktemp("metrics")
    with pytest.MonkeyPatch.context() as patch:
        for interval in ("MINUTELY_SECONDS", "USAGE_SECONDS", "MARKET_SECONDS", "STAMP_SECONDS"):
            patch.setattr(f"listings.service.background_tasks.{interval}", 24 * 3600)  # so that only the tests write
        with RunningService(folder, metrics_address="0", rate_limit="50") as service:
            yield service


@pytest.fixture
def measured(service: RunningService) -> Measured:
    return Measured(service)


@pytest.fixture
def cast(service: RunningService) -> Cast:
    return service.cast()


def test_a_response_is_counted_by_method_route_and_status(measured: Measured, cast: Cast) -> None:
    key = cast.alice.key
    for _ in range(3):
        assert measured.send(request("POST", LISTINGS, key, body=BICYCLE)) == 201
    assert measured.send(request("GET", f"{LISTINGS}/77777", key)) == 404
    assert measured.send(request("GET", LISTINGS, cast.charlie.key)) == 403
    after = measured.scrape()
    for method, route, status, count in (
        ("POST", LISTINGS, 201, 3),
        ("GET", LISTING, 404, 1),
        ("GET", LISTINGS, 403, 1),
        ("GET", LISTINGS, 200, 0),
    ):
        assert after.requests(method, route, status) - measured.before.requests(method, route, status) == count


def test_the_duration_of_a_response_is_measured_by_route(measured: Measured) -> None:
    started = time.monotonic()
    for _ in range(5):
        measured.send(request("GET", "/healthz"))
    elapsed = time.monotonic() - started
    after = measured.scrape()
    name = "listings_request_duration_seconds"
    assert after(f"{name}_count", route="/healthz") - measured.before(f"{name}_count", route="/healthz") == 5
    assert 0 < after(f"{name}_sum", route="/healthz") - measured.before(f"{name}_sum", route="/healthz") < elapsed
    bounds = [
        float(sample.labels["le"])
        for sample in after.samples
        if sample.name == f"{name}_bucket" and sample.labels["route"] == "/healthz"
    ]
    assert (bounds[0], bounds[-2], bounds[-1]) == (0.0005, 10, float("inf"))
    assert len(bounds) == 15


def test_all_unknown_paths_share_one_route(measured: Measured) -> None:
    for number in range(20):
        assert measured.send(request("GET", f"/wp-{number}.php")) == 404
    after = measured.scrape()
    assert after.requests("GET", "-", 404) - measured.before.requests("GET", "-", 404) == 20
    assert "wp-" not in after.text


def test_all_unknown_methods_share_one_label(measured: Measured, cast: Cast) -> None:
    for method in ("PROPFIND", "MKCOL", "PURGE"):
        assert measured.send(request(method, LISTINGS, cast.alice.key)) == 405
    after = measured.scrape()
    assert after.requests("other", LISTINGS, 405) - measured.before.requests("other", LISTINGS, 405) == 3
    assert "PROPFIND" not in after.text


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"invalid\r\n\r\n", 400),
        (b"GET /" + b"x" * 9_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"A: b\r\n" * 101 + b"\r\n", 431),
        (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
    ],
)
def test_input_that_is_not_a_request_is_counted_without_a_duration(
    measured: Measured, data: bytes, status: int
) -> None:
    name = "listings_request_duration_seconds_count"
    assert measured.send(data) == status
    after = measured.scrape()
    assert after.requests("-", "-", status) - measured.before.requests("-", "-", status) == 1
    assert after(name, route="-") == measured.before(name, route="-")


def test_a_request_timeout_is_counted_without_a_duration(tmp_path: Path) -> None:
    with RunningService(tmp_path, limits=ConnectionLimits(header_seconds=1), metrics_address="0") as service:
        measured = Measured(service)
        assert measured.send(b"GET / HTTP/1.1\r\nHost: a\r\n") == 408
        after = measured.scrape()
    assert after.requests("-", "-", 408) == 1
    assert after("listings_request_duration_seconds_count", route="-") == 0


def test_rate_limited_requests_are_counted(measured: Measured, cast: Cast) -> None:
    statuses = [measured.send(request("GET", LISTINGS, cast.bob.key)) for _ in range(53)]
    assert statuses.count(429) == 3
    after = measured.scrape()
    assert after("listings_rate_limited_total") - measured.before("listings_rate_limited_total") == 3
    assert after.requests("GET", LISTINGS, 429) - measured.before.requests("GET", LISTINGS, 429) == 3


def test_no_label_has_personal_data_for_any_request(measured: Measured, cast: Cast) -> None:
    keys = [cast.alice.key, cast.charlie.key, "an-unknown-api-key-here", None]
    methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "LINK"]
    paths = [
        *(route.replace("{id}", "1025") for route in ROUTES),
        f"{LISTINGS}/x/y",
        "/%00",
        "/metrics",
        f"/?k={keys[0]}",
    ]
    requests = [request(method, path, key) for method in methods for path in paths for key in keys]
    for data in [*requests, b"BREW / HTTP/1.1\r\n\r\n"]:
        with Connection(measured).send(data) as connection:
            assert connection.socket.recv(100).startswith(b"HTTP/1.1 ")
    after = measured.scrape()
    for sample in after.samples:
        for label, value in sample.labels.items():
            assert re.fullmatch(ALLOWED[label], value), sample
    for person in cast:
        assert person.key not in after.text
        assert person.account.email not in after.text


def test_open_connections_and_their_maximum_are_reported(measured: Measured) -> None:
    connections = [Connection(measured).send(request("GET", "/healthz")) for _ in range(3)]
    for connection in connections:
        connection.read_response()  # otherwise the server closes it after a second
    after = measured.wait_for(lambda scrape: scrape("listings_connections") == 3)
    assert after("listings_connections_max") == measured.service.settings.max_connections
    for connection in connections:
        connection.socket.close()
    measured.wait_for(lambda scrape: scrape("listings_connections") == 0)


def test_batches_are_counted_with_their_size_and_duration(measured: Measured, cast: Cast) -> None:
    before = measured.scrape()
    for _ in range(4):
        assert measured.send(request("POST", LISTINGS, cast.alice.key, body=BICYCLE)) == 201
    after = measured.scrape()
    for name, growth in (
        ("listings_write_batch_size_count", 4),
        ("listings_write_batch_size_sum", 4),
        ("listings_write_batch_duration_seconds_count", 4),
        ("listings_write_batches_failed_total", 0),
    ):
        assert after(name) - before(name) == growth
    assert after("listings_write_batch_duration_seconds_sum") > before("listings_write_batch_duration_seconds_sum")


def test_queued_writes_are_reported(measured: Measured, cast: Cast) -> None:
    descriptor = os.open(f"{measured.service.settings.database}.lock", os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    data = request("POST", LISTINGS, cast.alice.key, body=BICYCLE)
    connections = [Connection(measured).send(data) for _ in range(3)]
    try:
        measured.wait_for(lambda scrape: scrape("listings_writes_waiting") == 3)
    finally:
        os.close(descriptor)
    for connection in connections:
        with connection:
            assert connection.read_response().status == 201
    assert measured.scrape()("listings_writes_waiting") == 0


def test_a_failed_batch_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("listings.store.sqlite.connections.WRITER_BUSY_TIMEOUT_MS", 10)
    with RunningService(tmp_path, metrics_address="0") as service:
        key = service.cast().alice.key
        measured = Measured(service)
        other = apsw.Connection(str(service.settings.database))
        other.execute("BEGIN IMMEDIATE")
        assert [measured.send(request("POST", LISTINGS, key, body=BICYCLE)) for _ in range(2)] == [503] * 2
        other.close()
        after = measured.scrape()
    assert after("listings_write_batches_failed_total") == 2
    assert after.requests("POST", LISTINGS, 503) == 2
    failures = [record for record in caplog.records if "A batch of 1 writes failed" in record.message]
    assert [bool(record.exc_info) for record in failures] == [True, False]  # one traceback


def test_a_failed_write_to_postgresql_is_counted(postgres: PostgresServer, tmp_path: Path) -> None:
    with (
        postgres.database(altered=True) as url,
        RunningService(tmp_path, metrics_address="0", database=url, site="off") as service,
    ):
        key = service.cast().alice.key
        measured = Measured(service)
        postgres.execute(FAIL, url.rpartition("/")[2].partition("?")[0])
        assert measured.send(request("POST", LISTINGS, key, body=BICYCLE)) == 503
        assert measured.scrape()("listings_write_batches_failed_total") == 1


def test_the_sizes_of_the_database_files_are_reported(measured: Measured, cast: Cast) -> None:
    assert measured.send(request("POST", LISTINGS, cast.alice.key, body=BICYCLE)) == 201
    database = measured.service.settings.file
    after = measured.scrape()
    assert after("listings_database_bytes") == database.stat().st_size > 0
    assert after("listings_database_wal_bytes") == database.with_name("listings.db-wal").stat().st_size > 0


def test_the_state_of_the_service_is_reported(measured: Measured, cast: Cast) -> None:
    service, mail_time = measured.service, 1_700_000_000
    mail = NewMail("m", "password_reset", cast.alice.account.email, None, "{}", mail_time)
    service.run(lambda services: store_of(services).add_mail(mail))
    picture = Picture("f" * 32, cast.alice.account.id, 1, 1, 12_345, 1)
    service.run(lambda services: store_of(services).add_picture(picture, bytes(32), 20_000))
    back_up(service.settings.file, service.settings.file.with_name("backup.db"))
    service.run(Services.report_state)
    after = measured.scrape()
    assert after("listings_ready", reason="") == 1
    assert after("listings_disk_free_bytes") > 0
    assert after("listings_last_backup_timestamp_seconds") == pytest.approx(time.time(), abs=DEADLINE)
    assert after("listings_mail_oldest_timestamp_seconds") == mail_time
    assert after("listings_stored_bytes") > 0
    assert after("listings_picture_bytes") == 12_345


async def report_shutdown(services: Services) -> None:
    services.begin_shutdown()
    await services.report_state()


def test_the_reason_is_reported_while_the_service_is_not_ready(tmp_path: Path) -> None:
    with RunningService(tmp_path, metrics_address="0") as service:
        measured = Measured(service)
        service.run(report_shutdown)
        scrape = measured.scrape()
    assert scrape("listings_ready", reason="The service is stopping") == 0
    assert len([sample for sample in scrape.samples if sample.name == "listings_ready"]) == 1


def test_sessions_of_postgresql_are_counted(postgres: PostgresServer, tmp_path: Path) -> None:
    with postgres.database() as url, RunningService(tmp_path, metrics_address="0", database=url) as service:
        scrape = Measured(service).scrape()
    assert scrape("listings_database_sessions", state="waiting") == 0
    assert {sample.labels["state"] for sample in scrape.samples if sample.name == "listings_database_sessions"} == {
        "in_use",
        "waiting",
    }


def test_version_process_and_garbage_collector_are_reported(measured: Measured) -> None:
    assert measured.before("listings_build_info", version=__version__) == 1
    assert measured.before("process_resident_memory_bytes") > 1_000_000
    assert measured.before("process_open_fds") > 3
    assert measured.before("python_gc_collections_total", generation="0") > 0


def find_listening_ports(serving: Serving) -> list[int]:
    files = list_open_files(serving.process.pid).values()
    inodes = {file.removeprefix("socket:[").rstrip("]") for file in files if file.startswith("socket:")}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]]
    return sorted(int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and row[9] in inodes)


def find_metrics_url(serving: Serving) -> str:
    (line,) = (line for line in serving.lines if line.startswith("Metrics are at "))
    return line.removeprefix("Metrics are at ")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path, LISTINGS_METRICS_ADDRESS="0")


def test_by_default_only_the_service_listens(tmp_path: Path) -> None:
    with Program(tmp_path).serve() as serving:
        assert find_listening_ports(serving) == [serving.http.base_url.port]
        assert not [line for line in serving.lines if "etrics" in line]


def test_metrics_have_a_separate_port_on_this_machine(program: Program) -> None:
    with program.serve() as serving:
        url = httpx2.URL(find_metrics_url(serving))
        assert url.host == "127.0.0.1"
        assert find_listening_ports(serving) == sorted([serving.http.base_url.port or 0, url.port or 0])
        assert Scrape(str(url))("listings_build_info", version=__version__) == 1


@pytest.mark.covers_programs
def test_the_metrics_address_can_be_set(tmp_path: Path) -> None:
    with Program(tmp_path, LISTINGS_METRICS_ADDRESS="127.0.0.2:0").serve() as serving:
        assert find_metrics_url(serving).startswith("http://127.0.0.2:")
        assert Scrape(find_metrics_url(serving)).samples


@pytest.mark.parametrize("host", LOOPBACKS)
def test_the_url_of_the_listener_has_brackets_around_ipv6(tmp_path: Path, host: str) -> None:
    listener = Listener(Metrics(tmp_path / "listings.db").registry, host, 0)
    assert re.fullmatch(rf"http://({re.escape(host)}|\[::1\]):\d+/metrics", listener.url)
    assert Scrape(listener.url).samples
    listener.close()


def test_metrics_and_the_service_have_different_ports(program: Program) -> None:
    with program.serve() as serving:
        assert serving.http.get("/metrics").status_code == 404
        response = httpx2.get(
            find_metrics_url(serving).replace("/metrics", "/healthz"), trust_env=False, timeout=DEADLINE
        )
        assert "ok" not in response.text.splitlines()[0]


def test_a_used_port_is_reported_before_anything_is_changed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        message = Program(tmp_path, LISTINGS_METRICS_ADDRESS=port).run("serve", "--port", "0").error_message
    assert f"port {port}" in message
    assert "LISTINGS_METRICS_ADDRESS" in message
    assert list(tmp_path.iterdir()) == []


def test_the_port_of_the_service_cannot_be_used_for_metrics(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
    message = Program(tmp_path, LISTINGS_METRICS_ADDRESS=port).run("serve", "--port", port).error_message
    assert f"port {port}" in message
    assert list(tmp_path.iterdir()) == []


def test_an_invalid_metrics_host_is_reported(tmp_path: Path) -> None:
    for host in ("no-such-host.invalid", "x" * 70):
        with pytest.raises(Problem, match="LISTINGS_METRICS_ADDRESS"):
            Listener(Metrics(tmp_path / "listings.db").registry, host, 0)


def test_stopping_the_service_closes_the_listener(program: Program) -> None:
    with program.serve() as serving:
        url = find_metrics_url(serving)
        Scrape(url)
        outcome = serving.stop()
    assert outcome.code == 0
    assert "Traceback" not in outcome.err
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(url, trust_env=False, timeout=DEADLINE)


def test_a_closed_listener_frees_its_port_and_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    listener = Listener(Metrics(tmp_path / "listings.db").registry, "127.0.0.1", 0)
    port = httpx2.URL(listener.url).port or 0
    Scrape(listener.url)
    listener.close()
    deadline = time.monotonic() + DEADLINE
    while threading.active_count() > before:  # the thread of the scrape ends after its response
        assert time.monotonic() < deadline
    with socket.create_server(("127.0.0.1", port)):
        pass
