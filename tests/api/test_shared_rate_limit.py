"""The rate limit that several machines share through Redis, as clients and operators see it."""

import json
import os
import re
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hiredis
import httpx2
import pytest

from listings.cli.doctor import run_checks
from listings.ratelimit import redis_inspection
from listings.settings import resolve_all
from tests.api.helpers import LISTINGS
from tests.cli.commands import DEADLINE, PROGRAM, Program
from tests.harness import Harness, RunningService
from tests.processes import run_program
from tests.redis_server import RedisServer
from tests.telemetry.test_metrics import Scrape
from tests.waiting import until_async

READY = "/readyz"
ALL = "all machines that use this Redis"
MACHINE = "this machine, because Redis is unavailable"
NO_EVICTION = "maxmemory_policy:noeviction\r\n"
TIMEOUT = "10000"  # milliseconds to connect and for each response, on a busy machine


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def harness(tmp_path: Path, server: RedisServer) -> Iterator[Harness]:
    """The service in this process, with a limit of five requests per hour in Redis."""
    with Harness(tmp_path, rate_limit="5", redis=server.url, redis_timeout=TIMEOUT) as harness:
        yield harness


def test_headers_and_the_resource_show_the_count_of_redis(harness: Harness) -> None:
    key = harness.person("alice").key
    for remaining in ("4", "3"):
        assert harness.fetch("GET", LISTINGS, key=key).headers["x-ratelimit-remaining"] == remaining
    limit = harness.fetch("GET", "/api/v1/rate_limit", key=key).json()
    assert (limit["limit"], limit["remaining"]) == (5, 3)
    statuses = [harness.fetch("GET", LISTINGS, key=key).status for _ in range(4)]
    assert statuses == [200, 200, 200, 429]
    rejected = harness.fetch("GET", LISTINGS, key=key)
    assert 3_500 <= int(rejected.headers["retry-after"]) <= 3_600


def test_readiness_reports_the_scope_of_the_limit(harness: Harness, server: RedisServer) -> None:
    key = harness.person("alice").key
    assert harness.fetch("GET", READY).body == b'{"status":"ready","rate_limit":"%b"}' % ALL.encode()
    server.kill()
    response = harness.fetch("GET", READY)
    assert (response.status, response.json()) == (200, {"status": "ready", "rate_limit": MACHINE})
    assert [harness.fetch("GET", LISTINGS, key=key).status for _ in range(6)] == [200] * 5 + [429]


def test_a_required_redis_that_is_down_returns_503(tmp_path: Path, server: RedisServer) -> None:
    with Harness(tmp_path, redis=server.url, redis_timeout=TIMEOUT, redis_required="on") as harness:
        key = harness.person("alice").key
        assert harness.fetch("GET", LISTINGS, key=key).status == 200
        server.kill()
        for path, sent in ((LISTINGS, key), ("/api/v1/rate_limit", key), (READY, None)):
            rejected = harness.fetch("GET", path, key=sent)
            assert (rejected.status, rejected.headers["retry-after"]) == (503, "1")
            assert rejected.json() == {"error": "The rate limit can't be counted: Redis is unavailable"}
        server.start()
        limiter: Any = harness.services.limiter
        harness.run(until_async(lambda: limiter.scope == ALL))
        assert harness.fetch("GET", LISTINGS, key=key).status == 200


def test_metrics_report_an_outage_and_the_requests_counted_locally(tmp_path: Path, server: RedisServer) -> None:
    with (
        RunningService(tmp_path, redis=server.url, redis_timeout=TIMEOUT, metrics_address="0") as service,
        httpx2.Client(base_url=service.base_url, timeout=DEADLINE) as http,
    ):
        headers = {"X-API-Key": service.cast().alice.key}
        assert service.observers.metrics is not None
        url = service.observers.metrics.url

        def send_and_scrape(requests: int) -> tuple[float, float]:
            for _ in range(requests):
                assert http.get(LISTINGS, headers=headers).status_code == 200
            scrape = Scrape(url)
            return scrape("listings_rate_limit_away"), scrape("listings_rate_limit_local_total")

        assert send_and_scrape(3) == (0, 0)
        server.kill()
        assert send_and_scrape(3) == (1, 3)


def get_events(log: str) -> list[str]:
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    return [line["event"] for line in lines if line.get("logger") == "listings.ratelimit.fallback"]


def test_the_program_logs_the_start_and_end_of_an_outage(tmp_path: Path, server: RedisServer) -> None:
    program = Program(tmp_path, LISTINGS_REDIS_URL=server.url, LISTINGS_REDIS_TIMEOUT=TIMEOUT)
    with program.serve("--demo") as service:
        key = re.findall(r"lst_\w+", "\n".join(service.lines))[0]
        assert service.status(key) == 200
        server.kill()
        assert {service.status(key) for _ in range(20)} == {200}
        assert service.http.get(READY).json()["rate_limit"] == MACHINE
        server.start()
        while service.http.get(READY).json()["rate_limit"] != ALL:
            time.sleep(0.05)  # the log lines stay in the pipe
        logged = get_events(service.stop().err)
    assert logged[0] == f"Counting the requests of {ALL}"
    assert re.fullmatch(
        r"Redis is unavailable: .+\. Until it is back, only the requests of this machine are counted", logged[1]
    )
    assert re.fullmatch(rf"Redis is back after \d+ s: counting the requests of {ALL}", logged[2])
    assert len(logged) == 3


def test_a_service_stops_while_redis_hangs(tmp_path: Path, server: RedisServer) -> None:
    with Program(tmp_path, LISTINGS_REDIS_URL=server.url).serve() as service, server.frozen():
        outcome = service.stop()
    assert outcome.code == 0


def test_the_password_of_redis_is_never_shown_or_logged(tmp_path: Path) -> None:
    with RedisServer(password="hunter22") as server:
        url = server.url.replace("hunter22", "hunter33")
        program = Program(tmp_path, LISTINGS_REDIS_URL=url)
        settings, doctor = program.run("settings"), program.run("doctor")
        with program.serve() as service:
            log = "\n".join([*service.lines, service.stop().err])
    assert "redis://:***@127.0.0.1" in settings.out
    assert "WRONGPASS" in doctor.out
    assert "WRONGPASS" in log
    assert "hunter" not in settings.out + settings.err + doctor.out + doctor.err + log


def test_the_redis_client_is_loaded_only_if_redis_is_configured(tmp_path: Path) -> None:
    script = (
        "import sys; from listings.cli import main; code = main(['account', 'list']);"
        " print('hiredis' in sys.modules, file=sys.stderr); sys.exit(code)"
    )
    environment = {"LISTINGS_DATABASE_URL": f"sqlite:///{tmp_path}/listings.db", "PATH": os.environ["PATH"]}
    subprocess.run([PROGRAM, "migrate"], env=environment, check=True, capture_output=True)
    for url, loaded in (("", "False"), ("redis://127.0.0.1:1", "True")):
        outcome = run_program([sys.executable, "-c", script], env=environment | {"LISTINGS_REDIS_URL": url}, check=True)
        assert outcome.stderr.split()[-1] == loaded


def run_doctor(seconds: float = DEADLINE, **environment: str) -> dict[str, str | None]:
    """Return the result of the check of the rate limit; `seconds` is the timeout of Redis."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redis_inspection, "_TIMEOUT_SECONDS", seconds)
        result = dict(run_checks(resolve_all(environment, {})))["rate limit"]
    return result._asdict()


def test_the_doctor_reports_the_scope_of_the_limit() -> None:
    assert run_doctor()["found"] == "1,000 requests per key in 3600 s, counted across this machine"
    assert run_doctor(LISTINGS_RATE_LIMIT="0")["found"] == "Off, because LISTINGS_RATE_LIMIT is 0"


def test_the_doctor_reports_the_version_of_redis(server: RedisServer) -> None:
    with server.client() as client:
        before = client.keys()
        version = str(client.info("server")["redis_version"])
    found = run_doctor(LISTINGS_REDIS_URL=server.url)
    assert found["verdict"] == "ok"
    assert found["found"] == f"1,000 requests per key in 3600 s, counted across {ALL}, Redis {version}"
    with server.client() as client:
        assert client.keys() == before


def test_the_doctor_finds_a_redis_that_is_down(server: RedisServer) -> None:
    server.kill()
    found = run_doctor(LISTINGS_REDIS_URL=server.url)
    assert found["verdict"] == "fault"
    assert str(found["found"]).startswith("Redis can't be reached: ")


def test_the_doctor_finds_a_redis_that_hangs(server: RedisServer) -> None:
    with server.frozen():
        assert run_doctor(2, LISTINGS_REDIS_URL=server.url)["found"] == "Redis can't be reached: no response within 2 s"


def test_the_doctor_finds_a_redis_that_evicts_keys(server: RedisServer) -> None:
    with server.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
    found = run_doctor(LISTINGS_REDIS_URL=server.url)
    assert (found["verdict"], found["advice"]) == (
        "warning",
        "Set `maxmemory-policy noeviction` in Redis's configuration",
    )
    assert "maxmemory-policy is allkeys-lru" in str(found["found"])


def test_the_doctor_finds_a_replica(server: RedisServer) -> None:
    with server.client() as client:
        client.replicaof("127.0.0.1", 1)
    found = run_doctor(LISTINGS_REDIS_URL=server.url)
    assert found["verdict"] == "fault"
    assert "is a replica, which rejects writes" in str(found["found"])


def test_the_doctor_finds_a_cluster_node() -> None:
    with RedisServer(configuration="cluster-enabled yes\n") as server:
        found = run_doctor(LISTINGS_REDIS_URL=server.url)
    assert found["verdict"] == "fault"
    assert "is part of a Redis Cluster" in str(found["found"])


@contextmanager
def serve_fake_redis(info: str, ahead: int) -> Iterator[str]:
    """Serve a fake Redis with this INFO and a clock that is `ahead` seconds fast; return its URL."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            reader = hiredis.Reader()
            while data := self.request.recv(65_536):
                reader.feed(data)
                while command := reader.gets():
                    self.request.sendall(self.respond(command))

        def respond(self, command: list[bytes]) -> bytes:
            if command == [b"TIME"]:
                return b"*2\r\n$10\r\n%d\r\n$1\r\n0\r\n" % (time.time() + ahead)
            return b"$%d\r\n%b\r\n" % (len(info), info.encode())

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"redis://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("info", "ahead", "verdict", "part"),
    [
        (f"redis_version:6.0.16\r\n{NO_EVICTION}", 0, "fault", "Redis 6.0.16 is too old"),
        (f"redis_version:10.0.1\r\n{NO_EVICTION}", 0, "ok", "Redis 10.0.1"),
        (
            f"redis_version:7.2.4\r\nvalkey_version:8.1.0\r\n{NO_EVICTION}",
            0,
            "ok",
            f"1,000 requests per key in 3600 s, counted across {ALL}, Valkey 8.1.0",
        ),
        (f"redis_version:7.2.4\r\n{NO_EVICTION}", 3_600, "warning", "s ahead of this machine's"),
        (f"redis_version:7.2.4\r\n{NO_EVICTION}", -3_600, "warning", "s behind this machine's"),
        ("redis_version:7.2.4\r\n", 0, "warning", "maxmemory-policy is unknown"),
    ],
)
def test_the_doctor_checks_version_clock_and_eviction(info: str, ahead: int, verdict: str, part: str) -> None:
    with serve_fake_redis(info, ahead) as url:
        found = run_doctor(LISTINGS_REDIS_URL=url)
    assert (found["verdict"], part in str(found["found"])) == (verdict, True), found
