"""Write batches: what runs in the writer thread while it holds the write lock."""

import logging
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Protocol

import apsw

from listings.domain.errors import Unavailable
from listings.store.sqlite.connections import (
    WRITER_BUSY_TIMEOUT_MS,
    is_damage,
    open_writer,
    set_checkpoint_on_close,
    write_recovery_marker,
)
from listings.store.sqlite.file_identity import OpenFiles
from listings.store.sqlite.write_lock import WriteLock
from listings.store.sqlite.writer.calls import Call, Outcome
from listings.store.sqlite.writer.file_guard import FileGuard
from listings.store.sqlite.writer.transaction import run_operations

_CHECKPOINT_TIMEOUT_MS = 250  # for the final checkpoint
_LONG_WAL_FRAMES = 4_000  # four times the length at which SQLite copies the WAL into the database
_FRAMES_PER_TRY = 1_000
_MAX_READS_MS = 50
_DISK_ERRORS = (apsw.IOError, apsw.CorruptError, apsw.NotADBError, apsw.CantOpenError)

_log = logging.getLogger(__name__)


class OnBatch(Protocol):
    """Callback that is called after every batch."""

    def __call__(self, size: int, seconds: float, *, committed: bool) -> None:
        """Report the number of operations and the duration. Called in the writer thread.

        `committed` is False if the batch failed.
        """


class WalLimit:
    """Restarts the WAL of one database, so that it stays short even if reads overlap without a pause.

    SQLite writes to the start of the WAL again once the database file has all of it and no reader uses it. Reads that
    overlap never allow that. The writer therefore waits for the current reads once the WAL is long. Meanwhile nothing
    is written, so later reads need only the database file.
    """

    def __init__(self) -> None:
        self._next_try = _LONG_WAL_FRAMES

    def apply(self, connection: apsw.Connection) -> None:
        """Restart the WAL if it is long. If reads take longer than 50 ms, try again once it has grown.

        `connection` must have no transaction, and its process must hold the write lock.
        """
        frames, _ = connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_NOOP)
        if frames < self._next_try:
            if frames < _LONG_WAL_FRAMES:
                self._next_try = _LONG_WAL_FRAMES
            return
        self._next_try = frames + _FRAMES_PER_TRY
        connection.set_busy_timeout(_MAX_READS_MS)
        with suppress(apsw.Error):  # busy means a later retry, and the commit that follows reports a failing disk
            connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_RESTART)
        connection.set_busy_timeout(WRITER_BUSY_TIMEOUT_MS)


class BatchWriter:
    """Writes batches through a connection of its own. Only `failed` and `batch_size` may be read in other threads."""

    def __init__(self, path: Path, lock: WriteLock, guard: FileGuard, on_batch: OnBatch | None) -> None:
        self._path = path
        self._lock = lock
        self._guard = guard
        self._on_batch = on_batch
        self._wal_limit = WalLimit()
        self._connection: apsw.Connection | None = None
        self._commit_started = False  # whether the current batch has reached its commit
        self.batch_size = 0  # operations in the current batch
        self.failed = False  # whether a batch failed, and none has been committed since

    def write(self, batch: list[Call]) -> list[Outcome]:
        """Write a dequeued batch, or the first part of it, and return the outcomes. Never raises."""
        if not batch:  # all were rejected while the thread waited for the lock
            return []
        began = perf_counter()
        self.batch_size = len(batch)
        if any(call.changes_callers for call in batch):
            self._lock.mark_callers_changed()
        try:
            outcomes = self._commit(batch)
        except Unavailable as problem:
            self.failed = True
            _log.error("Rejected %d writes: %s", len(batch), problem.message)
            outcomes = [Outcome(call, error=problem) for call in batch]
            self._report(outcomes, perf_counter() - began, committed=False)
        except Exception as error:  # noqa: BLE001 - the thread must survive, or all later writes would wait forever
            # Background jobs repeat a write each second while the disk is full: one traceback is enough.
            _log.error("A batch of %d writes failed: %s", len(batch), error, exc_info=not self.failed)
            self.failed = True
            self._recover(error)
            outcomes = [
                Outcome(call, error=_build_failure(error, commit_started=self._commit_started)) for call in batch
            ]
            self._report(outcomes, perf_counter() - began, committed=False)
        else:
            if not _are_dry_runs(batch):
                self.failed = False
            self._report(outcomes, perf_counter() - began, committed=True)
        return outcomes

    def reject(self, batch: list[Call]) -> list[Outcome]:
        """Return the outcomes of a batch for which the lock can't be acquired."""
        outcomes = [Outcome(call, error=build_busy_error()) for call in batch]
        self._report(outcomes, 0.0, committed=False)
        return outcomes

    def _report(self, outcomes: list[Outcome], seconds: float, *, committed: bool) -> None:
        if self._on_batch is None:
            return
        try:
            self._on_batch(len(outcomes), seconds, committed=committed)
        except Exception:  # noqa: BLE001 - a failing callback must not keep results from the callers
            _log.exception("The batch callback failed")

    def _commit(self, batch: list[Call]) -> list[Outcome]:
        self._commit_started = False
        if self._connection is None:
            self._guard.require_files(None)
            self._connection = open_writer(self._path)
        self._guard.require_files(self._connection)
        self._wal_limit.apply(self._connection)
        self._connection.execute("BEGIN IMMEDIATE")
        if self._guard.files is None:
            self._guard.files = OpenFiles(self._path)
        outcomes = run_operations(self._connection, batch)
        if _are_dry_runs(batch):
            self._connection.execute("ROLLBACK")
        else:
            self._commit_started = True
            self._connection.execute("COMMIT")
        return outcomes

    def _recover(self, error: Exception) -> None:
        # After a disk failure, the state of the connection is unknown.
        if isinstance(error, apsw.Error) and is_damage(error):
            self._guard.report_damage(f"The database is damaged ({error})")
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

    def close(self, reader: apsw.Connection | None) -> None:
        """Checkpoint, and close the connection and `reader`. After damage, keep the WAL."""
        connections = [connection for connection in (self._connection, reader) if connection is not None]
        fault = self._guard.find_fault(next(iter(connections), None))
        if fault is not None:
            self._keep_wal(fault, connections)
        elif connections:
            self._checkpoint(connections)

    def _keep_wal(self, fault: str, connections: list[apsw.Connection]) -> None:
        _log.error("%s: the WAL is kept, and the service can't start until the database is recovered", fault)
        try:
            write_recovery_marker(self._path, fault)  # before the close: another process may close the last connection
        except OSError:
            _log.exception("The marker that prevents the next start can't be written")
        for connection in connections:
            set_checkpoint_on_close(connection, enabled=False)
            connection.close(force=True)

    def _checkpoint(self, connections: list[apsw.Connection]) -> None:
        try:
            with self._lock.acquire(changes_callers=False):
                if self._connection is not None:
                    self._connection.set_busy_timeout(_CHECKPOINT_TIMEOUT_MS)
                    self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                for connection in connections:  # under the lock: two simultaneous closes would both keep the WAL
                    connection.close(force=True)
        except (apsw.Error, OSError):
            _log.exception("The final checkpoint failed; the next start repeats it")
            for connection in connections:
                connection.close(force=True)


def _are_dry_runs(batch: list[Call]) -> bool:
    return batch[0].is_dry_run and all(call.is_dry_run for call in batch)  # the first part is fast, and mostly false


def _build_failure(error: Exception, *, commit_started: bool) -> Unavailable:
    if isinstance(error, apsw.BusyError):
        return build_busy_error()
    if isinstance(error, apsw.FullError):  # also from a commit, whose last frame is then missing from the WAL
        return Unavailable("The disk is full; nothing was written")
    if not commit_started:
        return Unavailable("The database can't be written to; nothing was written")
    return Unavailable("The database failed to confirm the write; its outcome is unknown")


def build_busy_error() -> Unavailable:
    """Return the error of writes that could not begin, because another process was writing."""
    return Unavailable("The database is busy; nothing was written")
