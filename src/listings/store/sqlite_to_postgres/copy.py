"""Copy a SQLite database to PostgreSQL: compare row by row, write the differences, and verify the result.

The file is read from one snapshot. Both sides are read in the same order and merged. So an interrupted copy can be
continued, and a repeated copy writes only changed rows. Rows are deleted from the last table to the first, and then
written from the first to the last, because they refer to rows of earlier tables. At the end, both sides are read again
and compared column by column.
"""

from collections.abc import AsyncIterator, Iterable
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import apsw
import asyncpg
import msgspec
from asyncpg.transaction import Transaction

from listings.domain.errors import Problem, Unavailable
from listings.store import sql
from listings.store.postgres import migrate as postgres_migrate
from listings.store.query import Row
from listings.store.sqlite.connections import reading, require_database_file, require_safe_sqlite
from listings.store.sqlite.maintenance import migrate
from listings.store.sqlite.maintenance.snapshot import Progress, ignore_progress
from listings.store.sqlite_to_postgres import tables
from listings.store.sqlite_to_postgres import target as targets
from listings.store.sqlite_to_postgres.tables import NUMBERED, Table
from listings.store.sqlite_to_postgres.target import Batches, State

_BUSY_TIMEOUT_MS = 5_000
_FETCH_SIZE = 100  # rows; some are long
_MAX_NAMED = 5  # rows named in an error message
_PROGRESS_INTERVAL = 500  # rows


class CopyResult(NamedTuple):
    """The result of a copy or dry run: the rows of each table, and how many rows were written and removed."""

    database_id: str
    rows: dict[str, int]
    written: int
    removed: int


class _Source(NamedTuple):
    path: Path
    connection: apsw.Connection
    id: str
    restore_id: str


class _Pair(NamedTuple):
    # None: it is missing on this side.
    source: Row | None
    target: Row | None

    @property
    def row(self) -> Row:
        return self.source or self.target or ()

    def describe_difference(self, table: Table) -> str:
        if self.target is None or self.source is None:
            return "missing" if self.target is None else "not in the source"
        values = zip((*table.columns, "words"), self.source, self.target, strict=False)
        return ", ".join(name for name, expected, found in values if expected != found)


async def copy(path: Path, url: str, *, dry_run: bool = False, progress: Progress = ignore_progress) -> CopyResult:
    """Copy the SQLite file to the database at `url`, and verify the copy. With `dry_run`, only count the differences.

    Raises Problem("copy_refused") if the target has anything but a copy of this file, if rows differ after the copy, or
    if the file was written to during the copy. Raises Problem("database_missing"), Problem("schema_mismatch"), or
    Unavailable.
    """
    require_safe_sqlite()
    require_database_file(path)
    try:
        with reading(path) as connection:
            connection.set_busy_timeout(_BUSY_TIMEOUT_MS)
            migrate.require_current(connection)
            connection.execute("BEGIN").fetchall()
            ids = (connection.execute(statement).get for statement in (sql.GET_DATABASE_ID, sql.GET_RESTORE_ID))
            source = _Source(path, connection, *ids)

            async def copy_from(reader: asyncpg.Connection) -> CopyResult:
                await targets.prepare(reader)
                if dry_run:
                    return await _Copy(source, reader, reader, progress).plan()

                async def run(writer: asyncpg.Connection) -> CopyResult:
                    await targets.prepare(writer)
                    return await _Copy(source, reader, writer, progress).run(url)

                return await postgres_migrate.with_connection(url, run)

            return await postgres_migrate.with_connection(url, copy_from)
    except (apsw.Error, OSError) as error:
        raise Unavailable(f"The database {path} can't be read: {error}") from error


class _Copy:
    def __init__(
        self, source: _Source, reader: asyncpg.Connection, writer: asyncpg.Connection, progress: Progress
    ) -> None:
        self._source = source
        self._reader = reader
        self._writer = writer
        self._progress = progress
        self._tables = tables.list_tables(source.connection)
        self._expected = {table.name: tables.count(source.connection, table) for table in self._tables}
        self._done = self._total = 0

    async def plan(self) -> CopyResult:
        state = await targets.inspect(self._reader, self._source.id)
        written = removed = 0
        rows = dict.fromkeys(self._expected, 0)
        self._total = sum(self._expected.values())
        async with self._reading():
            for table in self._tables:
                async for pair in self._pairs(table, bare=state is State.BARE):
                    rows[table.name] += pair.source is not None
                    written += pair.source is not None and pair.source != pair.target
                    removed += pair.source is None
        return CopyResult(self._source.id, rows, written, removed)

    async def run(self, url: str) -> CopyResult:
        await targets.lock(self._writer)
        state = await targets.inspect(self._writer, self._source.id)
        is_new = state in {State.BARE, State.EMPTY}
        self._total = sum(self._expected.values()) * (2 if is_new else 3 if state is State.STARTED else 4)
        if state is State.BARE:
            await postgres_migrate.migrate(url)
        await self._begin(state)
        removed = 0 if is_new else await self._delete()
        written = await self._write()
        rows, digest = await self._verify()
        await self._require_unchanged_source()
        await targets.finish(self._writer, digest)
        return CopyResult(self._source.id, rows, written, removed)

    async def _begin(self, state: State) -> None:
        # Services must not use the target, and none may have written to it.
        await targets.require_unused(self._writer)  # before: the mark would take a running service out of use
        await targets.mark(self._writer)
        try:
            await targets.require_unused(self._writer)  # one may have started meanwhile
            if state is State.FINISHED:
                await self._require_unchanged_target()
        except BaseException:
            if state is not State.STARTED:
                await targets.unmark(self._writer)
            raise
        await targets.begin(self._writer, self._source.id, self._source.restore_id)

    async def _require_unchanged_target(self) -> None:
        digest = sha256()
        async with self._reading():
            for table in self._tables:
                async for row in self._target_rows(table):
                    digest.update(msgspec.msgpack.encode(row))
                    self._advance()
        if digest.digest() != await targets.get_digest(self._writer):
            raise Problem(
                "copy_refused",
                "The target has changed since it was copied, and a new copy would lose these changes: "
                "name an empty database",
            )

    async def _delete(self) -> int:
        deleted = 0
        async with self._reading():
            for table in reversed(self._tables):
                batches = Batches(self._writer, table)
                async for pair in self._pairs(table):
                    if pair.source is None and pair.target is not None:
                        await batches.delete(pair.target)
                    elif pair.source is not None and pair.target is not None and pair.source != pair.target:
                        await batches.release(pair.source)
                await batches.flush()
                deleted += batches.deleted
        return deleted

    async def _write(self) -> int:
        written = 0
        async with self._reading():
            for table in self._tables:
                batches = Batches(self._writer, table)
                async for pair in self._pairs(table):
                    if pair.source is not None and pair.source != pair.target:
                        await (batches.add if pair.target is None else batches.change)(pair.source)
                await batches.flush()
                written += batches.written
        for name, last in zip(NUMBERED, self._get_last_ids(), strict=True):
            await targets.set_last_id(self._writer, name, last)
        await targets.analyze(self._writer)
        return written

    async def _verify(self) -> tuple[dict[str, int], bytes]:
        rows = dict.fromkeys(self._expected, 0)
        differences = []
        words, digest = 0, sha256()
        async with self._reading():
            for table in self._tables:
                async for pair in self._pairs(table):
                    rows[table.name] += 1
                    digest.update(msgspec.msgpack.encode(pair.target))
                    words += table.has_words and pair.row[-1] is not None
                    if pair.source != pair.target:
                        differences.append(f"{table.format_name(pair.row)} ({pair.describe_difference(table)})")
        differences += await targets.find_differences(self._reader, self._source.id, self._get_last_ids(), words)
        if differences:
            named = ", ".join(differences[:_MAX_NAMED]) + (", …" if len(differences) > _MAX_NAMED else "")
            what = "1 difference" if len(differences) == 1 else f"{len(differences)} differences"
            raise Problem("copy_refused", f"{what} after the copy: {named}")
        return rows, digest.digest()

    async def _require_unchanged_source(self) -> None:
        accounts: set[int | None] = set()
        with reading(self._source.path) as current:
            current.set_busy_timeout(_BUSY_TIMEOUT_MS)
            current.execute("BEGIN").fetchall()
            for table in self._tables:
                if table.has_words:  # a listing never changes without its account's state
                    continue
                before, now = (tables.read(one, table) for one in (self._source.connection, current))
                async for pair in _merge(table, before, _iterate(now)):
                    if pair.source != pair.target:
                        accounts.add(table.get_account_id(pair.row))
        if accounts:
            number = len(accounts - {None})
            what = {0: "The database", 1: "1 account"}.get(number, f"{number} accounts")
            raise Problem(
                "copy_refused",
                f"{what} changed during the copy: stop the service, and run the copy again. It writes only differences",
            )

    def _get_last_ids(self) -> list[int]:
        return [tables.get_last_id(self._source.connection, table) for table in NUMBERED]

    async def _pairs(self, table: Table, *, bare: bool = False) -> AsyncIterator[_Pair]:
        # `bare`: the target has no tables yet and is not read.
        target = _iterate(()) if bare else self._target_rows(table)
        async for pair in _merge(table, tables.read(self._source.connection, table), target):
            yield pair
            self._advance()

    async def _target_rows(self, table: Table) -> AsyncIterator[Row]:
        # Must run in a transaction, because it uses a cursor.
        cursor = await self._reader.cursor(tables.build_select(table, words=True))
        while rows := await cursor.fetch(_FETCH_SIZE):
            for row in rows:
                yield tuple(row)

    def _reading(self) -> Transaction:
        return self._reader.transaction(isolation="repeatable_read", readonly=True)

    def _advance(self) -> None:
        self._done += 1
        if not self._done % _PROGRESS_INTERVAL:
            self._progress(min(self._done, self._total), self._total)


async def _merge(table: Table, source: Iterable[Row], target: AsyncIterator[Row]) -> AsyncIterator[_Pair]:
    target_row = await anext(target, None)
    for row in source:
        key = table.get_key(row)
        while target_row is not None and table.get_key(target_row) < key:
            yield _Pair(None, target_row)
            target_row = await anext(target, None)
        if target_row is not None and table.get_key(target_row) == key:
            yield _Pair(row, target_row)
            target_row = await anext(target, None)
        else:
            yield _Pair(row, None)
    while target_row is not None:
        yield _Pair(None, target_row)
        target_row = await anext(target, None)


async def _iterate(rows: Iterable[Row]) -> AsyncIterator[Row]:
    for row in rows:
        yield row
