"""Run all writes to the SQLite file in one thread, with group commit.

The thread runs all queued operations in one transaction. One commit, hence one fsync, makes the whole batch durable,
and only then does each `run` return.

The event loop wakes the thread once all ready requests have queued their writes. The two share Python's global
interpreter lock: a thread that wrote while requests arrive would contend with the loop at every statement.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter
from typing import Literal, TypeVar

import apsw

from listings.domain.errors import Unavailable
from listings.store.sqlite.file_identity import OpenFiles
from listings.store.sqlite.revision_cache import RevisionCache
from listings.store.sqlite.write_lock import UNKNOWN, WriteLock
from listings.store.sqlite.writer.batch_writer import BatchWriter, OnBatch, build_busy_error
from listings.store.sqlite.writer.calls import Call, Operation, Outcome, Promise, deliver
from listings.store.sqlite.writer.file_guard import FileGuard

T = TypeVar("T")

_MAX_BATCH_SIZE = 256
_MAX_QUEUED_WRITES = 1024
_MAX_COLLECT_SECONDS = 0.005
_LOCK_TIMEOUT_SECONDS = 5.0  # for another process to release the write lock; `close` gives up after about 6 s
_LOCK_CHECK_SECONDS = 1.0
_CHECK_TIMEOUT_SECONDS = 1.0
_WRITE, _EXIT = True, False

_log = logging.getLogger(__name__)


class Writer:
    """Runs operations in the writer thread. Create and use it on one event loop."""

    def __init__(self, path: Path, on_batch: OnBatch | None = None, files: OpenFiles | None = None) -> None:
        """Start the thread. Raises OSError if the lock file next to `path` can't be opened.

        `files` are the readers' files. If None, the files that the first write opens are used.
        """
        self.lock = WriteLock(path)
        self.revisions = RevisionCache(self.lock)
        self.guard = FileGuard(self.lock, files)
        self._batch_writer = BatchWriter(path, self.lock, self.guard, on_batch)
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Call] = deque()
        self._phase: Literal["idle", "collecting", "writing"] = "idle"  # set by the loop
        self._signals: SimpleQueue[bool] = SimpleQueue()
        self._closing = False
        self._reader: apsw.Connection | None = None  # to be closed with the writer
        self._watching_lock = False
        self._rejecting = False  # while another process has held the lock for too long
        self._thread = threading.Thread(target=self._run_thread, name="listings-writer", daemon=True)
        self._thread.start()

    async def run(
        self,
        operation: Operation[T],
        *,
        changes_callers: bool = True,
        track: Callable[[T], None] | None = None,
        is_dry_run: bool = False,
    ) -> T:
        """Run an operation in a transaction and return its result once it is durable.

        The operation may run more than once; each time, its earlier writes are rolled back first. `changes_callers`:
        it may change a result of `find_caller`. `track` gets its result before `run` returns, and records in
        `revisions` how the operation changed listings. Without `track`, the operation may have changed any listing.
        `is_dry_run`: it raises an exception after its writes, so that nothing is committed.

        Raises whatever the operation raises, or Unavailable if the database rejects a statement; its writes are
        then rolled back. Raises Unavailable if writes are rejected (during a stop, or after damage), too many
        are queued, another process holds the write lock for 5 s, or the transaction fails. In the last case the outcome
        is unknown, unless the message states it.
        """
        self._require_accepting()
        promise: Promise[T] = Promise(loop=self._loop)
        if track is None:
            self.revisions.begin_untracked_write()
        self._queue.append(Call(operation, promise, changes_callers, track, is_dry_run))
        if self._phase == "idle":
            self._collect_writes()
        return await promise

    @property
    def queued(self) -> int:
        """Number of queued operations that the thread has not started. Thread-safe."""
        return len(self._queue)

    @property
    def batch_size(self) -> int:
        """Number of operations in the current batch. Thread-safe."""
        return self._batch_writer.batch_size

    async def check(self) -> None:
        """Raise Unavailable if writes are rejected. After a failed batch, try a small write."""
        self._require_accepting()
        if not self._batch_writer.failed:
            return
        task = self._loop.create_task(self.run(_rewrite_header, changes_callers=False, track=lambda _: None))
        # Retrieve the error, or asyncio logs it if `check` is cancelled.
        task.add_done_callback(lambda it: it.cancelled() or it.exception())
        await asyncio.wait([task], timeout=_CHECK_TIMEOUT_SECONDS)
        if not task.done():
            task.cancel()
            raise Unavailable("Writing to the database takes too long")
        task.result()

    def _require_accepting(self) -> None:
        if self._closing:
            raise Unavailable("The service is stopping")
        if len(self._queue) >= _MAX_QUEUED_WRITES:
            raise Unavailable("Too many writes are waiting")
        if self._rejecting:
            raise build_busy_error()
        self.guard.require_undamaged()

    async def close(self, reader: apsw.Connection | None = None) -> None:
        """Commit the queued writes, checkpoint the WAL and disconnect. Give up if another process holds the lock.

        `reader` is not used meanwhile, and is closed last: without it, another process could remove the WAL before a
        queued write opens it.
        """
        if not self._closing:
            self._reader = reader
            self._closing = True
            self._signals.put(_EXIT)
        began = perf_counter()
        while self._thread.is_alive():
            if self._is_locked_out(began):
                _log.warning("Another process holds the write lock: the final checkpoint is left to the next start")
                self._reject_queued()
                return
            await asyncio.to_thread(self._thread.join, _LOCK_CHECK_SECONDS)

    def _is_locked_out(self, began: float) -> bool:
        # As soon as a wait for the lock has timed out, or `close` has taken 5 s and the thread waited for 1 s.
        now, waiting_since = perf_counter(), self.lock.waiting_since
        if waiting_since is None:
            return False
        is_late = now - began >= _LOCK_TIMEOUT_SECONDS and now - waiting_since >= _LOCK_CHECK_SECONDS
        return self._rejecting or is_late

    def _collect_writes(self) -> None:
        self._phase = "collecting"
        self._loop.call_soon(self._start_or_wait, 0, perf_counter() + _MAX_COLLECT_SECONDS)

    def _start_or_wait(self, before: int, until: float) -> None:
        # The last iteration of the event loop may have queued more writes.
        queued = len(self._queue)
        if before < queued < _MAX_BATCH_SIZE and perf_counter() < until:
            self._loop.call_soon(self._start_or_wait, queued, until)
        else:
            self._phase = "writing"
            self._signals.put(_WRITE)
            if not self._watching_lock:
                self._watch_lock()

    def _end_batch(self, outcomes: list[Outcome], sequence: int) -> None:
        self._phase = "idle"
        self._rejecting = False
        self._track(outcomes, sequence)
        if self._queue:
            self._collect_writes()
        deliver(outcomes)

    def _track(self, outcomes: list[Outcome], sequence: int) -> None:
        untracked = 0
        for call, result, error in outcomes:
            if call.track is None:
                untracked += 1
            elif error is None:
                call.track(result)
        outcomes_known = not any(isinstance(error, Unavailable) for _, _, error in outcomes)
        self.revisions.end_batch(sequence, untracked, outcomes_known=outcomes_known)

    def _watch_lock(self) -> None:
        # A thread that waits for the lock has not dequeued any writes.
        self._watching_lock = self._phase == "writing"
        if not self._watching_lock:
            return
        since = self.lock.waiting_since
        if since is not None and perf_counter() - since >= _LOCK_TIMEOUT_SECONDS and not self._rejecting:
            self._rejecting = True
            _log.error("Another process holds the write lock; rejected %d queued writes", len(self._queue))
            self._reject_queued()
        self._loop.call_later(_LOCK_CHECK_SECONDS, self._watch_lock)

    def _reject_queued(self) -> None:
        outcomes = [Outcome(call, error=build_busy_error()) for call in self._dequeue(len(self._queue))]
        self._track(outcomes, UNKNOWN)
        deliver(outcomes)

    def _dequeue(self, count: int) -> list[Call]:
        # Safe for the thread and the loop: no call is returned twice.
        calls: list[Call] = []
        with suppress(IndexError):
            while len(calls) < count:
                calls.append(self._queue.popleft())
        return calls

    # The methods below run in the writer thread.

    def _run_thread(self) -> None:
        while self._signals.get() is _WRITE:
            self._write_queued()
        while self._queue:
            self._write_queued()
        self._batch_writer.close(self._reader)
        self.lock.close()

    def _write_queued(self) -> None:
        # The batch is dequeued under the lock: more writes may have been queued meanwhile.
        sequence, outcomes = UNKNOWN, None
        try:
            with self.lock.acquire(changes_callers=False):
                sequence = self.lock.sequence_at_acquire
                batch = self._dequeue(_MAX_BATCH_SIZE)
                outcomes = self._batch_writer.write(batch)
                self._queue.extendleft(reversed(batch[len(outcomes) :]))
        except OSError:
            _log.exception("Locking or unlocking the lock file failed")
            self._batch_writer.failed = True
            if outcomes is None:  # nothing was dequeued
                outcomes = self._batch_writer.reject(self._dequeue(_MAX_BATCH_SIZE))
        with suppress(RuntimeError):  # the loop is closed, as after `close` gave up waiting for the lock
            self._loop.call_soon_threadsafe(self._end_batch, outcomes, sequence)


def _rewrite_header(connection: apsw.Connection) -> None:
    connection.pragma("user_version", connection.pragma("user_version"))
