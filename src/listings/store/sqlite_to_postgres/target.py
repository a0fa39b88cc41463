"""The PostgreSQL side of a copy: whose data is there, how far the copy is, and the writes in batches.

A copy that is not finished is marked among the migrations, so that nothing but the next run of the copy uses it. One
that is finished leaves a digest of all its rows: who writes to the database afterwards is noticed.
"""

import time
from enum import Enum
from typing import Any

import asyncpg

from listings.domain.errors import Problem
from listings.store import sql
from listings.store.mapping import Row
from listings.store.migrations import APPLIED, UNFINISHED_COPY, count_known, shipped_migrations
from listings.store.sqlite_to_postgres.tables import NUMBERED, TABLES, Table, select

_LOCK = 0x636F7079  # "copy"
_LOCK_WAITS = "10s"  # longer than the server takes to notice that a copy was killed
_BATCH_ROWS = 2000
_BATCH_CHARACTERS = 4_000_000
_SETTINGS = (
    "statement_timeout = 0",
    "idle_in_transaction_session_timeout = 0",
    f"lock_timeout = '{_LOCK_WAITS}'",
)
_IS_MIGRATED = "SELECT to_regclass('schema_migrations') IS NOT NULL"
_IS_COPY = "SELECT to_regclass('database_copy') IS NOT NULL"
_HOLDS_OTHER = """
SELECT EXISTS (
    SELECT FROM pg_class AS c
    WHERE c.relnamespace = to_regnamespace(CAST(current_schema() AS text))
    AND c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f')
    AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.objid = c.oid AND d.deptype = 'e'))
"""
_TABLE = """
CREATE TABLE IF NOT EXISTS database_copy (source_id text NOT NULL, digest bytea, finished_at bigint)
"""
_MARK = f"""
INSERT INTO schema_migrations (version, name, checksum, applied_at)
VALUES ({UNFINISHED_COPY}, 'unfinished_copy', '', $1)
ON CONFLICT (version) DO NOTHING
"""
_UNMARK = f"DELETE FROM schema_migrations WHERE version = {UNFINISHED_COPY}"
_FREE = "UPDATE accounts SET email = 'of account ' || id WHERE id = $1"
_ADD_WORDS = "INSERT INTO listing_words (bucket, id, words) VALUES ($1, $2, $3)"
_REMOVE_WORDS = "DELETE FROM listing_words WHERE bucket = $1 AND id = $2"


class State(Enum):
    """What a database holds, as far as a copy is concerned."""

    BARE = "nothing"
    EMPTY = "the schema"
    BEGUN = "a part of the copy"
    FINISHED = "the copy"


async def prepare(connection: Any) -> None:  # noqa: ANN401 - the driver's
    """Let a session take its time, since nobody waits for a copy's statements."""
    for setting in _SETTINGS:
        await connection.execute(f"SET {setting}")


async def hold(connection: Any) -> None:  # noqa: ANN401 - the driver's
    """Let no other copy write here for as long as the session lasts. Raises Problem("copy_refused")."""
    try:
        await connection.execute(f"SELECT pg_advisory_lock({_LOCK})")
    except asyncpg.LockNotAvailableError:
        raise Problem("copy_refused", "Another copy into this database is under way: wait for its end") from None


async def look_at(connection: Any, source_id: str) -> State:  # noqa: ANN401 - the driver's
    """Raises Problem("copy_refused") for a database that holds anything but a copy of this source."""
    if not await connection.fetchval(_IS_MIGRATED):
        if await connection.fetchval(_HOLDS_OTHER):
            raise Problem("copy_refused", "The target holds tables that are not of Listings: name an empty database")
        return State.BARE
    await _require_schema(connection)
    if not await connection.fetchval(_IS_COPY):
        for table in ("listing_words", *(table.name for table in TABLES)):
            if await connection.fetchval(f"SELECT EXISTS (SELECT FROM {table})"):
                raise Problem("copy_refused", "The target holds data that is not of this copy: name an empty database")
        return State.EMPTY
    source, finished_at = await connection.fetchrow("SELECT source_id, finished_at FROM database_copy")
    if source != source_id:
        raise Problem("copy_refused", "The target holds a copy of another database: name an empty database")
    return State.BEGUN if finished_at is None else State.FINISHED


async def _require_schema(connection: Any) -> None:  # noqa: ANN401 - the driver's
    migrations = shipped_migrations("postgres")
    applied = [row for row in await connection.fetch(APPLIED) if row[0] != UNFINISHED_COPY]
    if count_known(applied, migrations) < len(migrations):
        raise Problem("schema_mismatch", "The target has an older schema: bring it up to date with `listings migrate`")


async def begin(connection: Any, source_id: str) -> None:  # noqa: ANN401 - the driver's
    """Mark the database as a copy that is not finished, which the service does not start on."""
    async with connection.transaction():
        await connection.execute(_TABLE)
        await connection.execute("DELETE FROM database_copy")
        await connection.execute("INSERT INTO database_copy (source_id) VALUES ($1)", source_id)
        await connection.execute(_MARK, int(time.time()))
        await connection.execute("UPDATE database_id SET id = $1", source_id)


async def finish(connection: Any, digest: bytes) -> None:  # noqa: ANN401 - the driver's
    """Take the mark off."""
    async with connection.transaction():
        await connection.execute("UPDATE database_copy SET digest = $1, finished_at = $2", digest, int(time.time()))
        await connection.execute(_UNMARK)


async def digest(connection: Any) -> bytes:  # noqa: ANN401 - the driver's
    """What `finish` has left."""
    return bytes(await connection.fetchval("SELECT digest FROM database_copy"))


async def number_from(connection: Any, table: Table, last: int) -> None:  # noqa: ANN401 - the driver's
    """Let the next id that is drawn be higher than any."""
    statement = f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), $1, $2)"
    await connection.fetchval(statement, max(1, last), last > 0)


async def last_numbers(connection: Any) -> list[int]:  # noqa: ANN401 - the driver's
    """The highest ids that were drawn, of NUMBERED."""
    names = [await connection.fetchval(f"SELECT pg_get_serial_sequence('{table.name}', 'id')") for table in NUMBERED]
    found = [await connection.fetchrow(f"SELECT last_value, is_called FROM {name}") for name in names]
    return [last if is_called else last - 1 for last, is_called in found]


async def database_ids(connection: Any) -> list[str]:  # noqa: ANN401 - the driver's
    """What the rate limit knows the database by, once."""
    return [str(row[0]) for row in await connection.fetch(sql.GET_DATABASE_ID)]


async def count_words(connection: Any) -> int:  # noqa: ANN401 - the driver's
    """How many listings have words, those that are not there included."""
    return int(await connection.fetchval("SELECT count(*) FROM listing_words"))


async def analyze(connection: Any) -> None:  # noqa: ANN401 - the driver's
    """Let the planner know what has come."""
    await connection.execute(f"ANALYZE {', '.join(table.name for table in TABLES)}")


def statement_of(table: Table) -> str:
    """Reads all rows of a table, in order."""
    return select(table, words=True)


class Batches:
    """The writes to one table, each batch in a transaction of its own."""

    def __init__(self, connection: Any, table: Table) -> None:  # noqa: ANN401 - the driver's
        self.written = 0
        self.removed = 0
        self._connection = connection
        self._table = table
        self._added: list[Row] = []
        self._changed: list[Row] = []
        self._removed: list[Row] = []
        self._freed: list[Row] = []
        self._rows = self._characters = 0

    async def add(self, row: Row) -> None:
        """A row that is not there."""
        self._added.append(row)
        self.written += 1
        await self._note(row)

    async def change(self, row: Row) -> None:
        """A row that is there with other values."""
        self._changed.append(row)
        self.written += 1
        await self._note(row)

    async def remove(self, row: Row) -> None:
        """A row that is to be there no more."""
        self._removed.append(row)
        self.removed += 1
        await self._note(row)

    async def free(self, row: Row) -> None:
        """Let go what no two rows may share, since another row may be waiting for it."""
        if self._table.name == "accounts":
            self._freed.append(row[:1])
            await self._note(row)

    async def flush(self) -> None:
        """Write what waits."""
        async with self._connection.transaction():
            await self._run(_FREE, self._freed)
            await self._remove()
            await self._change()
            await self._add()
        self._added, self._changed, self._removed, self._freed = [], [], [], []
        self._rows = self._characters = 0

    async def _note(self, row: Row) -> None:
        self._rows += 1
        self._characters += sum(len(value) for value in row if isinstance(value, str))
        if self._rows >= _BATCH_ROWS or self._characters >= _BATCH_CHARACTERS:
            await self.flush()

    async def _add(self) -> None:
        table = self._table
        if not self._added:
            return
        width = len(table.columns)
        try:
            await self._connection.copy_records_to_table(
                table.name, records=[row[:width] for row in self._added], columns=table.columns
            )
        except (asyncpg.CharacterNotInRepertoireError, asyncpg.UntranslatableCharacterError):
            raise self._unwritable(self._added) from None
        if table.has_words:
            await self._connection.copy_records_to_table(
                "listing_words",
                records=[(row[0], row[2], row[-1]) for row in self._added if row[-1] is not None],
                columns=("bucket", "id", "words"),
            )

    async def _change(self) -> None:
        table = self._table
        width = len(table.columns)
        places = ", ".join(f"{name} = ${at}" for at, name in enumerate(table.columns, 1) if at > table.keys)
        try:
            await self._run(
                f"UPDATE {table.name} SET {places} WHERE {self._key}", [row[:width] for row in self._changed]
            )
        except (asyncpg.CharacterNotInRepertoireError, asyncpg.UntranslatableCharacterError):
            raise self._unwritable(self._changed) from None
        if table.has_words:
            await self._run(_REMOVE_WORDS, [(row[0], row[2]) for row in self._changed])
            await self._run(_ADD_WORDS, [(row[0], row[2], row[-1]) for row in self._changed if row[-1] is not None])

    async def _remove(self) -> None:
        table = self._table
        if table.has_words:
            await self._run(_REMOVE_WORDS, [(row[0], row[2]) for row in self._removed])
        await self._run(f"DELETE FROM {table.name} WHERE {self._key}", [row[: table.keys] for row in self._removed])

    @property
    def _key(self) -> str:
        return " AND ".join(f"{name} = ${at}" for at, name in enumerate(self._table.columns[: self._table.keys], 1))

    async def _run(self, statement: str, rows: list[Row]) -> None:
        if rows:
            await self._connection.executemany(statement, rows)

    def _unwritable(self, rows: list[Row]) -> Problem:
        names = [self._table.name_of(row) for row in rows if any(isinstance(it, str) and "\0" in it for it in row)]
        reason = "has the character U+0000, which PostgreSQL can't store: change it, and run this again"
        return Problem("copy_refused", f"{next(iter(names), 'A row')} {reason}")
