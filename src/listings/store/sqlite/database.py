"""The open SQLite file: a connection that reads on the event loop, and the writer thread."""

import asyncio
import os
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from time import perf_counter
from typing import Any, NoReturn, TypeVar

import apsw

from listings.domain.errors import Unavailable
from listings.domain.listings import LargeListError
from listings.domain.reverts import MAX_STEP_LISTINGS
from listings.store import sql
from listings.store.migrations import require_equal_schema, shipped_migrations
from listings.store.query import Query, R, Row
from listings.store.scripts.script import Script, ScriptedStore
from listings.store.sqlite import search
from listings.store.sqlite.connections import (
    MIN_FREE_BYTES,
    get_free_bytes,
    is_damage,
    open_reader,
    require_database_file,
    require_no_recovery_marker,
    require_safe_sqlite,
)
from listings.store.sqlite.file_identity import OpenFiles
from listings.store.sqlite.maintenance import catalogue, migrate
from listings.store.sqlite.script_runner import run_script
from listings.store.sqlite.snapshot_reads import SnapshotReads, start_timer
from listings.store.sqlite.write_lock import INCREMENT_PER_WRITE, ReadSequence, VersionedCache
from listings.store.sqlite.writer.batch_writer import OnBatch
from listings.store.sqlite.writer.writer import Writer

T = TypeVar("T")

_READ_LISTING = "SELECT title FROM listings LIMIT 1"
_MAX_READ_SECONDS = 0.0025  # CPU time of one read on the event loop
_MAX_WAIT_SECONDS = 0.02  # additional elapsed time, while waiting for the disk or a CPU
_SHORT_READ_SECONDS = 0.0005  # limit for an account after a read that took too long; enough for a small indexed page
_SLOW_SECONDS = 1.0  # for how long that lower limit applies
_MAX_SLOW_ACCOUNTS = 1_000  # with more, all are forgotten
# Instructions of SQLite's virtual machine between two checks of the time: about ten rows, or one if their words are
# searched. A check after each row takes a tenth of a page of 50.
_STEPS_PER_CHECK, _SEARCH_STEPS_PER_CHECK = 200, 20
_MIN_STEP_LISTINGS = 25  # cost as much as the rest of a step: 1 to 2 ms of CPU time
_STEP_GROWTH = 10  # per step, so that it reaches the maximum after a quarter of a second


class RevertStepSize:
    """Chooses small steps while others write, because they wait for each step, and larger ones while nobody does."""

    def __init__(self, read_sequence: ReadSequence) -> None:
        """`read_sequence` reads the counter of the writes of all processes."""
        self._read_sequence = read_sequence
        self._sequence = read_sequence()
        self._size = _MIN_STEP_LISTINGS

    def choose(self) -> int:
        """Return the number of listings for the next step. Call it before each one."""
        before, self._sequence = self._sequence, self._read_sequence()
        is_alone = self._sequence - before <= INCREMENT_PER_WRITE
        self._size = min(self._size + _STEP_GROWTH, MAX_STEP_LISTINGS) if is_alone else _MIN_STEP_LISTINGS
        return self._size


class Database:
    """The open file."""

    def __init__(self, path: Path, on_batch: OnBatch | None) -> None:
        """Open the file and start the writer.

        Raises Problem if the file is missing or has another schema, Unavailable if it needs recovery, and OSError or
        apsw.Error if it can't be opened.
        """
        require_no_recovery_marker(path)
        require_database_file(path)
        self._path = path
        self.reader = open_reader(path, one_thread=True)
        search.prepare(self.reader)
        migrate.require_current(self.reader)
        require_equal_schema(catalogue.find_differences(self.reader, shipped_migrations()))
        files = OpenFiles(path)
        self.writer = Writer(path, on_batch, files if files.has_wal else None)
        self.revisions = self.writer.revisions
        self.revert_step_size = RevertStepSize(self.writer.lock.read_sequence)
        self.callers = VersionedCache(self.writer.lock.read_caller_sequence)  # by the digest of their key
        self.snapshots = SnapshotReads(path, self._build_read_error)
        self._slow_until: dict[int, float] = {}  # by account

    async def close(self) -> None:
        """End the snapshot reads, commit the queued writes, and close the writer and the reader."""
        try:
            await self.snapshots.close()
        finally:  # also if this is cancelled: otherwise, the queued writes would be lost
            await self.writer.close(self.reader)

    async def check(self) -> None:
        """Raise Unavailable if a write would probably fail.

        That is if the files were replaced or damaged, the file system is read-only or almost full, or writes are
        rejected. Raises Problem("schema_mismatch") for another schema.
        """
        try:
            self.writer.guard.require_files(self.reader)
            migrate.require_current(self.reader)
            self.reader.execute(_READ_LISTING).fetchall()
            free_bytes = get_free_bytes(self._path)
            is_read_only = bool(os.statvfs(self._path).f_flag & os.ST_RDONLY)
        except (apsw.Error, OSError) as error:
            raise self._build_read_error(error) from error
        if is_read_only:
            raise Unavailable("The file system is read-only")
        if free_bytes < MIN_FREE_BYTES:
            raise Unavailable("The disk is almost full")
        await self.writer.check()

    def read(self, statement: str, values: Row) -> list[Row]:
        """Read all rows: an open cursor would pin a snapshot."""
        try:
            return self.reader.execute(statement, values).fetchall()
        except apsw.Error as error:
            raise self._convert_read_error(error) from error

    def read_neutral(self, statement: str, values: Row) -> list[Row]:
        """Read all rows of an engine-neutral statement, whose parameters are written `$n`."""
        return self.read(sql.to_sqlite(statement), values)

    def iterate(self, statement: str, values: Row) -> Generator[Row]:
        """Yield the rows of an engine-neutral statement until the caller closes this."""
        try:
            with closing(self.reader.execute(sql.to_sqlite(statement), values)) as cursor:
                yield from cursor
        except apsw.Error as error:
            raise self._convert_read_error(error) from error

    def read_quickly(self, account_id: int, read: Callable[[], T], *, searches_words: bool = False) -> T:
        """Return the result of reads of an account. Raises LargeListError if they take too long on the event loop.

        For a second after that, the account's reads have less time.
        """
        is_slow = self._slow_until and perf_counter() < self._slow_until.get(account_id, 0.0)
        seconds = _SHORT_READ_SECONDS if is_slow else _MAX_READ_SECONDS
        steps = _SEARCH_STEPS_PER_CHECK if searches_words else _STEPS_PER_CHECK
        self.reader.set_progress_handler(start_timer(seconds, _MAX_WAIT_SECONDS), steps)
        try:
            return read()
        except LargeListError:
            if len(self._slow_until) >= _MAX_SLOW_ACCOUNTS:
                self._slow_until.clear()
            self._slow_until[account_id] = perf_counter() + _SLOW_SECONDS
            raise
        finally:
            self.reader.set_progress_handler(None)

    def _convert_read_error(self, error: apsw.Error) -> Exception:
        # Only the progress handler of `read_quickly` interrupts.
        return LargeListError() if isinstance(error, apsw.InterruptError) else self._build_read_error(error)

    def _build_read_error(self, error: Exception) -> Unavailable:
        # After damage, writes are rejected, too.
        if isinstance(error, apsw.Error) and is_damage(error):
            self.writer.guard.report_damage(f"The database is damaged ({error})")
        return Unavailable("The database can't be read")


class _Closed:
    # A database that is not open.
    async def close(self) -> None:
        pass

    def __getattr__(self, name: str) -> NoReturn:
        raise Unavailable("The service is stopping")


class DatabaseStore(ScriptedStore):
    """Runs statements and scripts on a file that `migrate.migrate` has created."""

    def __init__(self, path: Path, on_batch: OnBatch | None = None) -> None:
        """`path` is the database file; `on_batch` is called after every batch of writes."""
        self.path = path
        self._on_batch = on_batch
        self._database: Database | _Closed = _Closed()
        self.restore_id = ""

    async def open(self) -> None:
        require_safe_sqlite()
        try:
            self._database = Database(self.path, self._on_batch)
            ((self.restore_id,),) = self._database.read(sql.GET_RESTORE_ID, ())
        except (apsw.Error, OSError) as error:
            raise Unavailable(f"The database {self.path} can't be opened: {error}") from error

    async def close(self) -> None:
        database, self._database = self._database, _Closed()
        await database.close()

    async def check(self) -> None:
        await self._database.check()

    async def list_unavailable_nodes(self) -> list[str]:
        return []

    @property
    def writes_waiting(self) -> int:
        """Number of writes that are queued for the writer. Thread-safe."""
        database = self._database
        return database.writer.queued if isinstance(database, Database) else 0

    def choose_revert_step_size(self) -> int:
        return self._database.revert_step_size.choose()

    async def _fetch(self, statement: Query[R], *values: object) -> list[R]:
        rows: list[Any] = self._database.read_neutral(statement, values)
        return rows

    async def _run_script(self, script: Script[T], *, changes_callers: bool = False, is_dry_run: bool = False) -> T:
        loop = asyncio.get_running_loop()
        return await self._database.writer.run(
            lambda connection: run_script(connection, script, loop),
            changes_callers=changes_callers,
            is_dry_run=is_dry_run,
        )

    async def _run_reads(self, script: Script[T]) -> T:
        return await self._database.snapshots.run_script(script)
