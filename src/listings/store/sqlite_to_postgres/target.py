"""The PostgreSQL side of a copy: its state, and the writes in batches.

An unfinished copy is marked in schema_migrations, so that only the next run of the copy uses the database. A finished
copy stores a digest of all its rows, so that the next run detects later writes by others.
"""

import asyncio
import time
from enum import Enum

import asyncpg

from listings.domain.errors import Problem
from listings.store import sql
from listings.store.migrations import APPLIED, UNFINISHED_COPY, count_known, shipped_migrations
from listings.store.query import Row
from listings.store.sqlite_to_postgres.tables import NAMES, NUMBERED, Table

_LOCK = 0x636F7079  # "copy"
_LOCK_TIMEOUT = "10s"  # longer than the server needs to notice that a copy was killed
_MAX_BATCH_ROWS = 2000
_MAX_BATCH_CHARACTERS = 4_000_000
_SETTINGS = ("statement_timeout = 0", "idle_in_transaction_session_timeout = 0", f"lock_timeout = '{_LOCK_TIMEOUT}'")
_IS_MIGRATED = "SELECT to_regclass('schema_migrations') IS NOT NULL"
_IS_COPY = "SELECT to_regclass('database_copy') IS NOT NULL"
_HAS_TABLES = """
SELECT EXISTS (
    SELECT 1 FROM pg_class AS c
    WHERE c.relnamespace = to_regnamespace(CAST(current_schema() AS text))
    AND c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f')
    AND NOT EXISTS (SELECT 1 FROM pg_depend AS d WHERE d.objid = c.oid AND d.deptype = 'e'))
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
_COUNT_SESSIONS = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'listings'
"""
_OWN_SESSIONS = 2  # one reads, the other one writes
_MAX_SESSION_END_SECONDS = 10.0
_POLL_SECONDS = 0.1
_RELEASE = {
    "accounts": "UPDATE accounts SET email = 'of account ' || id WHERE id = $1",
    "listings": """
        UPDATE listings SET external_id = NULL
        WHERE bucket = $1 AND account_id = $2 AND id = $3 AND external_id IS NOT NULL
    """,
}
_ADD_WORDS = "INSERT INTO listing_words (bucket, id, words) VALUES ($1, $2, $3)"
_DELETE_WORDS = "DELETE FROM listing_words WHERE bucket = $1 AND id = $2"


class State(Enum):
    """The content of the target database."""

    BARE = "no tables"
    EMPTY = "the schema without rows"
    STARTED = "an unfinished copy"
    FINISHED = "a finished copy"


async def prepare(connection: asyncpg.Connection) -> None:
    """Turn off the session's timeouts, because the statements of a copy may take long."""
    for setting in _SETTINGS:
        await connection.execute(f"SET {setting}")


async def lock(connection: asyncpg.Connection) -> None:
    """Lock the database against other copies for the session. Raises Problem("copy_refused") if another one runs."""
    try:
        await connection.execute(f"SELECT pg_advisory_lock({_LOCK})")
    except asyncpg.LockNotAvailableError:
        raise Problem("copy_refused", "Another copy into this database is running: wait until it ends") from None


async def inspect(connection: asyncpg.Connection, source_id: str) -> State:
    """Return the state of the target. Raises Problem("copy_refused") if it has anything but a copy of this source."""
    if not await connection.fetchval(_IS_MIGRATED):
        if await connection.fetchval(_HAS_TABLES):
            raise Problem("copy_refused", "The target has tables of another program: name an empty database")
        return State.BARE
    migrations = shipped_migrations("postgres")
    applied = [row for row in await connection.fetch(APPLIED) if row["version"] != UNFINISHED_COPY]
    if count_known(applied, migrations) < len(migrations):
        raise Problem("schema_mismatch", "The target has an older schema: run `listings migrate` to update it")
    if not await connection.fetchval(_IS_COPY):
        for table in ("listing_words", *NAMES):
            if await connection.fetchval(f"SELECT EXISTS (SELECT 1 FROM {table} LIMIT 1)"):
                raise Problem("copy_refused", "The target has data that is not from this copy: name an empty database")
        return State.EMPTY
    [(source, finished_at)] = await connection.fetch("SELECT source_id, finished_at FROM database_copy")
    if source != source_id:
        raise Problem("copy_refused", "The target has a copy of another database: name an empty database")
    return State.STARTED if finished_at is None else State.FINISHED


async def mark(connection: asyncpg.Connection) -> None:
    """Mark the database as an unfinished copy, so that the service does not start on it."""
    await connection.execute(_MARK, int(time.time()))


async def unmark(connection: asyncpg.Connection) -> None:
    """Remove the mark, so that the service starts on the database."""
    await connection.execute(_UNMARK)


async def require_unused(connection: asyncpg.Connection) -> None:
    """Raise Problem("copy_refused") if a service or a command is connected besides this copy.

    The sessions of a program that has ended may take seconds to end.
    """
    deadline = time.monotonic() + _MAX_SESSION_END_SECONDS
    while await connection.fetchval(_COUNT_SESSIONS) > _OWN_SESSIONS:
        if time.monotonic() > deadline:
            raise Problem("copy_refused", "A service or a command is using the target: stop it, then copy again")
        await asyncio.sleep(_POLL_SECONDS)


async def begin(connection: asyncpg.Connection, source_id: str, restore_id: str) -> None:
    """Record which database is copied. From now on, the state is STARTED."""
    async with connection.transaction():
        await connection.execute(_TABLE)
        await connection.execute("DELETE FROM database_copy")
        await connection.execute("INSERT INTO database_copy (source_id) VALUES ($1)", source_id)
        await connection.execute("UPDATE database_id SET id = $1, restore_id = $2", source_id, restore_id)


async def finish(connection: asyncpg.Connection, digest: bytes) -> None:
    """Store the digest and remove the mark of an unfinished copy."""
    async with connection.transaction():
        await connection.execute("UPDATE database_copy SET digest = $1, finished_at = $2", digest, int(time.time()))
        await unmark(connection)


async def get_digest(connection: asyncpg.Connection) -> bytes:
    """Return the digest that `finish` stored."""
    return bytes(await connection.fetchval("SELECT digest FROM database_copy"))


async def set_last_id(connection: asyncpg.Connection, table: str, last: int) -> None:
    """Set the table's sequence so that the next id follows `last`."""
    statement = f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), $1, $2)"
    await connection.fetchval(statement, max(1, last), last > 0)


async def find_differences(
    connection: asyncpg.Connection, database_id: str, last_ids: list[int], words: int
) -> list[str]:
    """Return what differs from the source besides the rows of tables.

    `last_ids` are those of the tables in NUMBERED, and `words` is the number of rows in listing_words.
    """
    found = []
    names = [await connection.fetchval(f"SELECT pg_get_serial_sequence('{table}', 'id')") for table in NUMBERED]
    sequences = [await connection.fetch(f"SELECT last_value, is_called FROM {name}") for name in names]
    if [last if is_called else last - 1 for [(last, is_called)] in sequences] != last_ids:
        found.append("the sequences of ids")
    if [found_id for (found_id,) in await connection.fetch(str(sql.GET_DATABASE_ID))] != [database_id]:
        found.append("database_id")
    if await connection.fetchval("SELECT count(*) FROM listing_words") != words:
        found.append("listing_words without a listing")
    return found


async def analyze(connection: asyncpg.Connection) -> None:
    """Update the planner's statistics."""
    await connection.execute(f"ANALYZE {', '.join(NAMES)}")


class Batches:
    """Writes to one table in batches, each in a transaction of its own."""

    def __init__(self, connection: asyncpg.Connection, table: Table) -> None:
        self.written = 0
        self.deleted = 0
        self._connection = connection
        self._table = table
        self._added: list[Row] = []
        self._changed: list[Row] = []
        self._deleted: list[Row] = []
        self._released: list[Row] = []
        self._rows = self._characters = 0

    async def add(self, row: Row) -> None:
        """Queue a row that the target does not have."""
        self.written += 1
        await self._queue(self._added, row)

    async def change(self, row: Row) -> None:
        """Queue the new values of a row that the target has."""
        self.written += 1
        await self._queue(self._changed, row)

    async def delete(self, row: Row) -> None:
        """Queue the deletion of a row."""
        self.deleted += 1
        await self._queue(self._deleted, row)

    async def release(self, row: Row) -> None:
        """Free the unique value of a row that will change, because another row may need it.

        It is the email address of an account, or the external id of a listing.
        """
        if self._table.name in _RELEASE:
            await self._queue(self._released, row[: self._table.keys])

    async def flush(self) -> None:
        """Write the queued rows."""
        try:
            async with self._connection.transaction():
                if self._released:
                    await self._run(_RELEASE[self._table.name], self._released)
                if self._table.has_words:
                    await self._run(_DELETE_WORDS, [(bucket, id_) for bucket, _, id_, *_ in self._deleted])
                keys = [row[: self._table.keys] for row in self._deleted]
                await self._run(f"DELETE FROM {self._table.name} WHERE {self._key}", keys)
                await self._write_changed()
                await self._write_added()
        except (asyncpg.CharacterNotInRepertoireError, asyncpg.UntranslatableCharacterError):
            invalid = (
                row for row in (*self._changed, *self._added) if any(isinstance(it, str) and "\0" in it for it in row)
            )
            reason = "has the character U+0000, which PostgreSQL can't store: remove it, then run the copy again"
            name = next(map(self._table.format_name, invalid), "A row")
            raise Problem("copy_refused", f"{name} {reason}") from None
        for rows in (self._added, self._changed, self._deleted, self._released):
            rows.clear()
        self._rows = self._characters = 0

    async def _queue(self, rows: list[Row], row: Row) -> None:
        rows.append(row)
        self._rows += 1
        self._characters += sum(len(value) for value in row if isinstance(value, str))
        if self._rows >= _MAX_BATCH_ROWS or self._characters >= _MAX_BATCH_CHARACTERS:
            await self.flush()

    async def _write_added(self) -> None:
        table = self._table
        if not self._added:
            return
        records = [row[: len(table.columns)] for row in self._added]
        await self._connection.copy_records_to_table(table.name, records=records, columns=table.columns)
        if table.has_words:
            await self._connection.copy_records_to_table(
                "listing_words",
                records=[(bucket, id_, words) for bucket, _, id_, *_, words in self._added if words is not None],
                columns=("bucket", "id", "words"),
            )

    async def _write_changed(self) -> None:
        table = self._table
        width = len(table.columns)
        assignments = ", ".join(f"{name} = ${at}" for at, name in enumerate(table.columns, 1) if at > table.keys)
        statement = f"UPDATE {table.name} SET {assignments} WHERE {self._key}"
        await self._run(statement, [row[:width] for row in self._changed])
        if table.has_words:
            words = [(bucket, id_, words) for bucket, _, id_, *_, words in self._changed]
            await self._run(_DELETE_WORDS, [(bucket, id_) for bucket, id_, _ in words])
            await self._run(_ADD_WORDS, [one for one in words if one[-1] is not None])

    @property
    def _key(self) -> str:
        return " AND ".join(f"{name} = ${at}" for at, name in enumerate(self._table.columns[: self._table.keys], 1))

    async def _run(self, statement: str, rows: list[Row]) -> None:
        if rows:
            await self._connection.executemany(statement, rows)
