"""The one thread that writes to the SQLite file, committing what waits in groups.

Everything that waits runs inside one transaction; the callers hear of it after the one commit, hence one fsync, that
makes all of it durable. Who refuses has mostly written nothing yet; where something must be undone, all begin again,
each in a savepoint of its own, which costs as much as the work itself.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import apsw

from listings.errors import Unavailable
from listings.store.connection import open_writer
from listings.store.presence import OpenFiles
from listings.store.turns import WritersTurn

T = TypeVar("T")
Operation: TypeAlias = Callable[[apsw.Connection], T]


class OnBatch(Protocol):
    """Who hears of every batch."""

    def __call__(self, size: int, seconds: float, *, committed: bool) -> None:
        """In the writing thread: of how many operations, how long it took, and whether it is on disk."""


_LARGEST_BATCH = 256
_MOST_WAITING = 1024
_CHECKPOINT_WAITS = 250  # milliseconds, at the end only

# Errors that end a statement and leave the transaction as it was; after any other the whole batch is void.
_OF_ONE_STATEMENT = (
    apsw.ConstraintError,
    apsw.MismatchError,
    apsw.RangeError,
    apsw.SQLError,
    apsw.TooBigError,
)

_log = logging.getLogger(__name__)


class _Call(NamedTuple):
    operation: Operation[Any]
    future: asyncio.Future[Any]
    of_callers: bool


class _Outcome(NamedTuple):
    call: _Call
    result: object = None
    error: BaseException | None = None


class Writer:
    """Runs operations in the writing thread. Made and used on one event loop."""

    def __init__(self, path: Path, on_batch: OnBatch | None = None) -> None:
        """Starts the thread. OSError when the lock file beside `path` can't be opened."""
        self._path = path
        self._on_batch = on_batch
        self.turn = WritersTurn(path)
        self._connection: apsw.Connection | None = None
        self._files: OpenFiles | None = None  # of the connection, once it has begun to write
        self._loop = asyncio.get_running_loop()
        self._waiting: SimpleQueue[_Call | None] = SimpleQueue()  # None: nothing comes any more
        self._in_line = 0  # 1 while the thread has taken the first of a batch and waits for its turn to write
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="listings-writer", daemon=True)
        self._thread.start()

    async def run(self, operation: Operation[T], *, of_callers: bool = True) -> T:
        """Run an operation in a transaction and return what it returned, once that is durable.

        It may be run more than once; what it wrote before is undone then. `of_callers`: it may change what a caller is
        made of (see `turns`).

        What the operation raises is raised here, with nothing of it written. Raises Unavailable when too much
        waits already, and when the transaction failed: then the outcome is unknown.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        if self._closing:
            raise Unavailable("The service is stopping")
        if self._waiting.qsize() >= _MOST_WAITING:
            raise Unavailable("Too many writes are waiting")
        self._waiting.put(_Call(operation, future, of_callers))
        return await future

    @property
    def waiting(self) -> int:
        """How many operations the thread has not begun with; may be asked from any thread."""
        return self._waiting.qsize() + self._in_line

    def require_files(self) -> None:
        """Raises Unavailable when the database was removed or replaced while it is open here. From any thread."""
        files = self._files
        if files is not None and not files.are_there():
            raise _gone()

    async def close(self) -> None:
        """Commit what waits, fold the WAL into the file, disconnect."""
        if not self._closing:
            self._closing = True
            self._waiting.put(None)
        await asyncio.to_thread(self._thread.join)

    # Below, everything runs in the writing thread.

    def _work(self) -> None:
        while (first := self._waiting.get()) is not None:
            self._in_line = 1
            try:
                with self.turn.taken(of_callers=False):
                    self._in_line = 0
                    outcomes = self._write(self._take(first))
            except OSError:
                self._in_line = 0
                _log.exception("The lock file can't be locked")
                outcomes = [_Outcome(call, error=_nothing_written()) for call in self._take(first)]
                self._tell(outcomes, 0.0, committed=False)
            self._loop.call_soon_threadsafe(_deliver, outcomes)
        self._disconnect()
        self.turn.close()

    def _take(self, first: _Call) -> list[_Call]:
        """The first, and what waits now, which is more than what waited when the lock was asked for."""
        batch = [first]
        try:
            while len(batch) < _LARGEST_BATCH and (call := self._waiting.get_nowait()) is not None:
                batch.append(call)
        except Empty:
            return batch
        if len(batch) < _LARGEST_BATCH:
            self._waiting.put(None)  # it was taken out
        return batch

    def _write(self, batch: list[_Call]) -> list[_Outcome]:
        began = perf_counter()
        if any(call.of_callers for call in batch):
            self.turn.mark_callers()
        try:
            self.require_files()
            outcomes = self._commit(batch)
        except Unavailable as problem:
            _log.error("%d writes are refused: %s", len(batch), problem.message)
            outcomes = [_Outcome(call, error=problem) for call in batch]
            self._tell(outcomes, perf_counter() - began, committed=False)
        except apsw.Error as error:
            _log.exception("A batch of %d writes failed", len(batch))
            self._recover(error)
            outcomes = [_Outcome(call, error=_failed(error)) for call in batch]
            self._tell(outcomes, perf_counter() - began, committed=False)
        else:
            self._tell(outcomes, perf_counter() - began, committed=True)
        return outcomes

    def _tell(self, outcomes: list[_Outcome], seconds: float, *, committed: bool) -> None:
        if self._on_batch is None:
            return
        try:
            self._on_batch(len(outcomes), seconds, committed=committed)
        except Exception:  # noqa: BLE001 - whoever listens keeps no caller from what has become of the write
            _log.exception("A batch was not told of")

    def _commit(self, batch: list[_Call]) -> list[_Outcome]:
        if self._connection is None:
            self._connection = open_writer(self._path)
        self._connection.execute("BEGIN IMMEDIATE")
        if self._files is None:
            self._files = OpenFiles(self._path)
        outcomes = _run_plainly(self._connection, batch)
        if outcomes is None:
            self._connection.execute("ROLLBACK")
            self._connection.execute("BEGIN IMMEDIATE")
            outcomes = [_run_in_savepoint(self._connection, call) for call in batch]
        self._connection.execute("COMMIT")
        return outcomes

    def _recover(self, error: apsw.Error) -> None:
        """Leave the failed transaction; after a failure of the disk also the connection, which may be in doubt."""
        if self._connection is None:
            return
        in_doubt = isinstance(error, apsw.IOError | apsw.CorruptError | apsw.NotADBError | apsw.CantOpenError)
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except apsw.Error:
            in_doubt = True
        if in_doubt:
            self._connection.close(force=True)
            self._connection = self._files = None

    def _disconnect(self) -> None:
        if self._connection is None:
            return
        try:
            with self.turn.taken():
                self._connection.set_busy_timeout(_CHECKPOINT_WAITS)
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                self._connection.close(force=True)  # in turn too: of two at the same instant, neither would be the last
        except (apsw.Error, OSError):
            _log.exception("The last checkpoint failed; the next start makes up for it")
            self._connection.close(force=True)


def _run_plainly(connection: apsw.Connection, batch: list[_Call]) -> list[_Outcome] | None:
    """Run all operations; None where something is to be undone. Raises apsw.Error when the transaction is lost."""
    outcomes = []
    for call in batch:
        written = connection.total_changes()
        try:
            outcomes.append(_Outcome(call, call.operation(connection)))
        except Exception as error:  # noqa: BLE001 - raised again where the caller waits
            if isinstance(error, apsw.Error) or connection.total_changes() != written:
                _require_transaction(connection, error)
                return None
            outcomes.append(_Outcome(call, error=error))
    return outcomes


def _run_in_savepoint(connection: apsw.Connection, call: _Call) -> _Outcome:
    """Run one operation, and undo it where it fails. Raises apsw.Error when the whole transaction is lost."""
    connection.execute("SAVEPOINT operation")
    try:
        result = call.operation(connection)
    except Exception as error:  # noqa: BLE001 - raised again where the caller waits
        if isinstance(error, apsw.Error):
            _require_transaction(connection, error)
            _log.exception("The database refused a statement")
            error = Unavailable("The database refused the write")
        connection.execute("ROLLBACK TO operation")
        connection.execute("RELEASE operation")
        return _Outcome(call, error=error)
    connection.execute("RELEASE operation")
    return _Outcome(call, result)


def _require_transaction(connection: apsw.Connection, error: Exception) -> None:
    """Raises an error of the database that was not of one statement alone."""
    if isinstance(error, apsw.Error) and not (isinstance(error, _OF_ONE_STATEMENT) and connection.in_transaction):
        raise error


def _failed(error: apsw.Error) -> Unavailable:
    if isinstance(error, apsw.BusyError):
        return _nothing_written()
    return Unavailable("The database failed to confirm the write; its outcome is unknown")


def _gone() -> Unavailable:
    return Unavailable("The database was removed or replaced while it is in use; nothing was written")


def _nothing_written() -> Unavailable:
    return Unavailable("The database is busy; nothing was written")


def _deliver(outcomes: list[_Outcome]) -> None:
    """On the event loop: wake the callers that still wait."""
    for call, result, error in outcomes:
        if call.future.done():
            continue
        if error is None:
            call.future.set_result(result)
        else:
            call.future.set_exception(error)
