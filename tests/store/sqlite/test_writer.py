"""The writer thread: what a caller hears when a batch succeeds, fails, or can't begin."""

import asyncio
import fcntl
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import apsw
import pytest

from listings.domain.errors import Problem, Unavailable
from listings.store.sqlite import writer as writers
from listings.store.sqlite.connections import open_writer
from listings.store.sqlite.write_lock import WriteLock
from listings.store.sqlite.writer import Writer
from tests.harness import TIMEOUT


def insert(text: str) -> Callable[[apsw.Connection], int]:
    def operation(connection: apsw.Connection) -> int:
        connection.execute("INSERT INTO notes (text) VALUES (?)", (text,))
        return connection.last_insert_rowid()

    return operation


def refuse(connection: apsw.Connection) -> int:
    connection.execute("INSERT INTO notes (text) VALUES ('refused')")
    raise Problem("not_owner", "no")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "notes.db"
    path.touch()
    open_writer(path).execute("CREATE TABLE notes (text TEXT NOT NULL UNIQUE) STRICT")
    return path


def texts(path: Path) -> set[str]:
    return {str(row[0]) for row in apsw.Connection(str(path)).execute("SELECT text FROM notes").fetchall()}


def with_writer(path: Path, use: Callable[[Writer], Any]) -> Any:
    async def run() -> Any:
        writer = Writer(path)
        try:
            return await use(writer)
        finally:
            await writer.close()

    return asyncio.run(run())


def gathered(*operations: Callable[[apsw.Connection], Any]) -> Callable[[Writer], Any]:
    async def use(writer: Writer) -> list[Any]:
        return await asyncio.gather(*map(writer.run, operations), return_exceptions=True)

    return use


def in_one_batch(*operations: Callable[[apsw.Connection], Any]) -> Callable[[Writer], Any]:
    entered, go_on = threading.Event(), threading.Event()

    def block(_: apsw.Connection) -> None:
        entered.set()
        go_on.wait(TIMEOUT)

    async def use(writer: Writer) -> list[Any]:
        blocked = asyncio.ensure_future(writer.run(block))
        await asyncio.to_thread(entered.wait, TIMEOUT)
        waiting: asyncio.Future[list[Any]] = asyncio.ensure_future(gathered(*operations)(writer))
        while writer.waiting < len(operations):  # noqa: ASYNC110 - the writer tells of no event
            await asyncio.sleep(0)
        go_on.set()
        await blocked
        return await waiting

    return use


def test_operations_that_wait_share_a_commit_and_each_gets_its_own_result(path: Path) -> None:
    results = with_writer(path, gathered(*(insert(str(number)) for number in range(600))))
    assert results == list(range(1, 601))
    assert len(texts(path)) == 600


def test_only_a_batch_with_an_operation_about_callers_ends_what_was_kept_of_them(path: Path) -> None:
    async def use(writer: Writer) -> list[int]:
        numbers = []
        for kinds in ([False, False], [False, True], [False]):
            await asyncio.gather(*(writer.run(insert(os.urandom(8).hex()), changes_callers=kind) for kind in kinds))
            await writer.run(insert(os.urandom(8).hex()), changes_callers=False)  # the turn before it has ended
            numbers.append(writer.turn.callers_number())
        return numbers

    assert with_writer(path, use) == [0, 2, 2]


def test_one_refusal_undoes_only_itself(path: Path) -> None:
    first, refused, last = with_writer(path, gathered(insert("a"), refuse, insert("b")))
    assert (first, last) == (1, 2)
    assert isinstance(refused, Problem)
    assert texts(path) == {"a", "b"}


@pytest.mark.parametrize("refusal", ["SELECT 1", "UPDATE notes SET text = 'lost' WHERE text = 'a' RETURNING text"])
def test_only_where_something_is_to_be_undone_all_is_done_again(path: Path, refusal: str) -> None:
    runs = []

    def note(connection: apsw.Connection) -> None:
        runs.append(insert("a")(connection))

    def decline(connection: apsw.Connection) -> None:
        connection.execute(refusal).fetchall()
        raise Problem("not_owner", "no")

    first, declined, last = with_writer(path, in_one_batch(note, decline, insert("b")))
    assert (first, last) == (None, 2)
    assert isinstance(declined, Problem)
    assert texts(path) == {"a", "b"}
    assert runs == [1] * (1 if refusal == "SELECT 1" else 2)


def test_a_statement_that_the_database_refuses_undoes_only_itself(path: Path) -> None:
    first, second, third = with_writer(path, gathered(insert("a"), insert("a"), insert("b")))
    assert (first, third) == (1, 2)
    assert isinstance(second, Unavailable)
    assert texts(path) == {"a", "b"}


def test_a_full_database_voids_the_whole_batch_and_recovers_when_there_is_room(path: Path) -> None:
    async def use(writer: Writer) -> None:
        pages = await writer.run(lambda connection: connection.pragma("page_count"))
        await writer.run(lambda connection: connection.pragma("max_page_count", pages + 3))
        outcomes = await in_one_batch(insert("small"), insert("x" * 100_000), insert("also small"))(writer)
        assert [type(outcome) for outcome in outcomes] == [Unavailable] * 3
        assert "unknown" in outcomes[0].message
        assert texts(path) == set()
        await writer.run(lambda connection: connection.pragma("max_page_count", 1_000_000))
        assert await writer.run(insert("x" * 100_000)) == 1

    with_writer(path, use)


def test_a_database_that_lets_nobody_write_is_unavailable_and_nothing_was_written(path: Path) -> None:
    connections: list[apsw.Connection] = []

    async def use(writer: Writer) -> None:
        await writer.run(connections.append)
        connections[0].pragma("query_only", 1)
        with pytest.raises(Unavailable) as told:
            await writer.run(insert("a"))
        assert told.value.message == "The database can't be written; nothing was written"
        connections[0].pragma("query_only", 0)
        assert await writer.run(insert("b")) == 1

    with_writer(path, use)
    assert texts(path) == {"b"}


def test_what_is_refused_when_it_commits_is_unknown(path: Path) -> None:
    def refuse() -> bool:
        raise apsw.ReadOnlyError("attempt to write a readonly database")

    async def use(writer: Writer) -> None:
        with pytest.raises(Unavailable, match="unknown"):
            await writer.run(lambda connection: connection.set_commit_hook(refuse))

    with_writer(path, use)


def test_a_failing_disk_reopens_the_connection(path: Path) -> None:
    connections = []

    def remember(connection: apsw.Connection) -> None:
        connections.append(connection)

    def fail(connection: apsw.Connection) -> None:
        remember(connection)
        raise apsw.IOError("disk I/O error")

    async def use(writer: Writer) -> None:
        with pytest.raises(Unavailable):
            await writer.run(fail)
        await writer.run(remember)
        assert await writer.run(insert("after")) == 1

    with_writer(path, use)
    assert connections[0] is not connections[1]


def test_a_database_that_another_program_holds_is_unavailable_and_nothing_was_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("listings.store.sqlite.connections._WRITER_WAITS", 10)
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")

    async def use(writer: Writer) -> None:
        with pytest.raises(Unavailable, match="nothing was written"):
            await writer.run(insert("a"))
        other.execute("ROLLBACK")
        assert await writer.run(insert("b")) == 1

    with_writer(path, use)
    assert texts(path) == {"b"}


def test_a_file_that_is_gone_is_unavailable_until_it_is_back(path: Path) -> None:
    away = path.with_suffix(".away")
    path.rename(away)

    async def use(writer: Writer) -> None:
        with pytest.raises(Unavailable):
            await writer.run(insert("a"))
        away.rename(path)
        assert await writer.run(insert("b")) == 1

    with_writer(path, use)


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_a_file_that_is_removed_while_it_is_open_takes_no_more_writes_until_it_is_back(path: Path, suffix: str) -> None:
    removed, away = path.with_name(path.name + suffix), path.with_suffix(".away")

    async def use(writer: Writer) -> None:
        await writer.run(insert("a"))
        writer.require_files()
        removed.rename(away)
        for attempt in range(2):
            with pytest.raises(Unavailable, match="nothing was written"):
                await writer.run(insert(f"b{attempt}"))
        with pytest.raises(Unavailable, match="removed or replaced"):
            writer.require_files()
        away.rename(removed)
        assert await writer.run(insert("c")) == 2
        writer.require_files()

    with_writer(path, use)
    assert texts(path) == {"a", "c"}


def test_a_file_that_is_replaced_while_it_is_open_takes_no_more_writes(path: Path) -> None:
    other = path.with_suffix(".other")
    shutil.copy(path, other)

    async def use(writer: Writer) -> None:
        await writer.run(insert("a"))
        other.replace(path)
        with pytest.raises(Unavailable, match="removed or replaced"):
            await writer.run(insert("b"))

    with_writer(path, use)


def test_a_link_to_the_file_is_as_good_as_the_file(tmp_path: Path, path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(path)

    async def use(writer: Writer) -> None:
        assert [await writer.run(insert(text)) for text in ("a", "b")] == [1, 2]

    with_writer(link, use)


def test_too_many_waiting_writes_are_refused_at_once(path: Path) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def block(_: apsw.Connection) -> None:
        entered.set()
        go_on.wait(TIMEOUT)

    async def use(writer: Writer) -> None:
        blocked = asyncio.ensure_future(writer.run(block))
        await asyncio.to_thread(entered.wait, TIMEOUT)
        waiting = [asyncio.ensure_future(writer.run(insert(str(number)))) for number in range(1024)]
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="Too many"):
            await writer.run(insert("one too many"))
        go_on.set()
        await asyncio.gather(blocked, *waiting)

    with_writer(path, use)
    assert len(texts(path)) == 1024


def test_a_batch_has_at_most_256_operations(path: Path) -> None:
    entered, go_on = threading.Event(), threading.Event()
    sizes: list[int] = []

    def block(_: apsw.Connection) -> None:
        entered.set()
        go_on.wait(TIMEOUT)

    def note(connection: apsw.Connection) -> None:
        sizes.append(connection.total_changes())
        connection.execute("INSERT INTO notes (text) VALUES (?)", (str(len(sizes)),))

    async def use(writer: Writer) -> None:
        commits: list[int] = []
        blocked = asyncio.ensure_future(writer.run(block))
        await asyncio.to_thread(entered.wait, TIMEOUT)

        def note_commit() -> bool:
            commits.append(len(sizes))
            return False

        def count(connection: apsw.Connection) -> None:
            connection.set_commit_hook(note_commit)

        first = asyncio.ensure_future(writer.run(count))
        waiting = [asyncio.ensure_future(writer.run(note)) for _ in range(600)]
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(blocked, first, *waiting)
        assert commits == [255, 511, 600]

    with_writer(path, use)


def sizes_of_batches(path: Path, use: Callable[[Writer], Any]) -> list[int]:
    sizes = []

    def note(size: int, seconds: float, *, committed: bool) -> None:  # noqa: ARG001 - as the writer calls it
        sizes.append(size)

    async def run() -> None:
        writer = Writer(path, note)
        try:
            await use(writer)
        finally:
            await writer.close()

    asyncio.run(run())
    return sizes


def test_a_batch_begins_when_a_turn_of_the_loop_has_brought_nothing_more(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "_LONGEST_GATHERING", TIMEOUT)

    async def use(writer: Writer) -> None:
        tasks = []
        for number in range(10):
            tasks.append(asyncio.ensure_future(writer.run(insert(str(number)))))
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)

    assert sizes_of_batches(path, use) == [10]


def test_a_batch_waits_no_longer_than_some_milliseconds_for_more(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "_LARGEST_BATCH", 1_000_000)
    monkeypatch.setattr(writers, "_MOST_WAITING", 1_000_000)
    begun = threading.Event()

    async def use(writer: Writer) -> None:
        tasks = [asyncio.ensure_future(writer.run(lambda _: begun.set()))]
        began = perf_counter()
        while not begun.is_set() and perf_counter() < began + TIMEOUT:
            tasks.append(asyncio.ensure_future(writer.run(lambda _: None)))
            await asyncio.sleep(0)
        assert begun.is_set()
        await asyncio.gather(*tasks)

    with_writer(path, use)


def test_what_is_gathered_while_the_writer_closes_is_written(path: Path) -> None:
    async def use(writer: Writer) -> None:
        tasks = [asyncio.ensure_future(writer.run(insert(str(number)))) for number in range(600)]
        await asyncio.sleep(0)
        await writer.close()
        assert await asyncio.gather(*tasks) == list(range(1, 601))

    assert sizes_of_batches(path, use) == [256, 256, 88]
    assert len(texts(path)) == 600


def test_writers_of_two_processes_take_turns_by_the_lock_file(path: Path) -> None:
    descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)

    async def use(writer: Writer) -> None:
        task = asyncio.ensure_future(writer.run(insert("a")))
        done, _ = await asyncio.wait([task], timeout=0.05)
        assert not done
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        assert await task == 1

    with_writer(path, use)
    os.close(descriptor)


@contextmanager
def another_process_has_the_turn(path: Path) -> Iterator[None]:
    descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


def test_while_another_process_keeps_the_turn_writes_are_refused_and_then_at_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "_TURN_WAITS", 0.05)

    async def use(writer: Writer) -> None:
        with another_process_has_the_turn(path):
            for text in ("a", "b", "c"):
                with pytest.raises(Unavailable, match="nothing was written"):
                    await writer.run(insert(text))
            assert writer.revisions.holds()
        while True:  # until the thread has had its turn
            try:
                assert await writer.run(insert("d")) == 1
            except Unavailable:
                await asyncio.sleep(0)
            else:
                break
        assert await writer.run(insert("e")) == 2

    with_writer(path, use)
    assert texts(path) == {"d", "e"}


def test_a_turn_that_comes_in_time_refuses_nothing_later(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "_TURN_WAITS", 0.2)

    async def use(writer: Writer) -> None:
        with another_process_has_the_turn(path):
            first = asyncio.ensure_future(writer.run(insert("a")))
            await asyncio.wait([first], timeout=0.05)
        assert await first == 1
        until = perf_counter() + 0.3
        while perf_counter() < until:
            await writer.run(lambda _: None)

    with_writer(path, use)


def test_a_writer_that_cannot_have_the_turn_closes_all_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "_TURN_WAITS", 0.05)

    async def close_in_vain() -> Writer:
        writer = Writer(path)
        task = asyncio.ensure_future(writer.run(insert("a")))
        await asyncio.sleep(0)
        await writer.close()
        with pytest.raises(Unavailable, match="nothing was written"):
            await task
        return writer

    with another_process_has_the_turn(path):
        writer = asyncio.run(close_in_vain())
    writer._thread.join()  # noqa: SLF001 - who was left behind ends when it has the turn
    assert texts(path) == set()


def test_a_process_that_reaches_the_file_by_a_link_takes_turns_too(tmp_path: Path, path: Path) -> None:
    link = tmp_path / "elsewhere" / "other.db"
    link.parent.mkdir()
    link.symlink_to(path)
    turn, other = WriteLock(path), WriteLock(link)
    with closing(turn), closing(other), turn.taken(), pytest.raises(BlockingIOError):
        fcntl.flock(other._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # noqa: SLF001 - `taken` would wait for ever
    assert [file.name for file in link.parent.iterdir()] == ["other.db"]


def test_a_lock_file_that_cannot_be_locked_is_unavailable(path: Path) -> None:
    async def use(writer: Writer) -> None:
        descriptor = writer.turn._descriptor  # noqa: SLF001 - there is no other way to lose a descriptor
        kept = os.dup(descriptor)
        os.close(descriptor)
        with pytest.raises(Unavailable, match="nothing was written"):
            await writer.run(insert("a"))
        os.dup2(kept, descriptor)
        os.close(kept)
        assert await writer.run(insert("b")) == 1

    with_writer(path, use)


def test_a_closed_writer_takes_nothing_more_and_leaves_no_wal(path: Path) -> None:
    async def use(writer: Writer) -> None:
        await writer.run(insert("a"))
        await writer.close()
        with pytest.raises(Unavailable, match="stopping"):
            await writer.run(insert("b"))

    keeper = apsw.Connection(str(path))
    keeper.execute("SELECT * FROM notes").fetchall()
    with_writer(path, use)
    assert path.with_name("notes.db-wal").stat().st_size == 0
    assert texts(path) == {"a"}


def test_the_longest_wait_of_the_last_checkpoint_is_short() -> None:
    assert writers._CHECKPOINT_WAITS <= 1_000  # noqa: SLF001 - the bound is the promise


def test_a_listener_hears_of_every_batch_before_its_callers_do(path: Path) -> None:
    heard: list[tuple[int, bool]] = []
    began = perf_counter()

    def hear(size: int, seconds: float, *, committed: bool) -> None:
        assert 0 <= seconds <= perf_counter() - began
        heard.append((size, committed))

    def fail(_: apsw.Connection) -> None:
        raise apsw.IOError("disk I/O error")

    async def use() -> None:
        writer = Writer(path, hear)
        await writer.run(insert("a"))
        assert heard == [(1, True)]
        await gathered(refuse)(writer)
        await gathered(fail)(writer)
        assert heard == [(1, True), (1, True), (1, False)]
        descriptor = writer.turn._descriptor  # noqa: SLF001 - there is no other way to lose a descriptor
        kept = os.dup(descriptor)
        os.close(descriptor)
        await gathered(insert("b"))(writer)
        os.dup2(kept, descriptor)
        os.close(kept)
        await writer.close()

    asyncio.run(use())
    assert heard[3:] == [(1, False)]


def test_a_listener_that_fails_keeps_no_caller_from_its_answer(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(size: int, seconds: float, *, committed: bool) -> None:
        raise OSError(f"no room to note {size} {seconds >= 0} {committed}")

    async def run() -> list[int]:
        writer = Writer(path, fail)
        async with asyncio.timeout(TIMEOUT):
            rows = [await writer.run(insert("a")), await writer.run(insert("b"))]
        await writer.close()
        return rows

    assert asyncio.run(run()) == [1, 2]
    assert caplog.text.count("no room to note 1 True True") == 2
    assert texts(path) == {"a", "b"}


def test_operations_that_wait_can_be_counted(path: Path) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def block(_: apsw.Connection) -> None:
        entered.set()
        go_on.wait(TIMEOUT)

    async def use(writer: Writer) -> None:
        assert writer.waiting == 0
        blocked = asyncio.ensure_future(writer.run(block))
        await asyncio.to_thread(entered.wait, TIMEOUT)
        waiting = [asyncio.ensure_future(writer.run(insert(str(number)))) for number in range(5)]
        await asyncio.sleep(0)
        assert writer.waiting == 5
        go_on.set()
        await asyncio.gather(blocked, *waiting)
        assert writer.waiting == 0

    with_writer(path, use)
