"""The one thread that writes to the SQLite file, committing what waits in groups.

Everything that waits runs inside one transaction; the callers hear of it after the one commit, hence one fsync, that
makes all of it durable. Who refuses has mostly written nothing yet; where something must be undone, all begin again,
each in a savepoint of its own, which costs as much as the work itself.

The event loop says when the thread begins: once it has nothing more to bring. The two share Python's one lock, so that
a thread that wrote while requests come in would be in their way and they in its, at each statement.
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

from listings.contract.listings import Promise
from listings.domain.errors import Unavailable
from listings.store.sqlite.connections import open_writer
from listings.store.sqlite.file_identity import OpenFiles
from listings.store.sqlite.revision_cache import RevisionCache
from listings.store.sqlite.write_lock import UNKNOWN, WriteLock

T = TypeVar("T")
Operation: TypeAlias = Callable[[apsw.Connection], T]


class OnBatch(Protocol):
    """Who hears of every batch."""

    def __call__(self, size: int, seconds: float, *, committed: bool) -> None:
        """In the writing thread: of how many operations, how long it took, and whether it is on disk."""


_LARGEST_BATCH = 256
_MOST_WAITING = 1024
_LONGEST_GATHERING = 0.005  # seconds
_TURN_WAITS = 5.0  # seconds, for another process that has the turn to write; as long again at the end
_LOOKS = 5  # at the turn, in as long
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
    promise: Promise[Any]
    changes_callers: bool
    follow: Callable[[Any], None] | None


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
        self.turn = WriteLock(path)
        self.revisions = RevisionCache(self.turn)
        self._connection: apsw.Connection | None = None
        self._files: OpenFiles | None = None  # of the connection, once it has begun to write
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Call] = deque()
        self._phase: Literal["idle", "gathering", "writing"] = "idle"  # as the loop knows it
        self._starts: SimpleQueue[bool] = SimpleQueue()  # a batch to be written; False: the last ones
        self._closing = False
        self._blocked_since: float | None = None  # as the thread knows it: another process has the turn
        self._watching = False  # whether that is looked at
        self._refusing = False  # while it has it for too long
        self._commits = False  # whether the present batch has come to its commit
        self.together = 0  # how many operations the present batch has, for those that are in it
        self._thread = threading.Thread(target=self._work, name="listings-writer", daemon=True)
        self._thread.start()

    async def run(
        self, operation: Operation[T], *, changes_callers: bool = True, follow: Callable[[T], None] | None = None
    ) -> T:
        """Run an operation in a transaction and return what it returned, once that is durable.

        It may be run more than once; what it wrote before is undone then. `changes_callers`: it may change what a
        caller is made of (see `turns`). `follow` is given what it returned before anybody else hears of it, and tells
        `revisions` all that it has changed of listings that are there; None: it may have changed any.

        What the operation raises is raised here, with nothing of it written. Raises Unavailable when too much
        waits already, when another process has the turn to write for seconds, and when the transaction failed: then
        the outcome is unknown, unless the message tells it.
        """
        promise: Promise[T] = Promise(loop=self._loop)
        if self._closing:
            raise Unavailable("The service is stopping")
        if len(self._waiting) >= _MOST_WAITING:
            raise Unavailable("Too many writes are waiting")
        if self._refusing:
            raise _nothing_written()
        if follow is None:
            self.revisions.begin_unfollowed()
        self._waiting.append(_Call(operation, promise, changes_callers, follow))
        if self._phase == "idle":
            self._gather()
        return await promise

    @property
    def waiting(self) -> int:
        """How many operations the thread has not begun with; may be asked from any thread."""
        return len(self._waiting)

    def require_files(self) -> None:
        """Raises Unavailable when the database was removed or replaced while it is open here. From any thread."""
        files = self._files
        if files is not None and not files.are_there():
            raise _gone()

    async def close(self) -> None:
        """Commit what waits, fold the WAL into the file, disconnect; where another process has the turn, give up."""
        if not self._closing:
            self._closing = True
            self._starts.put(False)  # noqa: FBT003 - what a queue holds
        while self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, 0 if self._refusing else _TURN_WAITS)
            if self._blocked_since is not None:
                _log.warning("Another process has the turn to write: the last checkpoint is left to the next start")
                self._refuse_waiting()
                return

    def _gather(self) -> None:
        self._phase = "gathering"
        self._loop.call_soon(self._look, 0, perf_counter() + _LONGEST_GATHERING)

    def _look(self, before: int, until: float) -> None:
        """Start a batch, unless the last turn of the loop has brought more of it."""
        waiting = len(self._waiting)
        if before < waiting < _LARGEST_BATCH and perf_counter() < until:
            self._loop.call_soon(self._look, waiting, until)
        else:
            self._phase = "writing"
            self._starts.put(True)  # noqa: FBT003 - as above
            if not self._watching:
                self._watch_turn()

    def _end(self, outcomes: list[_Outcome], began_at: int) -> None:
        """Of a batch; what has come meanwhile is the next one."""
        self._phase = "idle"
        self._refusing = False
        self._follow(outcomes, began_at)
        if self._waiting:
            self._gather()
        _deliver(outcomes)

    def _follow(self, outcomes: list[_Outcome], began_at: int) -> None:
        unfollowed = 0
        for call, result, error in outcomes:
            if call.follow is None:
                unfollowed += 1
            elif error is None:
                call.follow(result)
        known = not any(isinstance(error, Unavailable) for _, _, error in outcomes)
        self.revisions.end_turn(began_at, unfollowed, known=known)

    def _watch_turn(self) -> None:
        """While there is anything to write. A thread that waits for the turn has taken nothing of what waits."""
        self._watching = self._phase == "writing"
        if not self._watching:
            return
        since = self._blocked_since
        if since is not None and perf_counter() - since >= _TURN_WAITS and not self._refusing:
            self._refusing = True
            _log.error("Another process has the turn to write: %d writes are refused", len(self._waiting))
            self._refuse_waiting()
        self._loop.call_later(_TURN_WAITS / _LOOKS, self._watch_turn)

    def _refuse_waiting(self) -> None:
        outcomes = [_Outcome(call, error=_nothing_written()) for call in self._take(len(self._waiting))]
        self._follow(outcomes, UNKNOWN)
        _deliver(outcomes)

    def _take(self, most: int) -> list[_Call]:
        """What waits; for the thread and for the loop, each call is had by one of them."""
        taken: list[_Call] = []
        with suppress(IndexError):
            while len(taken) < most:
                taken.append(self._waiting.popleft())
        return taken

    # Below, everything runs in the writing thread.

    def _work(self) -> None:
        while self._starts.get():
            self._write_waiting()
        while self._waiting:
            self._write_waiting()
        self._disconnect()
        self.turn.close()

    def _note_blocked(self) -> None:
        self._blocked_since = perf_counter()

    def _write_waiting(self) -> None:
        """Take the turn, then what waits, which is more than what waited when the turn was asked for."""
        began_at = UNKNOWN
        try:
            with self.turn.taken(changes_callers=False, on_wait=self._note_blocked):
                self._blocked_since = None
                began_at = self.turn.own_from
                outcomes = self._write(self._take(_LARGEST_BATCH))
        except OSError:
            _log.exception("The lock file can't be locked")
            outcomes = [_Outcome(call, error=_nothing_written()) for call in self._take(_LARGEST_BATCH)]
            self._tell(outcomes, 0.0, committed=False)
        with suppress(RuntimeError):  # the loop is closed: it has not waited for a turn that others had
            self._loop.call_soon_threadsafe(self._end, outcomes, began_at)

    def _write(self, batch: list[_Call]) -> list[_Outcome]:
        if not batch:  # all were refused meanwhile
            return []
        began = perf_counter()
        self.together = len(batch)
        if any(call.changes_callers for call in batch):
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
            outcomes = [_Outcome(call, error=_failed(error, commits=self._commits)) for call in batch]
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
        self._commits = False
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
        self._commits = True
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
            with self.turn.taken(on_wait=self._note_blocked):
                self._blocked_since = None
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
            error = Unavailable("The database rejected the write")
        connection.execute("ROLLBACK TO operation")
        connection.execute("RELEASE operation")
        return _Outcome(call, error=error)
    connection.execute("RELEASE operation")
    return _Outcome(call, result)


def _require_transaction(connection: apsw.Connection, error: Exception) -> None:
    """Raises an error of the database that was not of one statement alone."""
    if isinstance(error, apsw.Error) and not (isinstance(error, _OF_ONE_STATEMENT) and connection.in_transaction):
        raise error


def _failed(error: apsw.Error, *, commits: bool) -> Unavailable:
    if isinstance(error, apsw.BusyError):
        return _nothing_written()
    if isinstance(error, apsw.ReadOnlyError | apsw.CantOpenError) and not commits:
        return Unavailable("The database can't be written; nothing was written")
    return Unavailable("The database failed to confirm the write; its outcome is unknown")


def _gone() -> Unavailable:
    return Unavailable("The database was removed or replaced while it is in use; nothing was written")


def _nothing_written() -> Unavailable:
    return Unavailable("The database is busy; nothing was written")


def _deliver(outcomes: list[_Outcome]) -> None:
    """On the event loop: wake the callers that still wait."""
    for call, result, error in outcomes:
        if call.promise.done():
            continue
        if error is None:
            call.promise.set_result(result)
        else:
            call.promise.set_exception(error)
