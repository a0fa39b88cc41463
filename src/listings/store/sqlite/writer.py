"""Run all writes to the SQLite file in one thread, with group commit.

The thread runs all queued operations in one transaction. One commit, hence one fsync, makes the whole batch durable,
and only then does each `run` return. Most operations that fail have not written anything. If a failed one has, or if
SQLite has rejected a statement, the whole batch is rolled back and run again with a savepoint for each operation. In
the first run, only dry runs have a savepoint, because it doubles the cost of an operation.

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
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import apsw

from listings.domain.errors import Problem, Unavailable
from listings.store.scripts.listings import RollbackError
from listings.store.sqlite.connections import is_damage, open_writer, set_checkpoint_on_close, write_recovery_marker
from listings.store.sqlite.file_identity import OpenFiles
from listings.store.sqlite.revision_cache import RevisionCache
from listings.store.sqlite.wal_limit import WalLimit
from listings.store.sqlite.write_lock import UNKNOWN, WriteLock

T = TypeVar("T")
Operation: TypeAlias = Callable[[apsw.Connection], T]


class OnBatch(Protocol):
    """Callback that is called after every batch."""

    def __call__(self, size: int, seconds: float, *, committed: bool) -> None:
        """Report the number of operations and the duration. Called in the writer thread.

        `committed` is False if the batch failed.
        """


_MAX_BATCH_SIZE = 256
_MAX_QUEUED_WRITES = 1024
_MAX_GATHER_SECONDS = 0.005
_LOCK_TIMEOUT_SECONDS = 5.0  # for another process to release the write lock; `close` gives up after about 6 s
_LOCK_CHECK_SECONDS = 1.0
_CHECKPOINT_TIMEOUT_MS = 250  # for the final checkpoint
_CHECK_TIMEOUT_SECONDS = 1.0
_WRITE, _EXIT = True, False
_REPLACED = "The database was removed or replaced while in use"
_TRUNCATED = "The database's WAL was truncated while in use"
_FOUND_ELSEWHERE = "Another process has found the database damaged"

# Errors of SQLite that end one statement and keep the transaction. Any other apsw.Error fails the whole batch.
_STATEMENT_ERRORS = (
    apsw.ConstraintError,
    apsw.MismatchError,
    apsw.RangeError,
    apsw.SQLError,
    apsw.TooBigError,
)

_DISK_ERRORS = (apsw.IOError, apsw.CorruptError, apsw.NotADBError, apsw.CantOpenError)

_log = logging.getLogger(__name__)


class Promise(asyncio.Future[T]):
    """A future that the writer always resolves. The server awaits it without creating a task for the request."""

    needs_no_task = True


class _Call(NamedTuple):
    operation: Operation[Any]
    promise: Promise[Any]
    changes_callers: bool
    track: Callable[[Any], None] | None
    is_dry_run: bool


class _Outcome(NamedTuple):
    call: _Call
    result: object = None
    error: BaseException | None = None


class Writer:
    """Runs operations in the writer thread. Create and use it on one event loop."""

    def __init__(self, path: Path, on_batch: OnBatch | None = None, files: OpenFiles | None = None) -> None:
        """Start the thread. Raises OSError if the lock file next to `path` can't be opened.

        `files` are the readers' files. If None, the files that the first write opens are used.
        """
        self._path = path
        self._on_batch = on_batch
        self.lock = WriteLock(path)
        self.revisions = RevisionCache(self.lock)
        self._wal_limit = WalLimit()
        self._connection: apsw.Connection | None = None
        self._files = files  # set once: a new connection must use the files of the readers
        self._damage: str | None = None
        self._failed = False  # whether a batch failed, and none has been committed since
        self._loop = asyncio.get_running_loop()
        self._queue: deque[_Call] = deque()
        self._phase: Literal["idle", "gathering", "writing"] = "idle"  # set by the loop
        self._signals: SimpleQueue[bool] = SimpleQueue()
        self._closing = False
        self._watching_lock = False
        self._rejecting = False  # while another process has held the lock for too long
        self._commit_started = False  # whether the current batch has reached its commit
        self.batch_size = 0  # operations in the current batch
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

        Raises whatever the operation raises, or Unavailable if the database rejects a statement; what the operation
        wrote is then rolled back. Raises Unavailable if writes are rejected (during a stop, or after damage), too many
        are queued, another process holds the write lock for 5 s, or the transaction fails. In the last case the outcome
        is unknown, unless the message states it.
        """
        self._require_accepting()
        promise: Promise[T] = Promise(loop=self._loop)
        if track is None:
            self.revisions.begin_untracked_write()
        self._queue.append(_Call(operation, promise, changes_callers, track, is_dry_run))
        if self._phase == "idle":
            self._gather()
        return await promise

    @property
    def queued(self) -> int:
        """Number of queued operations that the thread has not started. Thread-safe."""
        return len(self._queue)

    async def check(self) -> None:
        """Raise Unavailable if writes are rejected. After a failed batch, try a small write."""
        self._require_accepting()
        if not self._failed:
            return
        task = self._loop.create_task(self.run(_rewrite_header, changes_callers=False, track=lambda _: None))
        # Retrieve the error, or asyncio logs it if `check` is cancelled.
        task.add_done_callback(lambda it: it.cancelled() or it.exception())
        await asyncio.wait([task], timeout=_CHECK_TIMEOUT_SECONDS)
        if not task.done():
            task.cancel()
            raise Unavailable("Writing to the database takes too long")
        task.result()

    def report_damage(self, damage: str) -> None:
        """Reject all further writes, in all processes, and keep the WAL on `close`. Thread-safe."""
        if self._damage is None:
            self._set_damage(damage)
            self.lock.report_damage()

    def _set_damage(self, damage: str) -> None:
        self._damage = damage
        _log.error("%s: writes are rejected from now on", damage)

    def find_fault(self, connection: apsw.Connection | None) -> str | None:
        """Return why the WAL must not be written into the database, or None."""
        try:
            self.require_files(connection)
        except (Unavailable, apsw.Error):
            if self._damage is None and self._files is not None and not self._files.may_checkpoint():
                return _REPLACED
        return self._damage

    def _require_accepting(self) -> None:
        """Raise Unavailable if new writes are rejected without trying."""
        if self._closing:
            raise Unavailable("The service is stopping")
        if len(self._queue) >= _MAX_QUEUED_WRITES:
            raise Unavailable("Too many writes are waiting")
        if self._rejecting:
            raise _build_busy_error()
        self._require_undamaged()

    def _require_undamaged(self) -> None:
        if self._damage is None and self.lock.is_damaged:
            self._set_damage(_FOUND_ELSEWHERE)
        if self._damage is not None:
            raise Unavailable(f"{self._damage}; nothing was written")

    def require_files(self, connection: apsw.Connection | None) -> None:
        """Raise Unavailable if the open database was removed, replaced or damaged. Thread-safe.

        `connection` is the calling thread's, and has no transaction.
        """
        if self._files is None:
            self._require_undamaged()
            return
        change = self._files.find_change(connection)
        if change == "replaced":
            raise Unavailable(f"{_REPLACED}; nothing was written")
        if change == "truncated":
            self.report_damage(_TRUNCATED)
        self._require_undamaged()

    async def close(self) -> None:
        """Commit the queued writes, checkpoint the WAL and disconnect. Give up if another process holds the lock."""
        if not self._closing:
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
        """Return whether `close`, which began at that time, must give up the last writes.

        It must as soon as a wait for the lock has timed out, or `close` has taken 5 s and the thread waited for 1 s.
        """
        now, waiting_since = perf_counter(), self.lock.waiting_since
        if waiting_since is None:
            return False
        is_late = now - began >= _LOCK_TIMEOUT_SECONDS and now - waiting_since >= _LOCK_CHECK_SECONDS
        return self._rejecting or is_late

    def _gather(self) -> None:
        self._phase = "gathering"
        self._loop.call_soon(self._start_or_gather, 0, perf_counter() + _MAX_GATHER_SECONDS)

    def _start_or_gather(self, before: int, until: float) -> None:
        """Start a batch unless the last iteration of the event loop has queued more writes."""
        queued = len(self._queue)
        if before < queued < _MAX_BATCH_SIZE and perf_counter() < until:
            self._loop.call_soon(self._start_or_gather, queued, until)
        else:
            self._phase = "writing"
            self._signals.put(_WRITE)
            if not self._watching_lock:
                self._watch_lock()

    def _end_batch(self, outcomes: list[_Outcome], sequence: int) -> None:
        """Deliver the results of a batch. Writes that were queued meanwhile form the next one."""
        self._phase = "idle"
        self._rejecting = False
        self._track(outcomes, sequence)
        if self._queue:
            self._gather()
        _deliver(outcomes)

    def _track(self, outcomes: list[_Outcome], sequence: int) -> None:
        untracked = 0
        for call, result, error in outcomes:
            if call.track is None:
                untracked += 1
            elif error is None:
                call.track(result)
        outcomes_known = not any(isinstance(error, Unavailable) for _, _, error in outcomes)
        self.revisions.end_batch(sequence, untracked, outcomes_known=outcomes_known)

    def _watch_lock(self) -> None:
        """Reject queued writes if the lock times out. A thread that waits for it has not dequeued any of them."""
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
        outcomes = [_Outcome(call, error=_build_busy_error()) for call in self._dequeue(len(self._queue))]
        self._track(outcomes, UNKNOWN)
        _deliver(outcomes)

    def _dequeue(self, count: int) -> list[_Call]:
        """Remove up to `count` calls from the queue. Safe for the thread and the loop: no call is returned twice."""
        calls: list[_Call] = []
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
        self._disconnect()
        self.lock.close()

    def _write_queued(self) -> None:
        """Acquire the lock, then dequeue a batch: more writes may have been queued while it waited."""
        sequence, outcomes = UNKNOWN, None
        try:
            with self.lock.acquire(changes_callers=False):
                sequence = self.lock.sequence_at_acquire
                outcomes = self._write(self._dequeue(_MAX_BATCH_SIZE))
        except OSError:
            _log.exception("Locking or unlocking the lock file failed")
            self._failed = True
            if outcomes is None:  # nothing was dequeued
                outcomes = [_Outcome(call, error=_build_busy_error()) for call in self._dequeue(_MAX_BATCH_SIZE)]
                self._report(outcomes, 0.0, committed=False)
        with suppress(RuntimeError):  # the loop is closed, as after `close` gave up waiting for the lock
            self._loop.call_soon_threadsafe(self._end_batch, outcomes, sequence)

    def _write(self, batch: list[_Call]) -> list[_Outcome]:
        """Write a dequeued batch and return its outcomes. Never raises."""
        if not batch:  # all were rejected while the thread waited for the lock
            return []
        began = perf_counter()
        self.batch_size = len(batch)
        if any(call.changes_callers for call in batch):
            self.lock.mark_callers_changed()
        try:
            outcomes = self._commit(batch)
        except Unavailable as problem:
            self._failed = True
            _log.error("Rejected %d writes: %s", len(batch), problem.message)
            outcomes = [_Outcome(call, error=problem) for call in batch]
            self._report(outcomes, perf_counter() - began, committed=False)
        except Exception as error:  # noqa: BLE001 - the thread must survive, or all later writes would wait forever
            self._failed = True
            _log.exception("A batch of %d writes failed", len(batch))
            self._recover(error)
            outcomes = [
                _Outcome(call, error=_build_failure(error, commit_started=self._commit_started)) for call in batch
            ]
            self._report(outcomes, perf_counter() - began, committed=False)
        else:
            if not _are_dry_runs(batch):
                self._failed = False
            self._report(outcomes, perf_counter() - began, committed=True)
        return outcomes

    def _report(self, outcomes: list[_Outcome], seconds: float, *, committed: bool) -> None:
        if self._on_batch is None:
            return
        try:
            self._on_batch(len(outcomes), seconds, committed=committed)
        except Exception:  # noqa: BLE001 - a failing callback must not keep results from the callers
            _log.exception("The batch callback failed")

    def _commit(self, batch: list[_Call]) -> list[_Outcome]:
        self._commit_started = False
        if self._connection is None:
            self.require_files(None)
            self._connection = open_writer(self._path)
        self.require_files(self._connection)
        self._wal_limit.apply(self._connection)
        self._connection.execute("BEGIN IMMEDIATE")
        if self._files is None:
            self._files = OpenFiles(self._path)
        outcomes = _run_without_savepoints(self._connection, batch)
        if outcomes is None:
            self._connection.execute("ROLLBACK")
            self._connection.execute("BEGIN IMMEDIATE")
            outcomes = [_run_in_savepoint(self._connection, call) for call in batch]
        if _are_dry_runs(batch):
            self._connection.execute("ROLLBACK")
        else:
            self._commit_started = True
            self._connection.execute("COMMIT")
        return outcomes

    def _recover(self, error: Exception) -> None:
        """Roll the failed transaction back. Drop the connection if its state is unknown, as after a disk failure."""
        if isinstance(error, apsw.Error) and is_damage(error):
            self.report_damage(f"The database is damaged ({error})")
        if self._connection is None:
            return
        in_doubt = not isinstance(error, apsw.Error) or isinstance(error, _DISK_ERRORS)
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except apsw.Error:
            in_doubt = True
        if in_doubt:
            set_checkpoint_on_close(self._connection, enabled=False)  # keeps the WAL, which the readers use
            self._connection.close(force=True)
            self._connection = None

    def _disconnect(self) -> None:
        fault = self.find_fault(self._connection)
        if fault is not None:
            self._keep_wal(fault)
        elif self._connection is not None:
            self._checkpoint(self._connection)

    def _keep_wal(self, fault: str) -> None:
        if self._connection is not None:
            set_checkpoint_on_close(self._connection, enabled=False)
            self._connection.close(force=True)
        _log.error("%s: the WAL is kept, and the service can't start until the database is recovered", fault)
        try:
            write_recovery_marker(self._path, fault)
        except OSError:
            _log.exception("The marker that prevents the next start can't be written")

    def _checkpoint(self, connection: apsw.Connection) -> None:
        try:
            with self.lock.acquire(changes_callers=False):
                connection.set_busy_timeout(_CHECKPOINT_TIMEOUT_MS)
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                connection.close(force=True)  # under the lock: two simultaneous closes would both keep the WAL
        except (apsw.Error, OSError):
            _log.exception("The final checkpoint failed; the next start repeats it")
            connection.close(force=True)


def _rewrite_header(connection: apsw.Connection) -> None:
    """Write a page without changing its content."""
    version = connection.execute("PRAGMA user_version").fetchall()[0][0]
    connection.execute(f"PRAGMA user_version = {version}").fetchall()


def _are_dry_runs(batch: list[_Call]) -> bool:
    return batch[0].is_dry_run and all(call.is_dry_run for call in batch)  # the first part is fast, and mostly false


def _run_without_savepoints(connection: apsw.Connection, batch: list[_Call]) -> list[_Outcome] | None:
    """Run all operations, or return None if the batch must be rolled back.

    Raises apsw.Error if the transaction is lost.
    """
    outcomes = []
    for call in batch:
        if call.is_dry_run:
            outcomes.append(_run_in_savepoint(connection, call))
            continue
        written = connection.total_changes()
        try:
            outcomes.append(_Outcome(call, call.operation(connection)))
        except Exception as error:  # noqa: BLE001 - raised again in the caller
            if isinstance(error, apsw.Error) or connection.total_changes() != written:
                _require_transaction(connection, error)
                return None
            outcomes.append(_Outcome(call, error=_drop_frames(error)))
    return outcomes


def _run_in_savepoint(connection: apsw.Connection, call: _Call) -> _Outcome:
    """Run one operation and roll it back if it fails. Raises apsw.Error if the whole transaction is lost."""
    connection.execute("SAVEPOINT operation")
    try:
        result = call.operation(connection)
    except Exception as error:  # noqa: BLE001 - raised again in the caller
        if isinstance(error, apsw.Error):
            _require_transaction(connection, error)
            _log.exception("The database rejected a statement")
            error = Unavailable("The database rejected the write")
        connection.execute("ROLLBACK TO operation")
        connection.execute("RELEASE operation")
        return _Outcome(call, error=_drop_frames(error))
    connection.execute("RELEASE operation")
    return _Outcome(call, result)


def _drop_frames(error: Exception) -> Exception:
    """Remove the traceback of an expected error: its frames hold listings, and many errors may wait for one commit."""
    return error.with_traceback(None) if isinstance(error, Problem | RollbackError) else error


def _require_transaction(connection: apsw.Connection, error: Exception) -> None:
    """Raise the error again if it is a database error that did not leave the transaction intact."""
    if isinstance(error, apsw.Error) and not (isinstance(error, _STATEMENT_ERRORS) and connection.in_transaction):
        raise error


def _build_failure(error: Exception, *, commit_started: bool) -> Unavailable:
    if isinstance(error, apsw.BusyError):
        return _build_busy_error()
    if not commit_started:
        return Unavailable("The database can't be written to; nothing was written")
    return Unavailable("The database failed to confirm the write; its outcome is unknown")


def _build_busy_error() -> Unavailable:
    return Unavailable("The database is busy; nothing was written")


def _deliver(outcomes: list[_Outcome]) -> None:
    """Resolve the promises of callers that are still waiting. Runs on the event loop."""
    for call, result, error in outcomes:
        if call.promise.done():
            continue
        if error is None:
            call.promise.set_result(result)
        else:
            call.promise.set_exception(error)
