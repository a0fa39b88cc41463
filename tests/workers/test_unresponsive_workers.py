"""A worker whose event loop does not respond is replaced, and one whose replacement cannot start at first."""

import asyncio
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx2
import pytest

from listings import maintenance
from listings.domain.errors import Problem
from listings.http.server import bind_socket, format_base_url
from listings.telemetry.metrics import Family
from listings.workers.reload_record import ReloadRecord
from listings.workers.supervisor import Supervisor
from listings.workers.worker import Worker
from tests.cli.commands import DEADLINE
from tests.harness import DatabaseUrls, load_test_settings

pytestmark = pytest.mark.slow

REAL_WORKER = (sys.executable, "-P", "-m", "listings.cli.worker")
HANGING_WORKER = (sys.executable, "-c", "import time; time.sleep(100)")
SLOW_WORKER = (  # takes longer than the timeout to start and to stop, and answers no ping meanwhile
    sys.executable,
    "-c",
    """if True:
    import json, socket, sys, time
    channel = socket.socket(fileno=int(sys.argv[1])).makefile("rwb", buffering=0)
    replies = {"begin": {"type": "ready"}, "ask": {"type": "report", "families": []}, "ping": {"type": "pong"}}
    for line in channel:
        command = json.loads(line)["type"]
        if command in ("begin", "retire", "stop"):
            time.sleep(1.5)
        if command not in replies:
            break
        channel.write(json.dumps(replies[command]).encode() + b"\\n")
    """,
)


class Supervised:
    """Workers under a supervisor, in the order of their starts."""

    def __init__(self, command: Sequence[str], flags: Mapping[str, str | None], count: int, timeout: float) -> None:
        self.command = command
        self._flags = flags
        self._listener = bind_socket("127.0.0.1", 0)
        self.base_url = format_base_url(self._listener)
        self.workers: list[Worker] = []
        self.supervisor = Supervisor(self._start, count, self._listener, ReloadRecord(Path(os.devnull)), timeout)

    async def _start(self, on_report: Callable[[int, list[Family]], None]) -> Worker:
        self.workers.append(await Worker.start(self.command, self._flags, self._listener, on_report))
        return self.workers[-1]

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Start the workers, and stop them gracefully at the end."""
        ready = asyncio.Event()
        running = asyncio.create_task(self.supervisor.run(ready.set))
        await asyncio.wait([running, asyncio.create_task(ready.wait())], return_when=asyncio.FIRST_COMPLETED)
        yield
        self.supervisor.stop()
        assert await running


def test_a_stop_does_not_wait_for_workers_that_are_starting() -> None:
    async def run_scenario() -> None:
        service = Supervised(HANGING_WORKER, {}, 2, DEADLINE)
        running = asyncio.create_task(service.supervisor.run(lambda: pytest.fail("No worker is ready")))
        while len(service.workers) < 2:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.01)
        service.supervisor.stop()
        async with asyncio.timeout(30):  # less than the time that a worker has to start
            assert await running

    asyncio.run(run_scenario())


def kill_at_start(tmp_path: Path, *moments: str) -> list[Worker]:
    """Start four real workers and kill one after another of them at a moment: as a process, or when it is ready.

    Return all workers that were started, when the service is.
    """
    maintenance.migrate_database(load_test_settings(tmp_path))
    flags = {"data_folder": str(tmp_path), "database": DatabaseUrls.build(tmp_path), "workers": "4"}

    async def run_scenario() -> list[Worker]:
        service = Supervised(REAL_WORKER, flags, 4, DEADLINE)

        async def kill() -> None:
            for number, moment in enumerate(moments):
                while len(service.workers) <= number:  # noqa: ASYNC110 - the supervisor signals nothing
                    await asyncio.sleep(0)
                if moment == "ready":
                    await service.workers[number].wait_until_ready()
                service.workers[number].signal(signal.SIGKILL)

        killing = asyncio.create_task(kill())
        async with asyncio.timeout(DEADLINE), service.run():
            await killing
            while len(service.workers) < 4 + len(moments):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await asyncio.gather(*(worker.wait_until_ready() for worker in service.workers[4:]))
            deaths = next(f for f in await asyncio.to_thread(service.supervisor.report) if f.name.endswith("_deaths"))
            assert deaths.samples[0].value == len(moments)
        return service.workers

    return asyncio.run(run_scenario())


@pytest.mark.parametrize("moments", [["starting", "ready"], ["starting"] * 4])
def test_workers_that_are_killed_while_others_start_are_replaced(tmp_path: Path, moments: list[str]) -> None:
    assert len(kill_at_start(tmp_path, *moments)) == 4 + len(moments)


KILLED_WORKER = (sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")


def test_a_service_whose_workers_are_all_killed_does_not_start() -> None:
    async def run_scenario() -> None:
        service = Supervised(KILLED_WORKER, {}, 2, DEADLINE)
        with pytest.raises(Problem, match="A worker was killed by SIGKILL during startup"):
            await service.supervisor.run(lambda: pytest.fail("No worker is ready"))
        assert len(service.workers) <= 6

    asyncio.run(run_scenario())


def test_a_stuck_worker_is_replaced_while_others_serve(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    maintenance.migrate_database(load_test_settings(tmp_path))
    flags = {"data_folder": str(tmp_path), "database": DatabaseUrls.build(tmp_path), "workers": "2"}

    async def run_scenario() -> None:
        service = Supervised(REAL_WORKER, flags, 2, 1.5)
        async with asyncio.timeout(DEADLINE), service.run():
            stuck = service.workers[0]
            stuck.signal(signal.SIGSTOP)
            async with httpx2.AsyncClient(base_url=service.base_url, headers={"Connection": "close"}) as client:
                while len(service.workers) < 3:
                    assert (await client.get("/healthz")).status_code == 200
                    await asyncio.sleep(0.01)
            assert await stuck.ended == -signal.SIGKILL
            await service.workers[2].wait_until_ready()

    asyncio.run(run_scenario())
    assert "does not respond; killing it" in caplog.text


def test_a_worker_that_starts_or_retires_slowly_is_not_killed() -> None:
    async def run_scenario() -> None:
        service = Supervised(SLOW_WORKER, {}, 1, 1.0)
        async with asyncio.timeout(DEADLINE), service.run():
            service.supervisor.reload()
            assert await service.workers[0].ended == 0
            assert len(service.workers) == 2

    asyncio.run(run_scenario())


def test_a_worker_is_replaced_when_files_can_be_opened_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    maintenance.migrate_database(load_test_settings(tmp_path))
    flags = {"data_folder": str(tmp_path), "database": DatabaseUrls.build(tmp_path), "workers": "2"}

    async def run_scenario() -> None:
        service = Supervised(REAL_WORKER, flags, 2, DEADLINE)
        async with asyncio.timeout(DEADLINE), service.run():
            with no_more_files():
                started = asyncio.get_running_loop().time()
                service.workers[0].signal(signal.SIGKILL)
                while caplog.text.count("A worker can't be started: Too many open files") < 5:  # noqa: ASYNC110 - no event
                    await asyncio.sleep(0.01)
            assert asyncio.get_running_loop().time() - started > 1  # after three, one per second
            while len(service.workers) < 3:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)
            await service.workers[2].wait_until_ready()

    asyncio.run(run_scenario())


@contextmanager
def no_more_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_reload_also_replaces_a_worker_that_was_starting(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def scenario() -> None:
        supervised = Supervised(SLOW_WORKER, {}, 2, DEADLINE)
        async with supervised.run(), asyncio.timeout(DEADLINE):
            supervised.workers[0].signal(signal.SIGKILL)
            while len(supervised.workers) < 3:  # noqa: ASYNC110 - the supervisor signals nothing
                await asyncio.sleep(0.01)
            supervised.supervisor.reload()
            while "Reloaded" not in caplog.messages:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert [worker.ended.done() for worker in supervised.workers] == [True, True, True, False, False]

    asyncio.run(scenario())


def test_a_worker_that_dies_during_a_reload_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        supervised = Supervised(SLOW_WORKER, {}, 1, DEADLINE)
        async with supervised.run(), asyncio.timeout(DEADLINE):
            supervised.supervisor.reload()
            while len(supervised.workers) < 2:  # noqa: ASYNC110 - the supervisor signals nothing
                await asyncio.sleep(0.01)
            old, new = supervised.workers
            old.signal(signal.SIGKILL)
            await new.wait_until_ready()
            report = await asyncio.to_thread(supervised.supervisor.report)
            deaths = next(family for family in report if family.name == "listings_worker_deaths")
            assert [sample.value for sample in deaths.samples] == [1]
            assert f"Worker {old.pid} was killed by SIGKILL while it was being replaced" in caplog.messages

    asyncio.run(scenario())


def test_a_worker_that_fails_during_the_stop_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        supervised = Supervised((*SLOW_WORKER[:2], SLOW_WORKER[2].replace("break", "sys.exit(3)")), {}, 2, DEADLINE)
        supervisor = supervised.supervisor
        async with asyncio.timeout(DEADLINE):
            assert not await supervisor.run(supervisor.stop)
        assert f"Worker {supervised.workers[0].pid} exited with code 3 during the stop" in caplog.messages

    asyncio.run(scenario())
