"""The writer while the disk, the database or its lock file fails, or memory is short."""

import asyncio
import fcntl
import os
import threading
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from listings.domain.errors import Unavailable
from listings.store.sqlite.write_lock import WriteLock
from listings.store.sqlite.writer import batch_writer
from listings.store.sqlite.writer.writer import Writer
from tests.harness import TIMEOUT
from tests.store.sqlite.writer_runs import insert, insert_and_reject, read_texts, run_in_one_batch, run_with_writer


def test_a_full_database_fails_the_batch_until_there_is_space(path: Path) -> None:
    async def use(writer: Writer) -> None:
        pages = await writer.run(lambda connection: connection.pragma("page_count"))
        await writer.run(lambda connection: connection.pragma("max_page_count", pages + 3))
        outcomes = await run_in_one_batch(insert("small"), insert("x" * 100_000), insert("also small"))(writer)
        assert [type(outcome) for outcome in outcomes] == [Unavailable] * 3
        assert "nothing was written" in outcomes[0].message
        assert read_texts(path) == set()
        await writer.run(lambda connection: connection.pragma("max_page_count", 1_000_000))
        assert await writer.run(insert("x" * 100_000)) == 1

    run_with_writer(path, use)


def test_a_read_only_database_is_unavailable_and_nothing_is_written(path: Path) -> None:
    connections: list[apsw.Connection] = []

    async def use(writer: Writer) -> None:
        await writer.run(connections.append)
        connections[0].pragma("query_only", 1)
        with pytest.raises(Unavailable) as raised:
            await writer.run(insert("a"))
        assert raised.value.message == "The database can't be written to; nothing was written"
        connections[0].pragma("query_only", 0)
        assert await writer.run(insert("b")) == 1

    run_with_writer(path, use)
    assert read_texts(path) == {"b"}


@pytest.mark.parametrize(
    ("error", "message"),
    [(apsw.ReadOnlyError("attempt to write a readonly database"), "unknown"), (apsw.FullError("full"), "nothing was")],
)
def test_the_outcome_of_a_failed_commit_is_unknown_unless_the_disk_is_full(
    path: Path, error: apsw.Error, message: str
) -> None:
    def fail() -> bool:
        raise error

    async def use(writer: Writer) -> None:
        with pytest.raises(Unavailable, match=message):
            await writer.run(lambda connection: connection.set_commit_hook(fail))

    run_with_writer(path, use)


def test_an_error_before_the_commit_means_that_nothing_was_written(path: Path) -> None:
    def fail(connection: apsw.Connection) -> None:
        insert("a")(connection)
        raise apsw.IOError("disk I/O error")

    async def use(writer: Writer) -> None:
        with pytest.raises(Unavailable, match="nothing was written"):
            await writer.run(fail)

    run_with_writer(path, use)
    assert read_texts(path) == set()


def test_a_failed_rollback_of_a_dry_run_means_that_nothing_was_written(path: Path) -> None:
    def fail_at_rollback(_: apsw.Cursor, statement: str, __: object) -> bool:
        if statement == "ROLLBACK":
            raise apsw.IOError("disk I/O error")
        return True

    def insert_and_break(connection: apsw.Connection) -> None:
        connection.exec_trace = fail_at_rollback
        insert_and_reject(connection)

    async def use(writer: Writer) -> None:
        with pytest.raises(Unavailable, match="nothing was written"):
            await writer.run(insert_and_break, is_dry_run=True)
        assert await writer.run(insert("b")) == 1

    run_with_writer(path, use)
    assert read_texts(path) == {"b"}


@pytest.mark.parametrize("error", [OSError("Input/output error"), RuntimeError("Symlink loop"), MemoryError()])
@pytest.mark.parametrize("step", ["open_writer", "OpenFiles"])
def test_an_unexpected_error_rejects_its_own_batch_only(
    path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, step: str
) -> None:
    entered, unblock = threading.Event(), threading.Event()

    def fail(_: Path) -> None:
        monkeypatch.undo()
        entered.set()
        unblock.wait(TIMEOUT)
        raise error

    async def use(writer: Writer) -> None:
        monkeypatch.setattr(batch_writer, step, fail)
        async with asyncio.timeout(TIMEOUT):
            first = asyncio.ensure_future(writer.run(insert("a")))
            await asyncio.to_thread(entered.wait, TIMEOUT)
            second = asyncio.ensure_future(writer.run(insert("b")))
            await asyncio.sleep(0)
            unblock.set()
            with pytest.raises(Unavailable, match="nothing was written"):
                await first
            assert await second == 1

    run_with_writer(path, use)
    assert read_texts(path) == {"b"}


def test_a_write_is_acknowledged_even_if_the_lock_cannot_be_released(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def fail_once(descriptor: int, operation: int) -> None:
        if operation == fcntl.LOCK_UN:
            monkeypatch.undo()
            raise OSError("No locks available")
        flock(descriptor, operation)

    async def use(writer: Writer) -> None:
        monkeypatch.setattr(fcntl, "flock", fail_once)
        async with asyncio.timeout(TIMEOUT):
            assert await writer.run(insert("a")) == 1
            assert await writer.run(insert("b")) == 2

    run_with_writer(path, use)


def test_a_first_write_is_rejected_if_another_process_found_damage(path: Path) -> None:
    async def use(writer: Writer) -> None:
        with closing(WriteLock(path)) as other, other.acquire():
            waiting = asyncio.ensure_future(writer.run(insert("a")))
            await asyncio.sleep(0)
            assert writer.queued == 1
            other.report_damage()
        with pytest.raises(Unavailable, match="Another process has found the database damaged"):
            await waiting

    run_with_writer(path, use)
    assert read_texts(path) == set()


def test_the_connection_is_reopened_after_a_disk_error(path: Path) -> None:
    connections = []

    def record(connection: apsw.Connection) -> None:
        connections.append(connection)

    def fail(connection: apsw.Connection) -> None:
        record(connection)
        raise apsw.IOError("disk I/O error")

    async def use(writer: Writer) -> None:
        with pytest.raises(Unavailable):
            await writer.run(fail)
        await writer.run(record)
        assert await writer.run(insert("after")) == 1

    run_with_writer(path, use)
    assert connections[0] is not connections[1]


def test_damage_found_while_the_connection_is_reopened_is_reported(path: Path) -> None:
    def fail(_: apsw.Connection) -> None:
        raise apsw.IOError("disk I/O error")

    async def use(writer: Writer) -> None:
        await writer.run(insert("a"))
        with pytest.raises(Unavailable):
            await writer.run(fail)
        with path.open("r+b") as file:
            file.write(b"not a database")
        assert not writer.lock.is_damaged
        with pytest.raises(Unavailable):
            await writer.run(insert("b"))
        assert writer.lock.is_damaged

    run_with_writer(path, use)


def test_a_database_locked_by_another_program_is_unavailable(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("listings.store.sqlite.connections.WRITER_BUSY_TIMEOUT_MS", 10)
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")

    async def use(writer: Writer) -> None:
        with pytest.raises(Unavailable, match="nothing was written"):
            await writer.run(insert("a"))
        other.execute("ROLLBACK")
        assert await writer.run(insert("b")) == 1

    run_with_writer(path, use)
    assert read_texts(path) == {"b"}


def test_a_missing_file_is_unavailable_until_it_is_restored(path: Path) -> None:
    away = path.with_suffix(".away")
    path.rename(away)

    async def use(writer: Writer) -> None:
        with pytest.raises(Unavailable):
            await writer.run(insert("a"))
        away.rename(path)
        assert await writer.run(insert("b")) == 1

    run_with_writer(path, use)


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_a_file_removed_while_open_is_unavailable_until_restored(path: Path, suffix: str) -> None:
    removed, away = path.with_name(path.name + suffix), path.with_suffix(".away")

    async def use(writer: Writer) -> None:
        await writer.run(insert("a"))
        writer.guard.require_files(None)
        removed.rename(away)
        for attempt in range(2):
            with pytest.raises(Unavailable, match="nothing was written"):
                await writer.run(insert(f"b{attempt}"))
        with pytest.raises(Unavailable, match="removed or replaced"):
            writer.guard.require_files(None)
        away.rename(removed)
        assert await writer.run(insert("c")) == 2
        writer.guard.require_files(None)

    run_with_writer(path, use)
    assert read_texts(path) == {"a", "c"}


def test_the_file_can_be_written_through_a_link(tmp_path: Path, path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(path)

    async def use(writer: Writer) -> None:
        assert [await writer.run(insert(text)) for text in ("a", "b")] == [1, 2]

    run_with_writer(link, use)


def test_a_lock_file_that_cannot_be_locked_makes_writes_unavailable(path: Path) -> None:
    async def use(writer: Writer) -> None:
        descriptor = writer.lock._descriptor  # noqa: SLF001 - the only way to break the lock
        copy = os.dup(descriptor)
        os.close(descriptor)
        with pytest.raises(Unavailable, match="nothing was written"):
            await writer.run(insert("a"))
        os.dup2(copy, descriptor)
        os.close(copy)
        assert await writer.run(insert("b")) == 1

    run_with_writer(path, use)
