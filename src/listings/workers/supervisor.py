"""Keeps a number of workers at work on one listening socket.

The supervisor answers nothing itself. A worker that ends unasked is replaced; a reload renews all of them, one after
the other, so that there are never fewer; a stop ends them all in order. They end by themselves when it is killed.
"""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from listings.domain.errors import Problem
from listings.http.acceptor import HANDSHAKE_SECONDS, reject_new_connections
from listings.telemetry.metrics import Family
from listings.workers.metrics_sum import Tally, about_workers
from listings.workers.protocol import Retire
from listings.workers.worker import Worker, manner_of

_EARLY_SECONDS = 5.0  # a worker that ends sooner may have been hindered by what hinders the next one too
_EARLY_ENDS = 3  # in a row, from which on starts are spaced
_SPACE_SECONDS = 1.0
_RETIRING_SECONDS = 75.0  # a worker takes a minute, and what its store needs
_STOPPING_SECONDS = 14.0  # a worker takes ten seconds, and what its store needs
_REPORT_SECONDS = 1.0

_log = logging.getLogger(__name__)


class Supervisor:
    """Runs workers until it is told to stop. Made and used on one event loop, but for `report`."""

    def __init__(
        self,
        start: Callable[[Callable[[int, list[Family]], None]], Coroutine[Any, Any, Worker]],
        count: int,
        listener: socket.socket,
    ) -> None:
        """`start` starts a worker, which hands its metrics to what is given; `listener` is closed when all stop."""
        self._start = start
        self._count = count
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._tally = Tally()
        self._workers: set[Worker] = set()  # all that have not ended
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._reloads = asyncio.Event()
        self._pace = asyncio.Lock()
        self._last_start = 0.0
        self._early_ends = 0
        self._deaths = 0

    async def run(self, on_start: Callable[[], None]) -> bool:
        """Start all workers, tell it, and see to them until a signal; whether all ended in order.

        Raises Problem, that of the worker, when one can't start.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            self._loop.add_signal_handler(number, self._stop_at, number)
        await self._start_all()
        if not self._stopping.is_set():
            on_start()
            self._spawn(self._reload_when_told())
            await self._stopping.wait()
        return await self._end_all()

    def reload(self) -> None:
        """Renew all workers; once more when it is told while a reload is under way."""
        self._reloads.set()

    def stop(self) -> None:
        """Stop in order."""
        self._stopping.set()

    def _stop_at(self, number: int) -> None:
        """At the second signal end at once; what was acknowledged is on disk either way."""
        if self._stopping.is_set():
            for worker in self._workers:
                worker.signal(signal.SIGKILL)
            os._exit(128 + number)
        self.stop()

    # The workers

    async def _start_all(self) -> None:
        try:
            workers = [await self._launch() for _ in range(self._count)]
            await asyncio.gather(*(worker.until_ready() for worker in workers))
        except Problem:
            self._stopping.set()
            await self._end_all()
            raise
        for worker in workers:
            self._spawn(self._watch(worker))

    async def _launch(self) -> Worker:
        worker = await self._start(self._tally.note)
        self._last_start = self._loop.time()
        self._workers.add(worker)
        worker.ended.add_done_callback(lambda _: self._forget(worker))
        return worker

    def _forget(self, worker: Worker) -> None:
        self._workers.discard(worker)
        self._tally.end(worker.pid)

    async def _watch(self, worker: Worker) -> None:
        """Replace a worker that ends unasked."""
        code = await asyncio.shield(worker.ended)
        if worker.leaving or self._stopping.is_set():
            return
        self._deaths += 1
        early = self._loop.time() - worker.started < _EARLY_SECONDS
        self._early_ends = self._early_ends + 1 if early else 0
        _log.error("Worker %d %s; another takes its place", worker.pid, manner_of(code))
        await self._replace()

    async def _replace(self) -> None:
        """Start a worker, and again until one is ready."""
        while not self._stopping.is_set():
            try:
                worker = await self._start_spaced()
            except Problem as problem:
                self._early_ends += 1
                _log.error("No worker can take its place: %s", problem.message)
            else:
                self._spawn(self._watch(worker))
                return

    async def _start_spaced(self) -> Worker:
        """A worker that is ready; when many ended early, not within a second of the last start. Raises Problem."""
        async with self._pace:
            if self._early_ends >= _EARLY_ENDS:
                await asyncio.sleep(self._last_start + _SPACE_SECONDS - self._loop.time())
            worker = await self._launch()
        await worker.until_ready()
        return worker

    # A reload

    async def _reload_when_told(self) -> None:
        while await self._reloads.wait():
            self._reloads.clear()
            olds = [worker for worker in self._workers if not worker.leaving]
            _log.info("Reloading: %d workers are renewed, one after the other", len(olds))
            for old in olds:
                if not await self._renew(old):
                    break
            else:
                _log.info("Reloaded")

    async def _renew(self, old: Worker) -> bool:
        """Put a new worker into an old one's place; False when none could start, and the old one stays."""
        if old.ended.done():
            return True  # it was replaced already
        old.leaving = True
        try:
            new = await self._launch()
            await new.until_ready()
        except Problem as problem:
            _log.error("The reload ends here, the present workers stay: %s", problem.message)
            if old.ended.done():
                self._spawn(self._replace())
            else:
                old.leaving = False
            return False
        self._spawn(self._watch(new))
        if not await old.end_by(Retire(), seconds=_RETIRING_SECONDS):
            _log.error("Worker %d did not end; it is killed", old.pid)
            await old.end_by(signal.SIGKILL)
        return True

    # The end

    async def _end_all(self) -> bool:
        if reject_new_connections(self._listener):  # of all workers at once: it is their socket too
            await asyncio.sleep(HANDSHAKE_SECONDS)
        self._listener.close()  # else connections would be accepted that nobody will take
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        endings = [worker.end_by(signal.SIGTERM, seconds=_STOPPING_SECONDS) for worker in self._workers]
        in_order = all(await asyncio.gather(*endings))
        for worker in list(self._workers):
            _log.error("Worker %d did not end; it is killed", worker.pid)
            await worker.end_by(signal.SIGKILL)
        return in_order

    def _spawn(self, task: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        running = asyncio.create_task(task)
        self._tasks.add(running)
        running.add_done_callback(self._tasks.discard)
        return running

    # Metrics

    def report(self) -> list[Family]:
        """The metrics of all workers as those of one service. For another thread than the loop's."""
        asking = self._report()
        try:
            future = asyncio.run_coroutine_threadsafe(asking, self._loop)
            return future.result(2 * _REPORT_SECONDS)
        except (RuntimeError, TimeoutError):  # it has just stopped
            asking.close()
            return []

    async def _report(self) -> list[Family]:
        await asyncio.gather(*(worker.report(_REPORT_SECONDS) for worker in list(self._workers)))
        return [
            *self._tally.sums(),
            *about_workers(len(self._workers), self._deaths),
        ]
