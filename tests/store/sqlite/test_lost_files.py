"""Files that are removed, truncated or damaged in use: writes, readiness, the stop and the next start."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import apsw
import pytest

from listings.domain.errors import Problem, Unavailable
from listings.domain.listings import AddStep
from listings.domain.model import NewListing
from listings.store.sqlite.connections import open_reader, open_writer
from listings.store.sqlite.maintenance.backup import back_up
from listings.store.sqlite.maintenance.migrate import migrate
from listings.store.sqlite.maintenance.restore import restore
from listings.store.sqlite.store import SqliteStore
from listings.store.sqlite.write_lock import WriteLock
from listings.store.sqlite.writer import transaction
from tests.store import databases
from tests.store.sqlite.writer_runs import set_lock_timeout

NOW = "2026-11-21T12:00:00.000Z"


def wal_of(database: Path) -> Path:
    return database.with_name(f"{database.name}-wal")


def marker_of(database: Path) -> Path:
    return database.with_name(f"{database.name}.needs-recovery")


@asynccontextmanager
async def opened(database: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(database)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def run(database: Path, use: Callable[[SqliteStore], Awaitable[object]]) -> None:
    async def open_and_use() -> None:
        async with opened(database) as store:
            await use(store)

    asyncio.run(open_and_use())


async def add(store: SqliteStore, title: str) -> None:
    await store.add_listing(1, 1, AddStep(NewListing(title=title, content="Bright."), NOW))


async def require_rejected(store: SqliteStore, message: str) -> None:
    with pytest.raises(Unavailable, match=message):
        await add(store, "Rejected")
    with pytest.raises(Unavailable):
        await store.check()


def read_titles(database: Path) -> set[str]:
    return {str(title) for (title,) in databases.rows(database, "SELECT title FROM listings")}


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return databases.make(tmp_path / "listings.db", listings=0)


@pytest.mark.parametrize("writes", [0, 1])
def test_the_wal_of_a_removed_database_outlives_the_stop(database: Path, tmp_path: Path, writes: int) -> None:
    away = tmp_path / "away"

    async def use(store: SqliteStore) -> None:
        for number in range(writes):
            await add(store, f"Lamp {number}")
        shutil.move(database, away)
        with pytest.raises(Unavailable, match="removed or replaced"):
            await store.check()

    run(database, use)
    with pytest.raises(Unavailable, match="The database was removed or replaced while in use: restore a backup"):
        migrate(database)
    with pytest.raises(Unavailable, match="removed or replaced"):
        run(database, is_ready)
    assert not database.exists()
    away.rename(database)
    with pytest.raises(Unavailable, match=f"put the original database and its WAL back and remove {database}"):
        migrate(database)
    marker_of(database).unlink()
    migrate(database)
    assert len(read_titles(database)) == writes


def replace_while_in_use(database: Path, away: Path) -> bytes:
    """Add 30 listings, and put an older copy in the place of the database. Return the WAL that the service keeps."""
    older = database.with_name("older")

    async def use(store: SqliteStore) -> None:
        shutil.copy(database, older)
        for number in range(30):
            await add(store, f"Lamp {number}")
        shutil.move(database, away)
        shutil.move(older, database)

    run(database, use)
    return wal_of(database).read_bytes()


def test_a_backup_keeps_the_wal_of_a_replaced_database(database: Path, tmp_path: Path) -> None:
    away = tmp_path / "away"
    written = replace_while_in_use(database, away)
    with suppress(Unavailable):  # the WAL does not belong to the older database
        back_up(database, tmp_path / "backup.db")
    assert wal_of(database).read_bytes() == written
    away.replace(database)
    marker_of(database).unlink()
    migrate(database)
    assert len(read_titles(database)) == 30


def test_a_restore_keeps_the_wal_of_a_replaced_database(database: Path, tmp_path: Path) -> None:
    backup = back_up(database, tmp_path / "backup.db")
    written = replace_while_in_use(database, tmp_path / "away")
    with pytest.raises(Problem, match="needs recovery"):
        restore(database, backup)
    assert wal_of(database).read_bytes() == written
    kept = restore(database, backup, force=True)
    assert kept is not None
    assert wal_of(kept).read_bytes() == written
    assert not marker_of(database).exists()


def test_a_restored_backup_needs_no_recovery(database: Path, tmp_path: Path) -> None:
    backup = back_up(database, tmp_path / "backup.db")

    async def use(store: SqliteStore) -> None:
        await add(store, "Lamp")
        shutil.move(database, tmp_path / "away")

    run(database, use)
    with pytest.raises(Problem, match="still contains writes to it"):
        restore(database, backup)
    assert marker_of(database).exists()
    restore(database, backup, force=True)
    assert not marker_of(database).exists()
    migrate(database)


def test_a_removed_wal_is_written_into_the_database_at_the_stop(database: Path) -> None:
    async def use(store: SqliteStore) -> None:
        await add(store, "Lamp")
        wal_of(database).unlink()
        await require_rejected(store, "removed or replaced")

    run(database, use)
    assert not marker_of(database).exists()
    assert read_titles(database) == {"Lamp"}


def test_a_marker_that_cannot_be_written_is_logged(database: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def use(store: SqliteStore) -> None:
        await add(store, "Lamp")
        shutil.rmtree(database.parent)

    run(database, use)
    assert "can't be written" in caplog.text


@pytest.mark.parametrize("left", [0, 100, 4096 + 24 + 32])
def test_a_truncated_wal_rejects_writes_and_the_next_start(database: Path, left: int) -> None:
    async def use(store: SqliteStore) -> None:
        await add(store, "Lamp")
        os.truncate(wal_of(database), left)
        for _ in range(2):
            await require_rejected(store, "WAL was truncated while in use")

    run(database, use)
    assert wal_of(database).stat().st_size == left
    with pytest.raises(Unavailable, match="The database's WAL was truncated while in use"):
        migrate(database)


def test_the_wal_of_an_idle_store_is_watched(database: Path) -> None:
    async def use(store: SqliteStore) -> None:
        await add(store, "Lamp")
        os.truncate(wal_of(database), 0)
        with pytest.raises(Unavailable, match="WAL was truncated"):
            await store.check()

    run(database, use)
    assert marker_of(database).exists()


def test_a_checkpoint_of_another_process_is_no_fault(database: Path) -> None:
    async def use(store: SqliteStore) -> None:
        await add(store, "Lamp")
        with closing(open_writer(database)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        assert wal_of(database).stat().st_size == 0
        await store.check()
        await add(store, "Chair")

    run(database, use)
    assert not marker_of(database).exists()
    assert read_titles(database) == {"Lamp", "Chair"}


def test_a_process_that_ends_during_a_stop_leaves_the_wal_in_place(database: Path) -> None:
    lock = WriteLock(database)

    async def stop_while_another_process_writes() -> None:
        store = SqliteStore(database)
        await store.open()
        writer = store._database.writer  # noqa: SLF001 - tells when the stop waits
        with lock.acquire():
            queued = asyncio.ensure_future(add(store, "Lamp"))
            await asyncio.sleep(0)
            stop = asyncio.ensure_future(store.close())
            while writer.lock.waiting_since is None:  # noqa: ASYNC110 - a thread sets it
                await asyncio.sleep(0.001)
            for name in ("bob", "charlie"):  # each closes the last connection but the store's
                with closing(open_writer(database)) as other:
                    other.execute("UPDATE accounts SET name = ?", (name,)).fetchall()
        await asyncio.gather(queued, stop)

    asyncio.run(stop_while_another_process_writes())
    assert not marker_of(database).exists()
    assert not wal_of(database).exists()
    assert read_titles(database) == {"Lamp"}


def test_a_read_that_finds_damage_rejects_writes_of_all_processes(tmp_path: Path) -> None:
    database = databases.make(tmp_path / "listings.db", listings=100, size=3000)

    async def use(store: SqliteStore, other: SqliteStore) -> None:
        content = bytearray(database.read_bytes())
        content[8 * 4096 :] = b"\xa5" * (len(content) - 8 * 4096)
        with database.open("r+b") as file:  # the same file
            file.write(content)
        with pytest.raises(Unavailable, match="can't be read"):
            await store.list_listings(1, 1)
        await require_rejected(store, "The database is damaged")
        await require_rejected(other, "Another process has found the database damaged")

    async def use_both() -> None:
        async with opened(database) as store, opened(database) as other:
            await use(store, other)

    asyncio.run(use_both())
    with pytest.raises(Unavailable, match="The database is damaged"):
        migrate(database)


def fail_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every write fail with an I/O error until `monkeypatch.undo`."""

    def fail(*_: object) -> None:
        raise apsw.IOError("EIO")

    monkeypatch.setattr(transaction, "run_without_savepoints", fail)


def test_failing_writes_are_not_ready_until_one_succeeds(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(store: SqliteStore) -> None:
        await store.check()
        fail_writes(monkeypatch)
        await require_rejected(store, "nothing was written")
        with pytest.raises(Unavailable):
            await store.check()
        monkeypatch.undo()
        await store.check()

    run(database, use)


@pytest.mark.parametrize("suffix", ["", "-wal"])
@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_file_lost_after_a_failed_write_is_not_ready(
    database: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, *, is_replaced: bool
) -> None:
    file = database.with_name(database.name + suffix)
    away = file.with_suffix(".away")

    async def use(store: SqliteStore) -> None:
        await add(store, "Lamp")
        fail_writes(monkeypatch)
        await require_rejected(store, "nothing was written")
        monkeypatch.undo()
        file.rename(away)
        if is_replaced:
            shutil.copy(away, file)
        for _ in range(2):
            await require_rejected(store, "removed or replaced")
        away.replace(file)
        await add(store, "Chair")
        await store.check()

    run(database, use)
    assert read_titles(database) == {"Lamp", "Chair"}


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_a_file_lost_before_the_first_write_is_not_ready(database: Path, suffix: str) -> None:
    file = database.with_name(database.name + suffix)

    async def use(store: SqliteStore) -> None:
        file.rename(file.with_suffix(".away"))
        await require_rejected(store, "removed or replaced")

    run(database, use)


def test_a_held_write_lock_is_not_ready(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_lock_timeout(monkeypatch, 0.05)

    async def use(store: SqliteStore) -> None:
        with closing(WriteLock(database)) as lock, lock.acquire():
            await require_rejected(store, "busy")
            await require_rejected(store, "busy")
        async with asyncio.timeout(10):
            while not await is_ready(store):  # noqa: ASYNC110 - the store has no event for it
                await asyncio.sleep(0.01)

    run(database, use)


def test_a_database_locked_by_a_foreign_program_is_not_ready(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("listings.store.sqlite.connections.WRITER_BUSY_TIMEOUT_MS", 10)

    async def use(store: SqliteStore) -> None:
        with closing(open_reader(database)) as other:
            other.execute("PRAGMA query_only = OFF").fetchall()
            other.execute("BEGIN IMMEDIATE")
            await require_rejected(store, "busy")
            other.execute("ROLLBACK")
        await store.check()

    run(database, use)


def test_a_read_only_file_system_is_not_ready(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(store: SqliteStore) -> None:
        fields = list(os.statvfs(database))
        fields[8] |= os.ST_RDONLY  # f_flag
        monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(fields))
        with pytest.raises(Unavailable, match="read-only"):
            await store.check()

    run(database, use)


async def is_ready(store: SqliteStore) -> bool:
    try:
        await store.check()
    except Unavailable:
        return False
    return True
