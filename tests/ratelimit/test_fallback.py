"""The fallback while Redis is unavailable: local counting, short delays, and one log line per change."""

import asyncio
import fcntl
import logging
import re
import shutil
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TypeAlias
from uuid import uuid4

import pytest

from listings.domain.errors import Unavailable
from listings.files import try_lock
from listings.ratelimit import mapped, redis, redis_connection
from listings.ratelimit.fallback import FallbackLimiter
from listings.ratelimit.mapped import MappedLimiter
from listings.ratelimit.redis import RedisLimiter
from listings.ratelimit.redis_connection import Endpoint
from listings.ratelimit.redis_inspection import inspect
from tests.certificates import create_certificate
from tests.harness import TIMEOUT
from tests.ratelimit.conftest import Run
from tests.ratelimit.locks import USERS, first_log_file
from tests.redis_server import RedisServer
from tests.tcp_proxy import run_fixed_responder, run_tcp_proxy
from tests.waiting import until_async

WORKERS_PAGE = Path(__file__).parents[2] / "docs" / "workers.md"
KEY = 7
LOCAL = "this machine, because Redis is unavailable"
SHARED = "all machines that use this Redis"


class Machine:
    def __init__(self, limiter: FallbackLimiter, local_hits: list[None]) -> None:
        self.limiter = limiter
        self._local_hits = local_hits

    @property
    def local_count(self) -> int:
        return len(self._local_hits)

    async def count_accepted(self, hits: int) -> int:
        decisions = await asyncio.gather(*(self.limiter.hit(KEY) for _ in range(hits)))
        return sum(decision.accepted for decision in decisions)

    async def wait_for_scope(self, scope: str) -> None:
        await until_async(lambda: self.limiter.scope == scope)


StartMachine: TypeAlias = Callable[..., AbstractAsyncContextManager[Machine]]


@pytest.fixture
def machine(tmp_path: Path, server: RedisServer, database_id: str) -> StartMachine:
    @asynccontextmanager
    async def start(
        endpoint: Endpoint | None = None, *, folder: Path = tmp_path, limit: int = 10, required: bool = False
    ) -> AsyncIterator[Machine]:
        local_hits: list[None] = []
        local = MappedLimiter(folder / f"{uuid4().hex}.db", database_id, limit, 3600)
        shared = RedisLimiter(endpoint or server.endpoint(), database_id, limit, 3600)
        limiter = FallbackLimiter(shared, local, required=required)
        limiter.on_local_hit = lambda: local_hits.append(None)
        yield Machine(limiter, local_hits)
        await limiter.close()

    return start


def logged_changes(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return a keyword for each log line about Redis."""
    return [
        next(word for word in ("unavailable", "back", "Counting") if word in record.getMessage())
        for record in caplog.records
        if record.name.startswith("listings.ratelimit")
    ]


def count_in_redis(server: RedisServer, database_id: str, database: int = 0) -> int:
    with server.client(db=database) as client:
        return int(str(client.llen(f"listings:{database_id}:limit:{KEY}")))


def test_no_request_fails_while_redis_restarts(
    machine: StartMachine, server: RedisServer, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def trial() -> None:
        async with machine(limit=100_000) as one:
            responses = 0

            async def fetch() -> None:
                nonlocal responses
                while one.limiter.scope == SHARED or not responses:
                    await one.limiter.hit(KEY)
                    responses += 1
                await one.limiter.hit(KEY)

            clients = [asyncio.create_task(fetch()) for _ in range(64)]
            await until_async(lambda: responses >= 500)
            server.kill()
            async with asyncio.timeout(TIMEOUT):
                await asyncio.gather(*clients)
            assert one.limiter.scope == LOCAL
            assert one.local_count >= 64
            assert logged_changes(caplog) == ["Counting", "unavailable"]
            server.start()
            await one.wait_for_scope(SHARED)
            before = one.local_count
            await one.count_accepted(50)
            assert one.local_count == before
            assert logged_changes(caplog) == ["Counting", "unavailable", "back"]

    run(trial())


@pytest.mark.decision("G30")
def test_the_fallback_continues_from_the_machines_own_count(
    machine: StartMachine, server: RedisServer, run: Run
) -> None:
    async def trial() -> None:
        async with AsyncExitStack() as stack:
            one, two = [await stack.enter_async_context(machine()) for _ in range(2)]
            assert (await one.count_accepted(6), await two.count_accepted(1)) == (6, 1)
            server.kill()
            assert (one.limiter.is_redis_unavailable, two.limiter.is_redis_unavailable) == (False, False)
            assert (await one.count_accepted(20), await two.count_accepted(20)) == (4, 9)
            assert (one.limiter.is_redis_unavailable, two.limiter.is_redis_unavailable) == (True, True)

    run(trial())


def test_a_local_log_locked_by_another_process_delays_no_request(
    server: RedisServer, tmp_path: Path, database_id: str, run: Run
) -> None:
    async def trial() -> None:
        limiter = FallbackLimiter(
            RedisLimiter(server.endpoint(), database_id, 10, 3600),
            MappedLimiter(tmp_path / "listings.db", database_id, 10, 3600),
        )
        started = time.monotonic()
        decision = await limiter.hit(KEY)
        seconds = time.monotonic() - started
        await limiter.close()
        assert decision.remaining == 9
        assert seconds < mapped._JOIN_TIMEOUT_SECONDS / 2  # noqa: SLF001 - the longest delay

    with first_log_file(tmp_path / "listings.db").open("w+b") as file:
        assert try_lock(file.fileno(), fcntl.F_WRLCK, *USERS)
        run(trial())


def test_local_counts_are_not_sent_to_redis(machine: StartMachine, server: RedisServer, run: Run) -> None:
    async def trial() -> None:
        async with machine() as one:
            assert await one.count_accepted(2) == 2
            server.kill()
            assert await one.count_accepted(20) == 8
            server.start()  # empty, because it has no files
            await one.wait_for_scope(SHARED)
            assert await one.count_accepted(20) == 10

    run(trial())


def test_a_hanging_redis_delays_only_the_first_requests(
    machine: StartMachine, server: RedisServer, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def trial() -> None:
        endpoint = server.endpoint(timeout_seconds=0.25)
        async with asyncio.timeout(TIMEOUT), machine(endpoint, limit=1_000) as one:
            await one.limiter.hit(KEY)
            await one.wait_for_scope(SHARED)
            caplog.clear()
            with server.frozen():
                start = time.monotonic()
                assert await one.count_accepted(20) == 20
                assert time.monotonic() - start > 0.2
                start = time.monotonic()
                for _ in range(100):
                    assert (await one.limiter.hit(KEY)).accepted
                assert time.monotonic() - start < 20  # it would be 25 if each request waited for the timeout
                assert one.limiter.scope == LOCAL
            await one.wait_for_scope(SHARED)
            assert sum("no response within 250 ms" in record.getMessage() for record in caplog.records) == 1

    run(trial())


def test_a_service_can_start_without_redis(
    machine: StartMachine, server: RedisServer, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server.kill()

    async def trial() -> None:
        async with machine() as one:
            assert await one.count_accepted(20) == 10
            assert (one.limiter.scope, one.local_count) == (LOCAL, 20)
            assert not (await one.limiter.peek(KEY)).accepted
            await one.limiter.check()
            server.start()
            await one.wait_for_scope(SHARED)
            assert (await one.limiter.peek(KEY)).remaining == 10

    run(trial())
    assert logged_changes(caplog) == ["unavailable", "back"]


def test_a_required_redis_makes_requests_fail_while_it_is_unavailable(
    machine: StartMachine, server: RedisServer, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def trial() -> None:
        async with machine(required=True) as one:
            assert await one.count_accepted(4) == 4
            server.kill()
            for fetch in (one.limiter.hit, one.limiter.peek):
                with pytest.raises(Unavailable, match=r"^The rate limit can't be counted: Redis is unavailable$"):
                    await fetch(KEY)
            with pytest.raises(Unavailable, match="Redis is unavailable"):
                await one.limiter.check()
            assert one.limiter.scope == "no process, because Redis is unavailable"
            message = caplog.records[-1].getMessage()
            assert message.endswith("requests fail with 503, because LISTINGS_REDIS_REQUIRED is on")
            server.start()
            await one.wait_for_scope(SHARED)
            assert await one.count_accepted(20) == 10

    run(trial())


def test_redis_counts_even_if_the_local_log_fails(
    machine: StartMachine, server: RedisServer, tmp_path: Path, run: Run
) -> None:
    async def trial() -> None:
        async with machine(folder=tmp_path / "nowhere") as one:
            assert await one.count_accepted(20) == 10
            await one.limiter.check()
            server.kill()
            with pytest.raises(Unavailable, match="can't be counted"):
                await one.limiter.hit(KEY)

    run(trial())


def test_a_hit_without_a_reply_is_counted_locally(
    machine: StartMachine, server: RedisServer, database_id: str, run: Run
) -> None:
    async def trial() -> None:
        async with (
            run_tcp_proxy(server.port) as (wire, port),
            machine(server.endpoint(port=port), limit=1_000) as one,
        ):
            assert await one.count_accepted(5) == 5
            wire.withholds_responses = True
            pending = asyncio.gather(*(one.limiter.hit(KEY) for _ in range(20)))
            await wire.withheld.wait()
            await until_async(lambda: count_in_redis(server, database_id) == 25)
            wire.close()
            assert all(decision.accepted for decision in await pending)
            assert (one.local_count, count_in_redis(server, database_id)) == (20, 25)

    run(trial())


def test_a_cancelled_request_does_not_shift_replies(server: RedisServer, database_id: str, run: Run) -> None:
    async def trial() -> None:
        limiter = RedisLimiter(server.endpoint(), database_id, 1_000, 3600)
        await limiter.hit(KEY)
        tasks = [asyncio.create_task(limiter.hit(KEY)) for _ in range(20)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        remaining = [result.remaining for result in results if not isinstance(result, BaseException)]
        assert remaining == [1_000 - number for number in range(3, 22, 2)]
        await limiter.close()

    run(trial())


def test_calls_beyond_the_maximum_are_counted_locally(
    machine: StartMachine, run: Run, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(redis_connection, "_MAX_PENDING_CALLS", 1_000)

    async def trial() -> None:
        async with machine(limit=100_000) as one:
            await one.limiter.hit(KEY)
            assert await one.count_accepted(1_500) == 1_500
            assert one.local_count == 1_500 - 1_000
            assert one.limiter.scope == SHARED

    run(trial())
    assert logged_changes(caplog) == ["Counting"]


@pytest.fixture
def reason(machine: StartMachine, run: Run, caplog: pytest.LogCaptureFixture) -> Callable[..., str]:
    """Return a function that uses an unusable endpoint once, and returns the logged reason."""

    def fetch(endpoint: Endpoint) -> str:
        async def trial() -> None:
            async with machine(endpoint) as one:
                assert await one.count_accepted(1) == 1
                assert (one.local_count, one.limiter.scope) == (1, LOCAL)

        run(trial())
        (record,) = caplog.records
        caplog.clear()
        sentence = record.getMessage()
        assert sentence.startswith("Redis is unavailable: ")
        assert sentence.endswith(". Until it is back, only the requests of this machine are counted")
        return sentence.removeprefix("Redis is unavailable: ").partition(". Until")[0]

    return fetch


Reason = Callable[[Endpoint], str]


def test_an_unreachable_server_is_reported(reason: Reason, server: RedisServer) -> None:
    assert reason(server.endpoint(port=1)).startswith(("Connection refused", "Connect call failed"))
    assert "No such file" in reason(server.endpoint(path="/nowhere/redis.sock"))


@pytest.mark.parametrize(
    ("user", "password", "expected"),
    [("", "wrong", "WRONGPASS"), ("", "", "NOAUTH"), ("mallory", "right", "WRONGPASS")],
)
def test_a_wrong_password_is_reported(reason: Reason, user: str, password: str, expected: str) -> None:
    with RedisServer(password="right") as server:
        message = reason(server.endpoint(user=user, password=password))
    assert message.startswith(expected)
    assert "right" not in message
    assert "wrong" not in message


def test_a_user_without_permission_for_scripts_is_reported(reason: Reason, server: RedisServer) -> None:
    with server.client() as client:
        client.acl_setuser("alice", enabled=True, passwords=["+secret"], commands=["+@read"], keys=["*"])
    assert reason(server.endpoint(user="alice", password="secret")).startswith("NOPERM")


def test_a_read_only_replica_is_reported(reason: Reason, server: RedisServer) -> None:
    with server.client() as client:
        client.replicaof("127.0.0.1", 1)
    assert reason(server.endpoint()) == "READONLY You can't write against a read only replica."


def test_a_full_memory_is_reported(reason: Reason, server: RedisServer) -> None:
    with server.client() as client:
        client.config_set("maxmemory", 1)
    assert reason(server.endpoint()).startswith("OOM command not allowed when used memory > 'maxmemory'")


def test_a_failed_snapshot_is_reported(reason: Reason, server: RedisServer) -> None:
    with server.client() as client:
        client.config_set("save", "3600 1")
        shutil.rmtree(client.config_get("dir")["dir"])
        client.bgsave()
        while client.info("persistence")["rdb_last_bgsave_status"] == "ok":
            time.sleep(0.01)
    assert reason(server.endpoint()).startswith("MISCONF ")


@pytest.mark.parametrize(
    ("replies", "message"),
    [
        ((b"-LOADING Redis is loading the dataset in memory\r\n",), "LOADING Redis is loading the dataset in memory"),
        ((b"-MOVED 3999 127.0.0.1:6381\r\n",), "MOVED 3999 127.0.0.1:6381"),
        ((b"-READONLY No. script: " + b"5e" * 20 + b", on @user_script:38.\r\n",), "READONLY No."),  # Redis 7
        ((b"-READONLY No. script: on @user_script:38.\r\n",), "READONLY No."),  # Valkey 9
        ((b"HTTP/1.1 400 Bad Request\r\n\r\n",), "the server is not Redis"),
        ((b"+OK\r\n",), "the server is not Redis"),
        ((b"*3\r\n:1\r\n:9\r\n:0\r\n+OK\r\n",), "the server is not Redis"),  # lost right after the probe
        ((b"*3\r\n:1\r\n:9\r\n:0\r\n", b"+OK\r\n"), "the server is not Redis"),  # a request after the probe
    ],
)
def test_an_unusable_server_is_reported(
    machine: StartMachine,
    run: Run,
    server: RedisServer,
    caplog: pytest.LogCaptureFixture,
    replies: tuple[bytes, ...],
    message: str,
) -> None:
    async def trial() -> None:
        async with (
            run_fixed_responder(*replies) as port,
            machine(server.endpoint(port=port)) as one,
        ):
            assert await one.count_accepted(1) == 1
            assert one.local_count == 1

    run(trial())
    assert f"Redis is unavailable: {message}. Until it is back" in caplog.records[-1].getMessage()


@pytest.mark.parametrize(
    ("tls", "timeout_seconds", "message"),
    [
        (False, 0.25, "no response within 250 ms"),
        (True, 0.25, "no response within 1 s"),
        (True, 1.6, "no response within 2 s"),
    ],
)
def test_a_silent_server_times_out(
    server: RedisServer,
    database_id: str,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    *,
    tls: bool,
    timeout_seconds: float,
    message: str,
) -> None:
    if not tls:  # it connects, so only the timeout of a reply may end it
        monkeypatch.setattr(redis, "MIN_CONNECT_TIMEOUT_SECONDS", TIMEOUT)

    async def trial() -> None:
        async with run_fixed_responder(b"") as port:
            limiter = RedisLimiter(
                server.endpoint(port=port, tls=tls, timeout_seconds=timeout_seconds), database_id, 1, 3600
            )
            with pytest.raises(Unavailable, match=f"^{message}$"):
                await limiter.hit(KEY)
            await limiter.close()

    run(trial())


def test_closing_cancels_an_attempt_to_connect(server: RedisServer, database_id: str, run: Run) -> None:
    async def trial() -> None:
        connected, closed = asyncio.Event(), asyncio.Event()

        async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            connected.set()
            with suppress(OSError):
                await reader.read()
            writer.transport.abort()
            closed.set()

        async with asyncio.timeout(TIMEOUT), await asyncio.start_server(listen, "127.0.0.1", 0) as silent:
            port = silent.sockets[0].getsockname()[1]
            limiter = RedisLimiter(server.endpoint(port=port), database_id, 1, 3600)
            request = asyncio.create_task(limiter.hit(KEY))
            await connected.wait()
            await limiter.close()
            request.cancel()
            await closed.wait()
            await asyncio.sleep(0)

    run(trial())


def test_a_redis_that_becomes_a_replica_is_not_used(
    machine: StartMachine, server: RedisServer, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def trial() -> None:
        async with machine() as one:
            assert await one.count_accepted(4) == 4
            with server.client() as client:
                client.replicaof("127.0.0.1", 1)
            await one.limiter.check()
            assert one.limiter.scope == LOCAL
            assert await one.count_accepted(20) == 6
            with server.client() as client:
                client.replicaof("NO", "ONE")
            await one.wait_for_scope(SHARED)
            assert await one.count_accepted(20) == 6

    run(trial())
    assert logged_changes(caplog) == ["Counting", "unavailable", "back"]


async def is_counting(endpoint: Endpoint, database_id: str) -> bool:
    limiter = RedisLimiter(endpoint, database_id, 1, 3600)
    try:
        return [(await limiter.hit(KEY)).accepted for _ in range(2)] == [True, False]
    finally:
        await limiter.close()


def test_a_unix_socket_with_password_and_database_works(database_id: str, run: Run) -> None:
    with RedisServer(password="it's secret") as server:
        assert run(is_counting(server.endpoint(path=server.socket, database=3), database_id))
        assert count_in_redis(server, database_id, 3) == 1


def test_the_documented_user_has_enough_permissions(database_id: str, run: Run) -> None:
    (configuration,) = re.findall(r"```text\n(# redis\.conf.*?)```", WORKERS_PAGE.read_text("utf-8"), re.DOTALL)
    with RedisServer(configuration=configuration) as server:
        endpoint = server.endpoint(user="listings", password="PASSWORD", database=1)
        assert run(is_counting(endpoint, database_id))
        assert inspect(endpoint).eviction_policy == "noeviction"


def test_tls_needs_a_trusted_certificate(
    server: RedisServer, tmp_path: Path, database_id: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = create_certificate(tmp_path, "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def trial() -> None:
        async with run_tcp_proxy(server.port, context) as (_, port):
            endpoint = server.endpoint(host="localhost", port=port, tls=True)
            with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
                await is_counting(endpoint, database_id)
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
            assert await is_counting(endpoint, database_id)

    run(trial())
