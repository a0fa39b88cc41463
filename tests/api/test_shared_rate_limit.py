"""The rate limit that machines share by Redis, as clients and operators meet it."""

import asyncio
import json
import os
import re
import shutil
import socketserver
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import hiredis
import httpx
import pytest

from listings.cli.checks import run_checks
from listings.ratelimit import redis_inspection
from listings.settings import resolve_all
from tests.cli.commands import DEADLINE, PROGRAM, Program, Serving
from tests.harness import Harness, Person, RunningService
from tests.redis_server import RedisServer
from tests.telemetry.test_metrics import Scrape

LISTINGS = "/api/v1/listings"
READY = "/readyz"
ALL = "all machines that use this Redis"
MACHINE = "this machine, since Redis is away"
KEEPS = "maxmemory_policy:noeviction\r\n"
TIMEOUT = "10000"  # milliseconds, for a busy machine, to connect and for each answer
ROUNDS = int(os.environ.get("LIMIT_ROUNDS", "2"))


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A Redis that the test may kill."""
    with RedisServer() as server:
        yield server


class Machines:
    """Services in processes of their own that have the same accounts and keys, and one Redis."""

    def __init__(self, folder: Path, server: RedisServer, count: int) -> None:
        self._stack = ExitStack()
        with Harness(folder / "0" / "data") as harness:
            self.people = [harness.person(f"alice{number}") for number in range(ROUNDS)]
        folders = [folder / str(number) for number in range(count)]
        for other in folders[1:]:
            shutil.copytree(folders[0], other)
        environment = {"LISTINGS_REDIS_URL": server.url, "LISTINGS_REDIS_TIMEOUT": TIMEOUT}
        self.services: list[Serving] = [
            self._stack.enter_context(Program(place, **environment, LISTINGS_LOG_LEVEL="error").serve())
            for place in folders
        ]

    def statuses(self, person: Person, requests: int, connections: int) -> Counter[int]:
        """What this many requests are answered, sent by connections that are spread over all services."""
        each = requests // connections
        with ThreadPoolExecutor(connections) as pool:
            counts = pool.map(lambda number: self._ask(person, number, each), range(connections))
            return sum((Counter(statuses) for statuses in counts), Counter())

    def _ask(self, person: Person, number: int, requests: int) -> list[int]:
        service = self.services[number % len(self.services)]
        with httpx.Client(base_url=service.base_url, timeout=DEADLINE, verify=False, trust_env=False) as http:  # noqa: S501 - it is plain HTTP
            headers = {"X-API-Key": person.key}
            return [http.get(f"{LISTINGS}/1", headers=headers).status_code for _ in range(requests)]

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def machines(tmp_path: Path, server: RedisServer) -> Iterator[Machines]:
    """Four of them."""
    machines = Machines(tmp_path, server, 4)
    yield machines
    machines.close()


@pytest.mark.decision("G28")
def test_four_services_accept_exactly_a_thousand_of_a_keys_requests(machines: Machines) -> None:
    for person in machines.people:
        assert machines.statuses(person, 1_536, 64) == {404: 1_000, 429: 536}


@pytest.fixture
def harness(tmp_path: Path, server: RedisServer) -> Iterator[Harness]:
    """The service in this process with five requests an hour, counted by Redis."""
    with Harness(tmp_path, rate_limit="5", redis=server.url, redis_timeout=TIMEOUT) as harness:
        yield harness


def test_headers_and_the_resource_tell_what_redis_counts(harness: Harness) -> None:
    key = harness.person("alice").key
    for left in ("4", "3"):
        assert harness.fetch("GET", LISTINGS, key=key).headers["x-ratelimit-remaining"] == left
    told = harness.fetch("GET", "/api/v1/rate_limit", key=key)
    assert (told.json()["limit"], told.json()["remaining"]) == (5, 3)
    statuses = [harness.fetch("GET", LISTINGS, key=key).status for _ in range(4)]
    assert statuses == [200, 200, 200, 429]
    refused = harness.fetch("GET", LISTINGS, key=key)
    assert 3_500 <= int(refused.headers["retry-after"]) <= 3_600


def test_readiness_tells_who_counts(harness: Harness, server: RedisServer) -> None:
    key = harness.person("alice").key
    assert harness.fetch("GET", READY).body == b'{"status":"ready","rate_limit":"%b"}' % ALL.encode()
    server.kill()
    answer = harness.fetch("GET", READY)
    assert (answer.status, answer.json()) == (200, {"status": "ready", "rate_limit": MACHINE})
    assert [harness.fetch("GET", LISTINGS, key=key).status for _ in range(6)] == [200] * 5 + [429]


def test_without_redis_readiness_says_no_more_than_before(tmp_path: Path) -> None:
    with Harness(tmp_path) as harness:
        assert harness.fetch("GET", READY).body == b'{"status":"ready"}'


def test_where_redis_is_required_its_absence_is_answered_503(tmp_path: Path, server: RedisServer) -> None:
    with Harness(tmp_path, redis=server.url, redis_timeout=TIMEOUT, redis_required="on") as harness:
        key = harness.person("alice").key
        assert harness.fetch("GET", LISTINGS, key=key).status == 200
        server.kill()
        for path, sent in ((LISTINGS, key), ("/api/v1/rate_limit", key), (READY, None)):
            refused = harness.fetch("GET", path, key=sent)
            assert (refused.status, refused.headers["retry-after"]) == (503, "1")
            assert refused.json() == {"error": "The rate limit can't be counted: Redis is away"}
        server.start()
        harness.run(back(harness))
        assert harness.fetch("GET", LISTINGS, key=key).status == 200


async def back(harness: Harness) -> None:
    limiter = harness.service.limiter
    assert limiter is not None
    async with asyncio.timeout(DEADLINE):
        while limiter.scope != ALL:  # noqa: ASYNC110 - another process decides it
            await asyncio.sleep(0.01)


def test_metrics_tell_that_redis_is_away_and_how_many_were_counted_without_it(
    tmp_path: Path, server: RedisServer
) -> None:
    with (
        RunningService(tmp_path, redis=server.url, redis_timeout=TIMEOUT, metrics_address="0") as service,
        httpx.Client(base_url=service.base_url, timeout=DEADLINE) as http,
    ):
        headers = {"X-API-Key": service.cast().alice.key}
        assert service.observers.metrics is not None
        url = service.observers.metrics.url

        def moved(requests: int) -> tuple[float, float]:
            for _ in range(requests):
                assert http.get(LISTINGS, headers=headers).status_code == 200
            scrape = Scrape(url)
            return scrape("listings_rate_limit_away"), scrape("listings_rate_limit_local_total")

        assert moved(3) == (0, 0)
        server.kill()
        assert moved(3) == (1, 3)


# The program


def events(log: str) -> list[str]:
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    return [line["event"] for line in lines if line.get("logger") == "listings.ratelimit.fallback"]


def test_the_program_logs_when_redis_goes_and_when_it_returns(tmp_path: Path, server: RedisServer) -> None:
    program = Program(tmp_path, LISTINGS_REDIS_URL=server.url, LISTINGS_REDIS_TIMEOUT=TIMEOUT)
    with program.serve("--demo") as service:
        key = re.findall(r"lst_\w+", "\n".join(service.lines))[0]
        assert service.status(key) == 200
        server.kill()
        assert {service.status(key) for _ in range(20)} == {200}
        assert service.http.get(READY).json()["rate_limit"] == MACHINE
        server.start()
        while service.http.get(READY).json()["rate_limit"] != ALL:
            time.sleep(0.05)  # each line of the log stays in the pipe
        told = events(service.stop().err)
    assert told[0] == f"The rate limit is counted over {ALL}"
    assert re.fullmatch(r"Redis is away: .+\. Until it is back, the rate limit is counted over this machine", told[1])
    assert re.fullmatch(rf"Redis is back after \d+ s: the rate limit is counted over {ALL}", told[2])
    assert len(told) == 3


def test_a_service_that_stops_while_redis_hangs_stops_all_the_same(tmp_path: Path, server: RedisServer) -> None:
    with Program(tmp_path, LISTINGS_REDIS_URL=server.url).serve() as service, server.frozen():
        outcome = service.stop()
    assert outcome.code == 0


def test_no_password_of_redis_is_shown_or_logged(tmp_path: Path) -> None:
    with RedisServer(password="hunter22") as server:
        url = server.url.replace("hunter22", "hunter33")
        program = Program(tmp_path, LISTINGS_REDIS_URL=url)
        shown, examined = program.run("settings"), program.run("doctor")
        with program.serve() as service:
            log = "\n".join([*service.lines, service.stop().err])
    assert "redis://:***@127.0.0.1" in shown.out
    assert "WRONGPASS" in examined.out
    assert "WRONGPASS" in log
    assert "hunter" not in shown.out + shown.err + examined.out + examined.err + log


def test_redis_client_is_loaded_only_where_it_is_asked_for(tmp_path: Path) -> None:
    trial = (
        "import sys; from listings.cli import main; code = main(['account', 'list']);"
        " print('hiredis' in sys.modules, file=sys.stderr); sys.exit(code)"
    )
    environment = {"LISTINGS_DATABASE_URL": f"sqlite:///{tmp_path}/listings.db", "PATH": os.environ["PATH"]}
    subprocess.run([PROGRAM, "migrate"], env=environment, check=True, capture_output=True)
    for url, loaded in (("", "False"), ("redis://127.0.0.1:1", "True")):
        outcome = subprocess.run(
            [sys.executable, "-c", trial],
            env=environment | {"LISTINGS_REDIS_URL": url},
            check=True,
            capture_output=True,
            text=True,
        )
        assert outcome.stderr.split()[-1] == loaded


# What the doctor says


def said(seconds: float = DEADLINE, **environment: str) -> dict[str, str | None]:
    """`seconds`: how long Redis may take; in earnest it is two."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redis_inspection, "_TIMEOUT_SECONDS", seconds)
        (found,) = (one for one in run_checks(resolve_all(environment, {})) if one.check == "rate limit")
    return found._asdict()


def test_the_doctor_says_who_counts() -> None:
    assert said()["found"] == "1000 requests per key in 3600 s, counted across this machine"
    assert said(LISTINGS_RATE_LIMIT="0")["found"] == "Off, because LISTINGS_RATE_LIMIT is 0"


def test_the_doctor_asks_redis(server: RedisServer) -> None:
    with server.client() as client:
        before = client.keys()
        version = str(client.info("server")["redis_version"])
    found = said(LISTINGS_REDIS_URL=server.url)
    assert found["verdict"] == "ok"
    assert found["found"] == f"1000 requests per key in 3600 s, counted across {ALL}, Redis {version}"
    with server.client() as client:
        assert client.keys() == before


def test_the_doctor_finds_a_redis_that_is_away(server: RedisServer) -> None:
    server.kill()
    found = said(LISTINGS_REDIS_URL=server.url)
    assert found["verdict"] == "fault"
    assert str(found["found"]).startswith("Redis can't be reached: ")


def test_the_doctor_finds_a_redis_that_hangs(server: RedisServer) -> None:
    with server.frozen():
        assert said(2, LISTINGS_REDIS_URL=server.url)["found"] == "Redis can't be reached: no response within 2 s"


def test_the_doctor_finds_a_redis_that_forgets(server: RedisServer) -> None:
    with server.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
    found = said(LISTINGS_REDIS_URL=server.url)
    assert (found["verdict"], found["advice"]) == (
        "warning",
        "Set `maxmemory-policy noeviction` in Redis's configuration",
    )
    assert "maxmemory-policy is allkeys-lru" in str(found["found"])


def test_the_doctor_finds_a_replica(server: RedisServer) -> None:
    with server.client() as client:
        client.replicaof("127.0.0.1", 1)
    found = said(LISTINGS_REDIS_URL=server.url)
    assert found["verdict"] == "fault"
    assert "is a replica, which rejects writes" in str(found["found"])


def test_the_doctor_finds_a_part_of_a_cluster() -> None:
    with RedisServer(configuration="cluster-enabled yes\n") as server:
        found = said(LISTINGS_REDIS_URL=server.url)
    assert found["verdict"] == "fault"
    assert "is part of a Redis Cluster" in str(found["found"])


@contextmanager
def pretending(info: str, ahead: int) -> Iterator[str]:
    """The address of something that says of itself what another Redis would say, with a clock that is ahead."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            reader = hiredis.Reader()
            while data := self.request.recv(65_536):
                reader.feed(data)
                while command := reader.gets():
                    self.request.sendall(self.answer(command))

        def answer(self, command: list[bytes]) -> bytes:
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
    ("info", "ahead", "verdict", "sentence"),
    [
        (f"redis_version:6.0.16\r\n{KEEPS}", 0, "fault", "Redis 6.0.16 is too old"),
        (f"redis_version:10.0.1\r\n{KEEPS}", 0, "ok", "Redis 10.0.1"),
        (
            f"redis_version:7.2.4\r\nvalkey_version:8.1.0\r\n{KEEPS}",
            0,
            "ok",
            f"1000 requests per key in 3600 s, counted across {ALL}, Valkey 8.1.0",
        ),
        (f"redis_version:7.2.4\r\n{KEEPS}", 3_600, "warning", "s ahead of this machine's"),
        (f"redis_version:7.2.4\r\n{KEEPS}", -3_600, "warning", "s behind this machine's"),
        ("redis_version:7.2.4\r\n", 0, "warning", "maxmemory-policy is unknown"),
    ],
)
def test_the_doctor_judges_version_and_clock(info: str, ahead: int, verdict: str, sentence: str) -> None:
    with pretending(info, ahead) as url:
        found = said(LISTINGS_REDIS_URL=url)
    assert (found["verdict"], sentence in str(found["found"])) == (verdict, True), found
