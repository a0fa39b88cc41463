"""The length of the WAL while reads overlap without a pause."""

import asyncio
from pathlib import Path

import apsw

from listings.store.sqlite.connections import open_reader, open_writer
from listings.store.sqlite.writer.writer import Writer

_WRITES, _WRITE_BYTES = 100, 400_000
_MAX_WAL_BYTES = 24 * 1024 * 1024  # much less than all writes together


def test_overlapping_reads_do_not_let_the_wal_grow(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.touch()
    open_writer(path).execute("CREATE TABLE notes (content BLOB NOT NULL) STRICT")

    async def write_while_reading() -> None:
        writer = Writer(path)
        reading = asyncio.create_task(read_without_pause(path))
        for _ in range(_WRITES):
            await writer.run(insert)
        assert not reading.done()
        reading.cancel()
        size = path.with_name("notes.db-wal").stat().st_size
        await writer.close()
        assert size < _MAX_WAL_BYTES

    asyncio.run(write_while_reading())


def insert(connection: apsw.Connection) -> None:
    connection.execute("INSERT INTO notes VALUES (randomblob(?))", (_WRITE_BYTES,))


async def read_without_pause(path: Path) -> None:
    """Always have a snapshot open: begin the next one before the current one ends."""
    current, following = open_reader(path), open_reader(path)
    begin(current)
    while True:
        await asyncio.sleep(0.002)
        begin(following)
        current.execute("COMMIT")
        current, following = following, current


def begin(connection: apsw.Connection) -> None:
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM notes").fetchall()
