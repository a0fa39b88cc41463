"""Supervisor of a fixed number of worker processes that share a listening socket.

The supervisor serves no requests itself. It replaces workers that exit unexpectedly or do not respond. A reload
replaces the workers one at a time, so that their number never drops. A stop ends all of them gracefully. If the
supervisor is killed, the workers stop by themselves.
"""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any

from listings.domain.errors import Problem
from listings.http.acceptor import HANDSHAKE_SECONDS, drop_new_connections
from listings.telemetry.metrics import Family
from listings.workers.metrics_sum import MetricsSum, build_worker_metrics
from listings.workers.protocol import Retire, Stop
from listings.workers.reload_record import ReloadRecord
from listings.workers.worker import Worker, WorkerKilledError, describe_exit

_EARLY_EXIT_SECONDS = 5.0  # an earlier exit may have a cause that affects the next worker, too
_MAX_EARLY_EXITS = 3  # in a row, before starts are delayed
_MIN_START_INTERVAL_SECONDS = 1.0
_RETIRE_TIMEOUT_SECONDS = 195.0  # a worker takes up to three minutes, and its store has to be closed
_STOP_TIMEOUT_SECONDS = 14.0  # a worker takes up to ten seconds, two more for an email, and its store has to be closed
_REPORT_TIMEOUT_SECONDS = 1.0
_RESPONSE_TIMEOUT_SECONDS = 30.0
_LOG_CLOSED_CODE = 120  # Python's, if the log can't be flushed at exit, because the terminal was closed
_MAX_UNANSWERED_PINGS = 6  # in a row; not seconds, so that a pause of the supervisor kills no worker

_log = logging.getLogger(__name__)


class Supervisor:
    """Runs workers until it is stopped. All methods except `report` belong to one event loop."""

    def __init__(
        self,
        start: Callable[[Callable[[int, list[Family]], None]], Coroutine[Any, Any, Worker]],
        count: int,
        listener: socket.socket,
        record: ReloadRecord,
        response_timeout: float = _RESPONSE_TIMEOUT_SECONDS,
    ) -> None:
        """`start` starts a worker that passes its metrics to the given callback. `listener` is closed at the end.

        A worker whose event loop does not respond for `response_timeout` seconds is killed and replaced.
        """
        self._start = start
        self._count = count
        self._listener = listener
        self._record = record
        self._ping_interval = response_timeout / _MAX_UNANSWERED_PINGS
        self._loop = asyncio.get_running_loop()
        self._metrics = MetricsSum()
        self._workers: set[Worker] = set()  # those that have not ended
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._is_signalled = False
        self._reload_requested = asyncio.Event()
        self._start_lock = asyncio.Lock()
        self._last_start = 0.0
        self._early_exits = 0
        self._deaths = 0

    async def run(self, on_start: Callable[[], None]) -> bool:
        """Start all workers, call `on_start`, and supervise them until a signal or `stop`.

        Return whether all stopped gracefully. Raises the Problem of a worker that cannot start.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            self._loop.add_signal_handler(number, self._handle_signal, number)
        await self._start_all()
        if not self._stopping.is_set():
            on_start()
            self._spawn(self._run_reloads())
            self._spawn(self._kill_unresponsive())
            await self._stopping.wait()
        return await self._stop_all()

    def reload(self) -> None:
        """Replace all workers. If a reload is already running, another one follows it."""
        self._reload_requested.set()

    def stop(self) -> None:
        self._stopping.set()

    def _handle_signal(self, number: int) -> None:
        if self._is_signalled:  # a second time: acknowledged writes are on disk
            for worker in self._workers:
                worker.signal(signal.SIGKILL)
            os._exit(128 + number)
        self._is_signalled = True
        self.stop()

    # Workers

    async def _start_all(self) -> None:
        starts = [self._start_until_ready(is_first=True) for _ in range(self._count)]
        started = asyncio.gather(*map(self._spawn, starts))
        stop = asyncio.create_task(self._stopping.wait())
        either: list[asyncio.Future[Any]] = [started, stop]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        try:
            if started.done():
                started.result()
        except Problem:
            self._stopping.set()
            await self._stop_all()
            raise
        started.cancel()

    async def _launch(self) -> Worker:
        self._last_start = self._loop.time()
        worker = await self._start(self._metrics.record)
        self._workers.add(worker)
        worker.ended.add_done_callback(lambda _: self._remove(worker))
        return worker

    def _remove(self, worker: Worker) -> None:
        self._workers.discard(worker)
        self._metrics.remove(worker.pid)

    async def _supervise(self, worker: Worker) -> None:
        code = await asyncio.shield(worker.ended)
        if self._stopping.is_set() or (worker.is_exit_expected and code == 0):
            return
        self._deaths += 1
        if worker.is_exit_expected:
            _log.error("Worker %d %s while it was being replaced", worker.pid, describe_exit(code))
            return
        early = self._loop.time() - worker.started < _EARLY_EXIT_SECONDS
        self._early_exits = self._early_exits + 1 if early else 0
        _log.error("Worker %d %s; starting a replacement", worker.pid, describe_exit(code))
        await self._start_until_ready()

    async def _kill_unresponsive(self) -> None:
        while True:
            await asyncio.sleep(self._ping_interval)
            for worker in self._workers:
                if worker.ping() == _MAX_UNANSWERED_PINGS and not worker.is_exit_expected:
                    _log.error("Worker %d does not respond; killing it", worker.pid)
                    worker.signal(signal.SIGKILL)

    async def _start_until_ready(self, *, is_first: bool = False) -> None:
        failures = 0
        while not self._stopping.is_set():
            try:
                async with self._start_lock:
                    if self._early_exits >= _MAX_EARLY_EXITS:
                        await asyncio.sleep(self._last_start + _MIN_START_INTERVAL_SECONDS - self._loop.time())
                    worker = await self._launch()
                await worker.wait_until_ready()
            except Problem as problem:
                failures += 1
                is_killed = isinstance(problem, WorkerKilledError)
                # If no worker is ready and several were killed in a row, the memory is probably too small for any.
                is_last = failures == _MAX_EARLY_EXITS and not any(worker.is_ready for worker in self._workers)
                if is_first and (is_last or not is_killed):
                    raise
                self._deaths += is_killed
                self._early_exits += 1
                _log.error("A worker could not start; trying again: %s", problem.message)
            else:
                self._spawn(self._supervise(worker))
                return

    # Reload

    async def _run_reloads(self) -> None:
        while await self._reload_requested.wait():
            self._reload_requested.clear()
            self._record.begin()
            workers = [worker for worker in self._workers if not worker.is_exit_expected]
            workers.sort(key=lambda worker: not worker.is_ready)  # those that are starting may take long
            _log.info("Reloading %d workers, one at a time", len(workers))
            try:
                for old in workers:
                    await self._replace_gracefully(old)
            except Problem as problem:
                _log.error("Reload aborted, keeping the current workers: %s", problem.message)
                self._record.end(problem.message)
            else:
                _log.info("Reloaded")
                self._record.end(None)

    async def _replace_gracefully(self, old: Worker) -> None:
        with suppress(Problem):
            await old.wait_until_ready()  # it may have read the settings and secret files before the reload
        if old.ended.done():
            return  # already replaced
        old.is_exit_expected = True
        try:
            new = await self._launch()
            await new.wait_until_ready()
        except Problem:
            if old.ended.done():
                self._spawn(self._start_until_ready())
            else:
                old.is_exit_expected = False
            raise
        self._spawn(self._supervise(new))
        if not await old.stop(Retire(), _RETIRE_TIMEOUT_SECONDS):
            await _kill(old)

    # Stop

    async def _stop_all(self) -> bool:
        if drop_new_connections(self._listener):  # for all workers, because they share the socket
            await asyncio.sleep(HANDSHAKE_SECONDS)
        self._listener.close()  # otherwise the kernel would accept connections that no process serves
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        workers = list(self._workers)
        await asyncio.gather(*(worker.stop(Stop(), _STOP_TIMEOUT_SECONDS) for worker in workers))
        for worker in list(self._workers):
            await _kill(worker)
        is_graceful = True
        for worker in workers:
            # SIGTERM ends one that was starting; why others did not start is logged already.
            code = worker.ended.result()
            if worker.is_ready and code not in {0, _LOG_CLOSED_CODE, -signal.SIGTERM}:
                _log.error("Worker %d %s during the stop", worker.pid, describe_exit(code))
                is_graceful = False
        return is_graceful

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Metrics

    def report(self) -> list[Family]:
        """Return the sums of all workers' metrics. Called from a thread other than the event loop's."""
        report = self._report()
        try:
            future = asyncio.run_coroutine_threadsafe(report, self._loop)
        except RuntimeError:  # the loop is closed
            report.close()
            return []
        try:
            return future.result(2 * _REPORT_TIMEOUT_SECONDS)
        except (CancelledError, TimeoutError):  # the loop is stopping
            future.cancel()
            return []

    async def _report(self) -> list[Family]:
        await asyncio.gather(*(worker.request_report(_REPORT_TIMEOUT_SECONDS) for worker in list(self._workers)))
        return [*self._metrics.compute(), *build_worker_metrics(len(self._workers), self._deaths)]


async def _kill(worker: Worker) -> None:
    _log.error("Worker %d did not stop in time; killing it", worker.pid)
    await worker.kill()
