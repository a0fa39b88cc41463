"""When Redis is away: requests are counted on the machine, nobody waits, and it is told once."""

import asyncio
import logging
import re
import shutil
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pytest

from listings.domain.errors import Unavailable
from listings.ratelimit.fallback import FallbackLimiter
from listings.ratelimit.mapped import MappedLimiter
from listings.ratelimit.redis import RedisLimiter
from listings.ratelimit.redis_connection import Endpoint
from listings.ratelimit.redis_inspection import inspect
from tests.certificates import self_signed
from tests.harness import TIMEOUT
from tests.ratelimit.conftest import Run
from tests.raw_http import always_answering, wire_to
from tests.redis_server import RedisServer

WORKERS_PAGE = Path(__file__).parents[2] / "docs" / "workers.md"
KEY = 7
MACHINE = "this machine, since Redis is away"
ALL = "all machines that use this Redis"


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A Redis that the test may stop and change."""
    with RedisServer() as server:
        yield server


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT):
        while not holds():  # noqa: ASYNC110 - another process decides it
            await asyncio.sleep(0.01)


class Machine:
    """A service's limiter on a machine of its own."""

    def __init__(self, limiter: FallbackLimiter, alone: list[None]) -> None:
        self.limiter = limiter
        self._alone = alone

    @property
    def alone(self) -> int:
        """How many requests it counted by itself."""
        return len(self._alone)

    async def accepted(self, hits: int) -> int:
        verdicts = await asyncio.gather(*(self.limiter.hit(KEY) for _ in range(hits)))
        return sum(verdict.accepted for verdict in verdicts)

    async def until(self, reach: str) -> None:
        await until(lambda: self.limiter.scope == reach)


@asynccontextmanager
async def machine(
    folder: Path, endpoint: Endpoint, database_id: str, *, limit: int = 10, required: bool = False
) -> AsyncIterator[Machine]:
    alone: list[None] = []
    local = MappedLimiter(folder / f"{uuid4().hex}.db", database_id, limit, 3600)
    shared = RedisLimiter(endpoint, database_id, limit, 3600)
    limiter = FallbackLimiter(shared, local, required=required, on_local=lambda: alone.append(None))
    yield Machine(limiter, alone)
    await limiter.close()


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged of Redis, in short."""
    return [
        next(word for word in ("away", "back", "counted over") if word in record.getMessage())
        for record in caplog.records
        if record.name.startswith("listings.ratelimit")
    ]


def counted(server: RedisServer, database_id: str, database: int = 0) -> int:
    """How many requests of the key Redis knows."""
    with server.client(db=database) as client:
        return int(str(client.llen(f"listings:{database_id}:limit:{KEY}")))


# Away and back


def test_when_redis_is_killed_and_returns_no_request_is_lost_and_each_change_is_told_once(
    server: RedisServer, tmp_path: Path, database_id: str, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def trial() -> None:
        async with machine(tmp_path, server.endpoint(), database_id, limit=100_000) as one:
            answers = 0

            async def fetch() -> None:
                nonlocal answers
                while one.limiter.scope == ALL or not answers:
                    await one.limiter.hit(KEY)
                    answers += 1
                await one.limiter.hit(KEY)

            crowd = [asyncio.create_task(fetch()) for _ in range(64)]
            await until(lambda: answers >= 500)
            server.kill()
            async with asyncio.timeout(TIMEOUT):
                await asyncio.gather(*crowd)
            assert one.limiter.scope == MACHINE
            assert one.alone >= 64
            assert told(caplog) == ["counted over", "away"]
            server.start()
            await one.until(ALL)
            before = one.alone
            await one.accepted(50)
            assert one.alone == before
            assert told(caplog) == ["counted over", "away", "back"]

    run(trial())


@pytest.mark.decision("G30")
def test_while_redis_is_away_the_machine_goes_on_from_what_it_had_accepted(
    server: RedisServer, tmp_path: Path, database_id: str, run: Run
) -> None:
    async def trial() -> None:
        async with AsyncExitStack() as stack:
            one, two = [
                await stack.enter_async_context(machine(tmp_path, server.endpoint(), database_id)) for _ in range(2)
            ]
            assert (await one.accepted(6), await two.accepted(1)) == (6, 1)
            server.kill()
            assert (one.limiter.is_away, two.limiter.is_away) == (False, False)
            assert (await one.accepted(20), await two.accepted(20)) == (4, 9)
            assert (one.limiter.is_away, two.limiter.is_away) == (True, True)

    run(trial())


def test_what_was_counted_on_a_machine_is_not_told_to_redis_later(
    server: RedisServer, tmp_path: Path, database_id: str, run: Run
) -> None:
    async def trial() -> None:
        async with machine(tmp_path, server.endpoint(), database_id) as one:
            assert await one.accepted(2) == 2
            server.kill()
            assert await one.accepted(20) == 8
            server.start()  # with nothing: it keeps no files here
            await one.until(ALL)
            assert await one.accepted(20) == 10

    run(trial())


def test_a_redis_that_hangs_holds_up_nobody_after_the_first_timeout(
    server: RedisServer, tmp_path: Path, database_id: str, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def trial() -> None:
        endpoint = server.endpoint(answer_seconds=0.25)
        async with asyncio.timeout(TIMEOUT), machine(tmp_path, endpoint, database_id, limit=1_000) as one:
            await one.limiter.hit(KEY)
            await one.until(ALL)
            caplog.clear()
            with server.frozen():
                began = time.monotonic()
                assert await one.accepted(20) == 20
                assert time.monotonic() - began > 0.2
                began = time.monotonic()
                for _ in range(100):
                    assert (await one.limiter.hit(KEY)).accepted
                assert time.monotonic() - began < 20  # with the timeout it were 25
                assert one.limiter.scope == MACHINE
            await one.until(ALL)
            assert sum("no answer within 250 ms" in record.getMessage() for record in caplog.records) == 1

    run(trial())


def test_a_service_that_starts_while_redis_is_away_counts_by_itself_until_it_comes(
    server: RedisServer, tmp_path: Path, database_id: str, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server.kill()

    async def trial() -> None:
        async with machine(tmp_path, server.endpoint(), database_id) as one:
            assert await one.accepted(20) == 10
            assert (one.limiter.scope, one.alone) == (MACHINE, 20)
            assert not (await one.limiter.peek(KEY)).accepted
            await one.limiter.check()
            server.start()
            await one.until(ALL)
            assert (await one.limiter.peek(KEY)).left == 10

    run(trial())
    assert told(caplog) == ["away", "back"]


def test_where_redis_is_required_requests_are_refused_while_it_is_away(
    server: RedisServer, tmp_path: Path, database_id: str, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def trial() -> None:
        async with machine(tmp_path, server.endpoint(), database_id, required=True) as one:
            assert await one.accepted(4) == 4
            server.kill()
            for fetch in (one.limiter.hit, one.limiter.peek):
                with pytest.raises(Unavailable, match=r"^The rate limit can't be counted: Redis is away$"):
                    await fetch(KEY)
            with pytest.raises(Unavailable, match="Redis is away"):
                await one.limiter.check()
            assert one.limiter.scope == "nobody, since Redis is away"
            said = caplog.records[-1].getMessage()
            assert said.endswith("requests are answered 503, as LISTINGS_REDIS_REQUIRED asks for")
            server.start()
            await one.until(ALL)
            assert await one.accepted(20) == 10

    run(trial())


def test_a_machine_whose_own_log_is_lost_still_counts_on_redis(
    server: RedisServer, tmp_path: Path, database_id: str, run: Run
) -> None:
    async def trial() -> None:
        async with machine(tmp_path / "nowhere", server.endpoint(), database_id) as one:
            assert await one.accepted(20) == 10
            await one.limiter.check()
            server.kill()
            with pytest.raises(Unavailable, match="can't be counted"):
                await one.limiter.hit(KEY)

    run(trial())


# Calls under way


def test_a_hit_whose_answer_is_lost_is_counted_on_the_machine_and_never_sent_again(
    server: RedisServer, tmp_path: Path, database_id: str, run: Run
) -> None:
    async def trial() -> None:
        async with (
            wire_to(server.port) as (wire, port),
            machine(tmp_path, server.endpoint(port=port), database_id, limit=1_000) as one,
        ):
            assert await one.accepted(5) == 5
            wire.keeps_answers = True
            under_way = asyncio.gather(*(one.limiter.hit(KEY) for _ in range(20)))
            await wire.carried.wait()
            await until(lambda: counted(server, database_id) == 25)
            wire.cut()
            assert all(verdict.accepted for verdict in await under_way)
            assert (one.alone, counted(server, database_id)) == (20, 25)

    run(trial())


def test_a_request_that_is_cancelled_takes_nobody_elses_answer(server: RedisServer, database_id: str, run: Run) -> None:
    async def trial() -> None:
        limiter = RedisLimiter(server.endpoint(), database_id, 1_000, 3600)
        await limiter.hit(KEY)
        tasks = [asyncio.create_task(limiter.hit(KEY)) for _ in range(20)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        left = [answer.left for answer in answers if not isinstance(answer, BaseException)]
        assert left == [1_000 - number for number in range(3, 22, 2)]
        await limiter.close()

    run(trial())


def test_more_calls_than_may_be_under_way_are_counted_on_the_machine(
    server: RedisServer, tmp_path: Path, database_id: str, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def trial() -> None:
        async with machine(tmp_path, server.endpoint(), database_id, limit=100_000) as one:
            await one.limiter.hit(KEY)
            assert await one.accepted(17_000) == 17_000
            assert one.alone == 17_000 - 16_384
            assert one.limiter.scope == ALL

    run(trial())
    assert told(caplog) == ["counted over"]


# Every way to be away


@pytest.fixture
def reason(tmp_path: Path, database_id: str, run: Run, caplog: pytest.LogCaptureFixture) -> Callable[..., str]:
    """Asks once at an endpoint where nothing can be counted; returns why, as the log tells it."""

    def fetch(endpoint: Endpoint) -> str:
        async def trial() -> None:
            async with machine(tmp_path, endpoint, database_id) as one:
                assert await one.accepted(1) == 1
                assert (one.alone, one.limiter.scope) == (1, MACHINE)

        run(trial())
        (record,) = caplog.records
        caplog.clear()
        sentence = record.getMessage()
        assert sentence.startswith("Redis is away: ")
        assert sentence.endswith(". Until it is back, the rate limit is counted over this machine")
        return sentence.removeprefix("Redis is away: ").partition(". Until")[0]

    return fetch


Reason = Callable[[Endpoint], str]


def test_nobody_listens(reason: Reason, server: RedisServer) -> None:
    assert reason(server.endpoint(port=1)).startswith(("Connection refused", "Connect call failed"))
    assert "No such file" in reason(server.endpoint(path="/nowhere/redis.sock"))


@pytest.mark.parametrize(
    ("user", "password", "said"), [("", "wrong", "WRONGPASS"), ("", "", "NOAUTH"), ("mallory", "right", "WRONGPASS")]
)
def test_a_wrong_password(reason: Reason, user: str, password: str, said: str) -> None:
    with RedisServer(password="right") as server:
        told = reason(server.endpoint(user=user, password=password))
    assert told.startswith(said)
    assert "right" not in told
    assert "wrong" not in told


def test_a_user_without_the_right_to_run_scripts(reason: Reason, server: RedisServer) -> None:
    with server.client() as client:
        client.acl_setuser("alice", enabled=True, passwords=["+secret"], commands=["+@read"], keys=["*"])
    assert reason(server.endpoint(user="alice", password="secret")).startswith("NOPERM")


def test_a_replica_that_takes_no_writes(reason: Reason, server: RedisServer) -> None:
    with server.client() as client:
        client.replicaof("127.0.0.1", 1)
    assert reason(server.endpoint()) == "READONLY You can't write against a read only replica."


def test_a_memory_that_is_full(reason: Reason, server: RedisServer) -> None:
    with server.client() as client:
        client.config_set("maxmemory", 1)
    assert reason(server.endpoint()).startswith("OOM command not allowed when used memory > 'maxmemory'")


def test_a_disk_that_takes_no_snapshot(reason: Reason, server: RedisServer) -> None:
    with server.client() as client:
        client.config_set("save", "3600 1")
        shutil.rmtree(client.config_get("dir")["dir"])
        client.bgsave()
        while client.info("persistence")["rdb_last_bgsave_status"] == "ok":
            time.sleep(0.01)
    assert reason(server.endpoint()).startswith("MISCONF ")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"-LOADING Redis is loading the dataset in memory\r\n", "LOADING Redis is loading the dataset in memory"),
        (b"-MOVED 3999 127.0.0.1:6381\r\n", "MOVED 3999 127.0.0.1:6381"),
        (b"-READONLY No. script: " + b"5e" * 20 + b", on @user_script:38.\r\n", "READONLY No."),  # Redis 7
        (b"-READONLY No. script: on @user_script:38.\r\n", "READONLY No."),  # Valkey 9
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "what answers is not Redis"),
        (b"+OK\r\n", "what answers is not Redis"),
        (b"*3\r\n:1\r\n:9\r\n:0\r\n+OK\r\n", "what answers is not Redis"),  # lost in the moment after the probe
    ],
)
def test_what_does_not_count(
    tmp_path: Path,
    database_id: str,
    run: Run,
    server: RedisServer,
    caplog: pytest.LogCaptureFixture,
    answer: bytes,
    said: str,
) -> None:
    async def trial() -> None:
        async with (
            always_answering(answer) as port,
            machine(tmp_path, server.endpoint(port=port), database_id) as one,
        ):
            assert await one.accepted(1) == 1
            assert one.alone == 1

    run(trial())
    assert f"Redis is away: {said}. Until it is back" in caplog.records[0].getMessage()


def test_what_turns_out_later_not_to_be_redis(
    tmp_path: Path, database_id: str, run: Run, server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def trial() -> None:
        async with (
            always_answering(b"*3\r\n:1\r\n:9\r\n:0\r\n", b"+OK\r\n") as port,
            machine(tmp_path, server.endpoint(port=port), database_id) as one,
        ):
            assert await one.accepted(1) == 1
            assert one.alone == 1

    run(trial())
    assert "Redis is away: what answers is not Redis. Until" in caplog.records[-1].getMessage()


@pytest.mark.parametrize(
    ("tls", "answer_seconds", "said"),
    [
        (False, 0.25, "no answer within 250 ms"),
        (True, 0.25, "no answer within 1 s"),
        (True, 1.6, "no answer within 2 s"),
    ],
)
def test_what_takes_connections_and_says_nothing(
    server: RedisServer,
    database_id: str,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    *,
    tls: bool,
    answer_seconds: float,
    said: str,
) -> None:
    if not tls:  # it connects, and then only the time for an answer may end it
        monkeypatch.setattr("listings.ratelimit.redis._CONNECT_SECONDS", TIMEOUT)

    async def trial() -> None:
        async with always_answering(b"") as port:
            limiter = RedisLimiter(
                server.endpoint(port=port, tls=tls, answer_seconds=answer_seconds), database_id, 1, 3600
            )
            with pytest.raises(Unavailable, match=f"^{said}$"):
                await limiter.hit(KEY)
            await limiter.close()

    run(trial())


def test_to_close_ends_an_attempt_to_connect(server: RedisServer, database_id: str, run: Run) -> None:
    async def trial() -> None:
        reached, left = asyncio.Event(), asyncio.Event()

        async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            reached.set()
            with suppress(OSError):
                await reader.read()
            writer.transport.abort()
            left.set()

        async with asyncio.timeout(TIMEOUT), await asyncio.start_server(listen, "127.0.0.1", 0) as silent:
            port = silent.sockets[0].getsockname()[1]
            limiter = RedisLimiter(server.endpoint(port=port), database_id, 1, 3600)
            request = asyncio.create_task(limiter.hit(KEY))
            await reached.wait()
            await limiter.close()
            request.cancel()
            await left.wait()
            await asyncio.sleep(0)

    run(trial())


def test_a_redis_that_turns_into_a_replica_meanwhile(
    server: RedisServer, tmp_path: Path, database_id: str, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def trial() -> None:
        async with machine(tmp_path, server.endpoint(), database_id) as one:
            assert await one.accepted(4) == 4
            with server.client() as client:
                client.replicaof("127.0.0.1", 1)
            await one.limiter.check()
            assert one.limiter.scope == MACHINE
            assert await one.accepted(20) == 6
            with server.client() as client:
                client.replicaof("NO", "ONE")
            await one.until(ALL)
            assert await one.accepted(20) == 6

    run(trial())
    assert told(caplog) == ["counted over", "away", "back"]


# Ways to Redis


async def counts(endpoint: Endpoint, database_id: str) -> bool:
    limiter = RedisLimiter(endpoint, database_id, 1, 3600)
    try:
        return [(await limiter.hit(KEY)).accepted for _ in range(2)] == [True, False]
    finally:
        await limiter.close()


def test_by_a_unix_socket_with_a_password_in_another_database(database_id: str, run: Run) -> None:
    with RedisServer(password="it's secret") as server:
        assert run(counts(server.endpoint(path=server.socket, database=3), database_id))
        assert counted(server, database_id, 3) == 1


def test_as_the_user_of_the_operators_page_who_may_do_no_more_than_is_needed(database_id: str, run: Run) -> None:
    (configuration,) = re.findall(r"```text\n(# redis\.conf.*?)```", WORKERS_PAGE.read_text("utf-8"), re.DOTALL)
    with RedisServer(configuration=configuration) as server:
        endpoint = server.endpoint(user="listings", password="PASSWORD", database=1)
        assert run(counts(endpoint, database_id))
        assert inspect(endpoint).policy == "noeviction"


def test_by_tls_with_a_certificate_that_is_trusted_and_by_no_other(
    server: RedisServer, tmp_path: Path, database_id: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = self_signed(tmp_path, "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def trial() -> None:
        async with wire_to(server.port, context) as (_, port):
            endpoint = server.endpoint(host="localhost", port=port, tls=True)
            with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
                await counts(endpoint, database_id)
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
            assert await counts(endpoint, database_id)

    run(trial())
