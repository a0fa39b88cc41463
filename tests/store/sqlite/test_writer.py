"""The writer thread: results and errors of writes when a batch succeeds, fails or can't start."""

import asyncio
import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import apsw
import pytest

from listings.domain.errors import Problem, Unavailable
from listings.domain.model import Listing
from listings.store.sqlite.write_lock import WriteLock
from listings.store.sqlite.writer import batch_writer
from listings.store.sqlite.writer import writer as writers
from listings.store.sqlite.writer.writer import Writer
from tests.examples import build_listing
from tests.harness import TIMEOUT
from tests.store.sqlite.writer_runs import (
    block,
    insert,
    insert_and_reject,
    read_texts,
    run_concurrently,
    run_in_one_batch,
    run_with_writer,
    set_lock_timeout,
)


def test_queued_operations_share_a_commit_and_get_their_own_results(path: Path) -> None:
    results = run_with_writer(path, run_concurrently(*(insert(str(number)) for number in range(600))))
    assert results == list(range(1, 601))
    assert len(read_texts(path)) == 600


def test_only_operations_on_callers_invalidate_cached_callers(path: Path) -> None:
    async def use(writer: Writer) -> list[int]:
        sequences = []
        for kinds in ([False, False], [False, True], [False]):
            await asyncio.gather(*(writer.run(insert(os.urandom(8).hex()), changes_callers=kind) for kind in kinds))
            await writer.run(insert(os.urandom(8).hex()), changes_callers=False)  # the batch before it has ended
            sequences.append(writer.lock.read_caller_sequence())
        return sequences

    assert run_with_writer(path, use) == [0, 2, 2]


def test_a_rejected_operation_is_rolled_back_alone(path: Path) -> None:
    first, rejected, last = run_with_writer(path, run_concurrently(insert("a"), insert_and_reject, insert("b")))
    assert (first, last) == (1, 2)
    assert isinstance(rejected, Problem)
    assert read_texts(path) == {"a", "b"}


@pytest.mark.parametrize("statement", ["SELECT 1", "UPDATE notes SET text = 'lost' WHERE text = 'a' RETURNING text"])
def test_a_batch_runs_again_only_if_there_is_something_to_roll_back(path: Path, statement: str) -> None:
    runs = []

    def count(connection: apsw.Connection) -> None:
        runs.append(insert("a")(connection))

    def reject(connection: apsw.Connection) -> None:
        connection.execute(statement).fetchall()
        raise Problem("not_owner", "no")

    first, rejected, last = run_with_writer(path, run_in_one_batch(count, reject, insert("b")))
    assert (first, last) == (None, 2)
    assert isinstance(rejected, Problem)
    assert read_texts(path) == {"a", "b"}
    assert runs == [1] * (1 if statement == "SELECT 1" else 2)


def test_a_dry_run_runs_once(path: Path) -> None:
    runs = []

    def reject(connection: apsw.Connection) -> None:
        runs.append(connection)
        insert_and_reject(connection)

    async def use(writer: Writer) -> list[Any]:
        calls = (writer.run(reject, is_dry_run=True), writer.run(insert("a")), writer.run(reject, is_dry_run=True))
        return list(await asyncio.gather(*calls, return_exceptions=True))

    first, inserted, last = run_with_writer(path, use)
    assert (type(first), inserted, type(last)) == (Problem, 1, Problem)
    assert (len(runs), read_texts(path)) == (2, {"a"})


def test_a_batch_of_dry_runs_writes_nothing_to_the_file(path: Path) -> None:
    async def use(writer: Writer) -> tuple[int, int]:
        await writer.run(insert("a"))
        before = path.with_name("notes.db-wal").stat().st_size
        with pytest.raises(Problem):
            await writer.run(insert_and_reject, is_dry_run=True)
        return before, path.with_name("notes.db-wal").stat().st_size

    before, after = run_with_writer(path, use)
    assert 0 < before == after


def test_a_batch_of_dry_runs_does_not_show_that_writes_work(path: Path) -> None:
    def on_batch(size: int, seconds: float, *, committed: bool) -> None:  # noqa: ARG001 - the names of the callback
        batches.append(committed)

    async def use() -> None:
        writer = Writer(path, on_batch)
        await writer.run(lambda connection: connection.pragma("max_page_count", 1))
        with pytest.raises(Unavailable):
            await writer.run(insert("x" * 100_000))
        with pytest.raises(Problem):
            await writer.run(insert_and_reject, is_dry_run=True)
        await writer.check()
        await writer.close()

    batches: list[bool] = []
    asyncio.run(use())
    assert batches == [True, False, True, True]  # the last one is the small write of the check


def test_a_statement_that_the_database_rejects_is_rolled_back_alone(path: Path) -> None:
    first, second, third = run_with_writer(path, run_concurrently(insert("a"), insert("a"), insert("b")))
    assert (first, third) == (1, 2)
    assert isinstance(second, Unavailable)
    assert read_texts(path) == {"a", "b"}


def test_writes_above_the_queue_limit_are_rejected_immediately(path: Path) -> None:
    async def use(writer: Writer) -> None:
        async with block(writer):
            assert writer.queued == 0
            waiting = [asyncio.ensure_future(writer.run(insert(str(number)))) for number in range(1024)]
            await asyncio.sleep(0)
            assert writer.queued == 1024
            with pytest.raises(Unavailable, match="Too many"):
                await writer.run(insert("one too many"))
        await asyncio.gather(*waiting)
        assert writer.queued == 0

    run_with_writer(path, use)
    assert len(read_texts(path)) == 1024


def test_a_batch_has_at_most_256_operations(path: Path) -> None:
    sizes: list[int] = []
    commits: list[int] = []

    def insert_row(connection: apsw.Connection) -> None:
        sizes.append(connection.total_changes())
        connection.execute("INSERT INTO notes (text) VALUES (?)", (str(len(sizes)),))

    def record_commit() -> bool:
        commits.append(len(sizes))
        return False

    def set_hook(connection: apsw.Connection) -> None:
        connection.set_commit_hook(record_commit)

    async def use(writer: Writer) -> None:
        async with block(writer):
            waiting = [asyncio.ensure_future(writer.run(use)) for use in [set_hook, *[insert_row] * 600]]
            await asyncio.sleep(0)
        await asyncio.gather(*waiting)
        assert commits == [255, 511, 600]

    run_with_writer(path, use)


def record_batch_sizes(path: Path, use: Callable[[Writer], Any]) -> list[int]:
    sizes = []

    def record(size: int, seconds: float, *, committed: bool) -> None:  # noqa: ARG001 - the signature of the callback
        sizes.append(size)

    async def run() -> None:
        writer = Writer(path, record)
        try:
            await use(writer)
        finally:
            await writer.close()

    asyncio.run(run())
    return sizes


def test_a_batch_ends_early_if_its_results_are_large(path: Path) -> None:
    large = build_listing(content="x" * 3_000_000)

    def read_large(connection: apsw.Connection) -> Listing:
        connection.execute("INSERT INTO notes (text) VALUES (?)", (str(connection.total_changes()),))
        return large

    assert record_batch_sizes(path, run_in_one_batch(*[read_large] * 8)) == [1, 3, 3, 2]
    assert len(read_texts(path)) == 8


def test_a_batch_starts_when_a_loop_iteration_queues_nothing_more(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "_MAX_COLLECT_SECONDS", TIMEOUT)

    async def use(writer: Writer) -> None:
        tasks = []
        for number in range(10):
            tasks.append(asyncio.ensure_future(writer.run(insert(str(number)))))
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)

    assert record_batch_sizes(path, use) == [10]


def test_a_batch_waits_for_more_writes_for_a_few_milliseconds_only(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "_MAX_BATCH_SIZE", 1_000_000)
    monkeypatch.setattr(writers, "_MAX_QUEUED_WRITES", 1_000_000)
    started = threading.Event()

    async def use(writer: Writer) -> None:
        tasks = [asyncio.ensure_future(writer.run(lambda _: started.set()))]
        began = perf_counter()
        while not started.is_set() and perf_counter() < began + TIMEOUT:
            tasks.append(asyncio.ensure_future(writer.run(lambda _: None)))
            await asyncio.sleep(0)
        assert started.is_set()
        await asyncio.gather(*tasks)

    run_with_writer(path, use)


def test_writes_queued_before_the_writer_closes_are_written(path: Path) -> None:
    async def use(writer: Writer) -> None:
        tasks = [asyncio.ensure_future(writer.run(insert(str(number)))) for number in range(600)]
        await asyncio.sleep(0)
        await writer.close()
        assert await asyncio.gather(*tasks) == list(range(1, 601))

    assert record_batch_sizes(path, use) == [256, 256, 88]
    assert len(read_texts(path)) == 600


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


def test_writes_are_rejected_while_another_process_holds_the_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_lock_timeout(monkeypatch, 0.05)

    async def use(writer: Writer) -> None:
        with hold_lock(path):
            for text in ("a", "b", "c"):
                with pytest.raises(Unavailable, match="nothing was written"):
                    await writer.run(insert(text))
            assert writer.revisions.can_record()
        while True:  # until the thread has acquired the lock
            try:
                assert await writer.run(insert("d")) == 1
            except Unavailable:
                await asyncio.sleep(0)
            else:
                break
        assert await writer.run(insert("e")) == 2

    run_with_writer(path, use)
    assert read_texts(path) == {"d", "e"}


def test_no_write_is_rejected_if_the_lock_is_acquired_in_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_lock_timeout(monkeypatch, 0.2)

    async def use(writer: Writer) -> None:
        with hold_lock(path):
            first = asyncio.ensure_future(writer.run(insert("a")))
            await asyncio.wait([first], timeout=0.05)
        assert await first == 1
        until = perf_counter() + 0.3
        while perf_counter() < until:
            await writer.run(lambda _: None)

    run_with_writer(path, use)


def test_a_writer_closes_even_if_it_cannot_acquire_the_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_lock_timeout(monkeypatch, 0.05)

    async def close_while_locked() -> Writer:
        writer = Writer(path)
        task = asyncio.ensure_future(writer.run(insert("a")))
        await asyncio.sleep(0)
        await writer.close()
        with pytest.raises(Unavailable, match="nothing was written"):
            await task
        return writer

    with hold_lock(path):
        writer = asyncio.run(close_while_locked())
    writer._thread.join()  # noqa: SLF001 - the thread ends once it acquires the lock
    assert read_texts(path) == set()


def test_a_closing_writer_waits_for_a_lock_of_another_process(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_lock_timeout(monkeypatch, 2.0)
    has_begun, is_locked = threading.Event(), threading.Event()

    def lock_between_batches() -> None:
        with hold_lock(path):
            is_locked.set()
            sleep(0.2)

    async def close_while_writing() -> None:
        writer = Writer(path)

        def release_after_most_of_the_time(connection: apsw.Connection) -> None:
            has_begun.set()
            sleep(1.9)
            fcntl.flock(writer.lock._descriptor, fcntl.LOCK_UN)  # noqa: SLF001 - or this thread may be first again
            assert is_locked.wait(TIMEOUT)
            insert("a")(connection)

        first = asyncio.ensure_future(writer.run(release_after_most_of_the_time))
        await asyncio.to_thread(has_begun.wait)  # so that the other write is not in the same batch
        second = asyncio.ensure_future(writer.run(insert("b")))
        await asyncio.gather(first, second, writer.close(), asyncio.to_thread(lock_between_batches))

    asyncio.run(close_while_writing())
    assert read_texts(path) == {"a", "b"}


def test_a_process_that_opens_the_file_through_a_link_shares_the_lock(tmp_path: Path, path: Path) -> None:
    link = tmp_path / "elsewhere" / "other.db"
    link.parent.mkdir()
    link.symlink_to(path)
    lock, other = WriteLock(path), WriteLock(link)
    with closing(lock), closing(other), lock.acquire(), pytest.raises(BlockingIOError):
        fcntl.flock(other._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # noqa: SLF001 - `acquire` would wait forever
    assert [file.name for file in link.parent.iterdir()] == ["other.db"]


def test_a_closed_writer_rejects_writes_and_leaves_no_wal(path: Path) -> None:
    async def use(writer: Writer) -> None:
        await writer.run(insert("a"))
        await writer.close()
        with pytest.raises(Unavailable, match="stopping"):
            await writer.run(insert("b"))

    other = apsw.Connection(str(path))
    other.execute("SELECT * FROM notes").fetchall()
    run_with_writer(path, use)
    assert path.with_name("notes.db-wal").stat().st_size == 0
    assert read_texts(path) == {"a"}


def test_the_final_checkpoint_has_a_short_timeout() -> None:
    assert batch_writer._CHECKPOINT_TIMEOUT_MS <= 1_000  # noqa: SLF001 - the limit is under test


def test_the_batch_callback_runs_before_the_callers_get_results(path: Path) -> None:
    batches: list[tuple[int, bool]] = []
    began = perf_counter()

    def record(size: int, seconds: float, *, committed: bool) -> None:
        assert 0 <= seconds <= perf_counter() - began
        batches.append((size, committed))

    def fail(_: apsw.Connection) -> None:
        raise apsw.IOError("disk I/O error")

    async def use() -> None:
        writer = Writer(path, record)
        await writer.run(insert("a"))
        assert batches == [(1, True)]
        await run_concurrently(insert_and_reject)(writer)
        await run_concurrently(fail)(writer)
        assert batches == [(1, True), (1, True), (1, False)]
        descriptor = writer.lock._descriptor  # noqa: SLF001 - the only way to break the lock
        copy = os.dup(descriptor)
        os.close(descriptor)
        await run_concurrently(insert("b"))(writer)
        os.dup2(copy, descriptor)
        os.close(copy)
        await writer.close()

    asyncio.run(use())
    assert batches[3:] == [(1, False)]


def test_a_failing_batch_callback_does_not_affect_the_results(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(size: int, seconds: float, *, committed: bool) -> None:
        raise OSError(f"cannot record {size} {seconds >= 0} {committed}")

    async def run() -> list[int]:
        writer = Writer(path, fail)
        async with asyncio.timeout(TIMEOUT):
            rows = [await writer.run(insert("a")), await writer.run(insert("b"))]
        await writer.close()
        return rows

    assert asyncio.run(run()) == [1, 2]
    assert caplog.text.count("cannot record 1 True True") == 2
    assert read_texts(path) == {"a", "b"}
