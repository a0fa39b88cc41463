"""Everything from a SQLite file to a PostgreSQL database: compared row by row, written where it differs, and verified.

The file is read as it was at one moment. Both sides are read in one order and held against each other, so that a copy
that was killed goes on by itself, and one that is complete writes nothing. Rows are removed from the last table to the
first, then written from the first to the last, since rows refer to each other. At the end both sides are read once
more and compared column by column.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import msgspec

from listings.domain.errors import Problem, Unavailable
from listings.store import sql
from listings.store.mapping import Row
from listings.store.postgres import migrate as postgres_migrate
from listings.store.sqlite.connections import open_reader, require_file, require_sound_sqlite
from listings.store.sqlite.maintenance import migrate
from listings.store.sqlite.maintenance.snapshot import Progress, ignore_progress
from listings.store.sqlite_to_postgres import tables
from listings.store.sqlite_to_postgres import target as targets
from listings.store.sqlite_to_postgres.tables import LISTINGS, NUMBERED, TABLES, Table
from listings.store.sqlite_to_postgres.target import Batches, State

_WAITS = 5_000  # milliseconds
_AT_ONCE = 100  # rows that are fetched; some are long
_MOST_NAMED = 5
_STEP = 500  # rows between two moves of the progress


class Copied(NamedTuple):
    """What a copy came to, or would: the rows of each table, and how many of all were written and removed."""

    database_id: str
    rows: dict[str, int]
    written: int
    removed: int


class _Source(NamedTuple):
    """The SQLite file, read as it was at one moment."""

    path: Path
    connection: apsw.Connection
    id: str


class _Pair(NamedTuple):
    """A row on both sides; None where it is missing."""

    source: Row | None
    target: Row | None

    @property
    def row(self) -> Row:
        """Whichever is there."""
        row = self.source if self.source is not None else self.target
        if row is None:
            raise AssertionError("a pair without a row")
        return row


async def copy(path: Path, url: str, *, dry_run: bool = False, progress: Progress = ignore_progress) -> Copied:
    """Make the database of `url` what the SQLite file is, and verify it; `dry_run`: count, and change nothing.

    Raises Problem("copy_refused") for a target that holds anything else, for rows that differ at the end, and when the
    file was written meanwhile; Problem("database_missing"), Problem("schema_mismatch"), Unavailable.
    """
    require_sound_sqlite()
    require_file(path)
    try:
        with closing(open_reader(path)) as connection:
            source = _at_one_moment(path, connection)

            async def use(reader: Any) -> Copied:  # noqa: ANN401 - the driver's
                await targets.prepare(reader)
                if dry_run:
                    return await _Copy(source, reader, reader, progress).plan()

                async def run(writer: Any) -> Copied:  # noqa: ANN401 - the driver's
                    await targets.prepare(writer)
                    return await _Copy(source, reader, writer, progress).run(url)

                return await postgres_migrate.connected(url, run)

            return await postgres_migrate.connected(url, use)
    except (apsw.Error, OSError) as error:
        raise Unavailable(f"The database {path} can't be read: {error}") from error


def _at_one_moment(path: Path, connection: apsw.Connection) -> _Source:
    connection.set_busy_timeout(_WAITS)
    migrate.require_current(connection)
    connection.execute("BEGIN").fetchall()
    return _Source(path, connection, str(connection.execute(sql.GET_DATABASE_ID).fetchall()[0][0]))


class _Differences:
    """How many there are, and what the first are."""

    def __init__(self) -> None:
        self._count = 0
        self._first: list[str] = []

    def note(self, name: str) -> None:
        """One more."""
        self._count += 1
        if len(self._first) < _MOST_NAMED:
            self._first.append(name)

    def require_none(self) -> None:
        """Raises Problem("copy_refused") that names the first ones."""
        if self._count:
            named = ", ".join(self._first) + (", …" if self._count > _MOST_NAMED else "")
            what = "1 row differs" if self._count == 1 else f"{self._count} rows differ"
            raise Problem("copy_refused", f"{what} after the copy: {named}")


class _Copy:
    """One run."""

    def __init__(
        self,
        source: _Source,
        reader: Any,  # noqa: ANN401 - the driver's
        writer: Any,  # noqa: ANN401 - the driver's
        progress: Progress,
    ) -> None:
        self._source = source
        self._reader = reader
        self._writer = writer
        self._progress = progress
        self._expected = {table.name: tables.count(source.connection, table) for table in TABLES}
        self._done = self._total = 0

    async def plan(self) -> Copied:
        """What `run` would write and remove."""
        state = await targets.look_at(self._reader, self._source.id)
        written = removed = 0
        rows = dict.fromkeys(self._expected, 0)
        self._total = sum(self._expected.values())
        async with self._reading():
            for table in TABLES:
                async for pair in self._pairs(table, bare=state is State.BARE):
                    rows[table.name] += pair.source is not None
                    written += pair.source is not None and pair.source != pair.target
                    removed += pair.source is None
        return Copied(self._source.id, rows, written, removed)

    async def run(self, url: str) -> Copied:
        """Copy and verify."""
        await targets.hold(self._writer)
        state = await targets.look_at(self._writer, self._source.id)
        is_new = state in {State.BARE, State.EMPTY}
        self._total = sum(self._expected.values()) * (2 if is_new else 3 if state is State.BEGUN else 4)
        if state is State.BARE:
            await postgres_migrate.migrate(url)
        if state is State.FINISHED:
            await self._require_untouched()
        await targets.begin(self._writer, self._source.id)
        removed = 0 if is_new else await self._remove()
        written = await self._write()
        rows, digest = await self._verify()
        await self._require_unwritten()
        await targets.finish(self._writer, digest)
        return Copied(self._source.id, rows, written, removed)

    async def _require_untouched(self) -> None:
        """Raises Problem("copy_refused") where a service has written since the copy was finished."""
        digest = sha256()
        async with self._reading():
            for table in TABLES:
                async for row in self._target_rows(table):
                    digest.update(msgspec.msgpack.encode(row))
                    self._move()
        if digest.digest() != await targets.digest(self._writer):
            raise Problem(
                "copy_refused",
                "The target was written to after it was copied, which a new copy would undo: name an empty database",
            )

    async def _remove(self) -> int:
        """What the source has no more; returns how many rows."""
        removed = 0
        async with self._reading():
            for table in reversed(TABLES):
                batches = Batches(self._writer, table)
                async for pair in self._pairs(table):
                    if pair.source is None and pair.target is not None:
                        await batches.remove(pair.target)
                    elif pair.source is not None and pair.target is not None and pair.source != pair.target:
                        await batches.free(pair.source)
                await batches.flush()
                removed += batches.removed
        return removed

    async def _write(self) -> int:
        """What the source has, and the numbers that are drawn next; returns how many rows."""
        written = 0
        async with self._reading():
            for table in TABLES:
                batches = Batches(self._writer, table)
                async for pair in self._pairs(table):
                    if pair.source is None or pair.source == pair.target:
                        continue
                    await (batches.add if pair.target is None else batches.change)(pair.source)
                await batches.flush()
                written += batches.written
        for table, last in zip(NUMBERED, self._last_numbers(), strict=True):
            await targets.number_from(self._writer, table, last)
        await targets.analyze(self._writer)
        return written

    async def _verify(self) -> tuple[dict[str, int], bytes]:
        """Returns how many rows each table has, and a digest of all. Raises Problem where a row differs."""
        rows = dict.fromkeys(self._expected, 0)
        found = _Differences()
        words, digest = 0, sha256()
        async with self._reading():
            for table in TABLES:
                async for pair in self._pairs(table):
                    rows[table.name] += 1
                    digest.update(msgspec.msgpack.encode(pair.target))
                    words += table is LISTINGS and pair.row[-1] is not None
                    if pair.source != pair.target:
                        found.note(_difference(table, pair))
        if await targets.last_numbers(self._reader) != self._last_numbers():
            found.note("the numbers that are drawn next")
        if await targets.database_ids(self._reader) != [self._source.id]:
            found.note("database_id")
        if await targets.count_words(self._reader) != words:
            found.note("words of listings that are not there")
        found.require_none()
        return rows, digest.digest()

    async def _require_unwritten(self) -> None:
        """Raises Problem("copy_refused") where the source is no more as it was when the copy began."""
        accounts: set[int | None] = set()
        with closing(open_reader(self._source.path)) as present:
            present.set_busy_timeout(_WAITS)
            present.execute("BEGIN").fetchall()
            for table in TABLES:
                if table.has_words:  # none of them changes without its account's state
                    continue
                before, now = (tables.read(one, table) for one in (self._source.connection, present))
                async for pair in _merge(table, before, _all(now)):
                    if pair.source != pair.target:
                        accounts.add(table.account_of(pair.row))
        if accounts:
            number = len(accounts - {None}) or 1
            raise Problem(
                "copy_refused",
                f"{number} {'account was' if number == 1 else 'accounts were'} written meanwhile: "
                "stop the service and run it again, it copies only what differs",
            )

    def _last_numbers(self) -> list[int]:
        return [tables.last_number(self._source.connection, table) for table in NUMBERED]

    async def _pairs(self, table: Table, *, bare: bool = False) -> AsyncIterator[_Pair]:
        """The rows of both sides; of the source alone where the target has no tables yet."""
        target = _all(()) if bare else self._target_rows(table)
        async for pair in _merge(table, tables.read(self._source.connection, table), target):
            yield pair
            self._move()

    async def _target_rows(self, table: Table) -> AsyncIterator[Row]:
        """Within a transaction."""
        cursor = await self._reader.cursor(targets.statement_of(table))
        while rows := await cursor.fetch(_AT_ONCE):
            for row in rows:
                yield tuple(row)

    def _reading(self) -> Any:  # noqa: ANN401 - the driver's
        """A transaction that reads the target as it is now, whatever is written meanwhile."""
        return self._reader.transaction(isolation="repeatable_read", readonly=True)

    def _move(self) -> None:
        self._done += 1
        if not self._done % _STEP:
            self._progress(min(self._done, self._total), self._total)


async def _merge(table: Table, source: Iterable[Row], target: AsyncIterator[Row]) -> AsyncIterator[_Pair]:
    """Each row of either side, in order, beside its like."""
    there = await anext(target, None)
    for row in source:
        key = table.key_of(row)
        while there is not None and table.key_of(there) < key:
            yield _Pair(None, there)
            there = await anext(target, None)
        if there is not None and table.key_of(there) == key:
            yield _Pair(row, there)
            there = await anext(target, None)
        else:
            yield _Pair(row, None)
    while there is not None:
        yield _Pair(None, there)
        there = await anext(target, None)


async def _all(rows: Iterable[Row]) -> AsyncIterator[Row]:
    for row in rows:
        yield row


def _difference(table: Table, pair: _Pair) -> str:
    """A row that is not the same on both sides: its name, and what of it differs."""
    if pair.target is None or pair.source is None:
        what = "missing" if pair.target is None else "not in the source"
    else:
        names = (*table.columns, "words")
        what = ", ".join(names[at] for at, value in enumerate(pair.source) if value != pair.target[at])
    return f"{table.name_of(pair.row)} ({what})"
