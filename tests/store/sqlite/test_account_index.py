"""Indexing a large account in steps while other writes happen."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import apsw
import pytest

from listings.domain.errors import Unavailable
from listings.domain.imports import ImportBatch, ImportKey, ImportRow, Position
from listings.domain.listings import AddStep
from listings.domain.market import IndexResult
from listings.domain.model import ImportedListing, ListingQuery, NewListing
from listings.store.search_sql import MIN_INDEXED_LISTINGS
from listings.store.sqlite import account_index
from listings.store.sqlite.maintenance import migrate
from listings.store.sqlite.store import SqliteStore
from tests.contract.helpers import find_all
from tests.harness import TIMEOUT

T = TypeVar("T")

ALICE = (1, 1)
STAMP = "2026-11-22 10:00:00"


class Alice:
    def __init__(self, runner: asyncio.Runner, path: Path) -> None:
        self.path = path
        self.store = SqliteStore(path)
        self._runner = runner

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def add(self, count: int, content: str = "Two wheels.") -> list[int]:
        """Create `count` listings with the same title and return their ids."""

        async def add() -> list[int]:
            new, added = NewListing(title="Bike", content=content), []
            for start in range(0, count, 500):  # below the queue limit
                batch = range(min(500, count - start))
                added += await asyncio.gather(*(self.store.add_listing(*ALICE, AddStep(new, STAMP)) for _ in batch))
            return [it.listing_id for it in added]

        return self.run(add())

    def import_listings(self, count: int, number: int) -> None:
        """Create `count` listings in one import; `number` distinguishes imports."""
        key = ImportKey(*ALICE, bytes([number]) * 32, "jsonl", new_ids=True)
        imported = ImportedListing(NewListing(title="Bike", content="Wheels"), 0, STAMP, STAMP, None)
        batch = ImportBatch(Position(), Position(1, 1), [ImportRow(None, lambda _: imported)] * count)
        self.run(self.store.begin_import(key, None, 1_000, 0))
        assert self.run(self.store.import_listings(key, batch)) == ["created"] * count

    def retitle(self, listing_id: int, title: str) -> None:
        self.run(self.store.change_listing(listing_id, lambda _: {"title": title}))

    def step(self, count: int) -> IndexResult:
        return self.run(self.store.index_accounts(count))

    def find(self, word: str) -> list[int]:
        query = ListingQuery(words=(word,), status="all", descending=False)
        return [listing.id for listing in self.run(find_all(self.store, ALICE[1], query))]

    def indexed(self) -> tuple[int, int, int]:
        """Return account_state.indexed, and how many listings the column and full-text indexes have."""
        fetch = self._fetch_number
        return (
            fetch("SELECT indexed FROM account_state"),
            fetch("SELECT count(*) FROM listings WHERE indexed"),
            fetch("SELECT count(*) FROM listings_words WHERE listings_words MATCH '\"§1\"'"),
        )

    def _fetch_number(self, statement: str) -> int:
        with apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READONLY) as reader:
            (found,) = reader.execute(statement).fetchall()[0]
        return int(str(found))


@contextmanager
def opened(path: Path) -> Iterator[Alice]:
    migrate.migrate(path)
    with asyncio.Runner() as runner:
        alice = Alice(runner, path)
        runner.run(alice.store.open())
        if runner.run(alice.store.find_account("alice@example.com")) is None:
            runner.run(alice.store.add_account("Alice", "alice@example.com", None, 1_000))
        yield alice
        runner.run(alice.store.close())


@pytest.fixture
def alice(tmp_path: Path) -> Iterator[Alice]:
    with opened(tmp_path / "listings.db") as alice:
        yield alice


def test_the_write_that_makes_an_account_large_indexes_nothing(alice: Alice) -> None:
    alice.add(MIN_INDEXED_LISTINGS - 1)
    assert alice.indexed() == (0, 0, 0)
    assert alice.step(100) == IndexResult(0)
    alice.add(1)
    assert alice.indexed() == (2, 0, 0)
    assert alice.step(100).done == 100
    assert alice.indexed() == (2, 100, 100)


def test_searches_use_the_indexes_after_the_last_step(alice: Alice) -> None:
    ids = alice.add(MIN_INDEXED_LISTINGS)
    steps = [alice.step(300) for _ in range(5)]
    assert [(step.done, step.has_more) for step in steps] == [
        (300, True),
        (300, True),
        (300, True),
        (100, True),
        (0, False),
    ]
    assert alice.indexed() == (1, MIN_INDEXED_LISTINGS, MIN_INDEXED_LISTINGS)
    assert alice.find("bike") == ids


def test_a_full_step_does_not_end_the_indexing(alice: Alice) -> None:
    alice.add(MIN_INDEXED_LISTINGS)
    assert [alice.step(MIN_INDEXED_LISTINGS // 2).done for _ in range(4)] == [
        MIN_INDEXED_LISTINGS // 2,
        MIN_INDEXED_LISTINGS // 2,
        0,
        0,
    ]
    assert alice.indexed() == (1, MIN_INDEXED_LISTINGS, MIN_INDEXED_LISTINGS)


def test_listings_created_meanwhile_are_left_to_the_steps(alice: Alice) -> None:
    ids = alice.add(MIN_INDEXED_LISTINGS)
    alice.step(MIN_INDEXED_LISTINGS)
    ids += alice.add(3)
    assert alice.indexed() == (2, MIN_INDEXED_LISTINGS, MIN_INDEXED_LISTINGS)
    assert alice.find("bike") == ids
    while alice.step(300).has_more:
        pass
    assert alice.indexed() == (1, MIN_INDEXED_LISTINGS + 3, MIN_INDEXED_LISTINGS + 3)
    assert alice.find("bike") == ids
    alice.add(1)
    assert alice.indexed() == (1, MIN_INDEXED_LISTINGS + 4, MIN_INDEXED_LISTINGS + 4)


def test_continuous_writes_do_not_outrun_the_steps(alice: Alice) -> None:
    alice.add(2 * MIN_INDEXED_LISTINGS)
    assert alice.indexed() == (2, 0, 0)
    alice.add(3)
    assert alice.indexed() == (2, 3, 3)
    while alice.step(300).has_more:
        pass
    assert alice.indexed() == (1, 2 * MIN_INDEXED_LISTINGS + 3, 2 * MIN_INDEXED_LISTINGS + 3)


def test_an_import_that_makes_an_account_large_leaves_it_to_the_steps(alice: Alice) -> None:
    alice.import_listings(MIN_INDEXED_LISTINGS - 1, 1)
    assert alice.indexed() == (0, 0, 0)
    alice.import_listings(10, 2)
    assert alice.indexed() == (2, 0, 0)
    alice.import_listings(5, 3)
    assert alice.indexed() == (2, 5, 5)
    while alice.step(300).has_more:
        pass
    alice.import_listings(1, 4)
    assert alice.indexed() == (1, MIN_INDEXED_LISTINGS + 15, MIN_INDEXED_LISTINGS + 15)
    assert len(alice.find("wheels")) == MIN_INDEXED_LISTINGS + 15


def test_a_listing_edited_meanwhile_is_found_by_its_new_words_only(alice: Alice) -> None:
    first, *others = alice.add(MIN_INDEXED_LISTINGS)
    alice.step(10)
    for listing_id in (first, others[-1]):
        alice.retitle(listing_id, "Rimu table")
        alice.retitle(listing_id, "Oak table")
    assert (alice.find("oak"), alice.find("rimu")) == ([first, others[-1]], [])
    while alice.step(300).has_more:
        pass
    assert (alice.find("oak"), alice.find("rimu"), alice.find("bike")) == ([first, others[-1]], [], others[:-1])
    assert alice.indexed() == (1, MIN_INDEXED_LISTINGS, MIN_INDEXED_LISTINGS)


def test_listings_paused_meanwhile_are_indexed(alice: Alice) -> None:
    ids = alice.add(MIN_INDEXED_LISTINGS)
    for number in range(4):
        for listing_id in ids[number * 100 : number * 100 + 5] + ids[-5 * (number + 1) :]:
            alice.run(alice.store.change_listing(listing_id, lambda _: {"is_active": False}))
        alice.step(100)
    while alice.step(300).has_more:
        pass
    assert alice.indexed() == (1, MIN_INDEXED_LISTINGS, MIN_INDEXED_LISTINGS)


def test_long_texts_shorten_a_step(alice: Alice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account_index, "_MAX_STEP_CHARACTERS", 10_000)
    alice.add(MIN_INDEXED_LISTINGS, "word " * 400)
    assert alice.step(300).done == 5
    assert alice.step(2).done == 2


def test_a_restarted_service_continues_indexing(tmp_path: Path) -> None:
    with opened(tmp_path / "listings.db") as alice:
        alice.add(MIN_INDEXED_LISTINGS)
        alice.step(100)
    with opened(tmp_path / "listings.db") as alice:
        assert alice.indexed() == (2, 100, 100)
        while alice.step(300).has_more:
            pass
        assert alice.indexed() == (1, MIN_INDEXED_LISTINGS, MIN_INDEXED_LISTINGS)


def test_two_processes_can_index_the_same_account(alice: Alice) -> None:
    alice.add(MIN_INDEXED_LISTINGS)
    with opened(alice.path) as other:
        while alice.step(70).has_more:
            other.step(30)
        assert other.step(30) == IndexResult(0)
    assert alice.indexed() == (1, MIN_INDEXED_LISTINGS, MIN_INDEXED_LISTINGS)


async def count_found(store: SqliteStore, account_id: int, query: ListingQuery) -> int:
    """Count what a search finds. A busy machine may be too slow to find it on the event loop."""
    async with asyncio.timeout(TIMEOUT), store.read_listings(2, account_id, query) as found:
        return sum([len(piece) async for piece in found.pieces])


def test_accounts_are_indexed_one_after_another(alice: Alice) -> None:
    bob = alice.run(alice.store.add_account("Bob", "bob@example.com", None, 1_000))
    assert bob is not None
    alice.add(MIN_INDEXED_LISTINGS)

    async def add_bobs() -> None:
        for _ in range(2):
            new = NewListing(title="Lamp", content="Brass")
            await asyncio.gather(
                *(alice.store.add_listing(2, bob.id, AddStep(new, STAMP)) for _ in range(MIN_INDEXED_LISTINGS // 2))
            )

    alice.run(add_bobs())
    while alice.step(300).has_more:
        pass
    assert alice.run(alice.store.index_accounts(1)) == IndexResult(0)
    assert alice.run(count_found(alice.store, bob.id, ListingQuery(words=("brass",), limit=5))) == 5
    with apsw.Connection(str(alice.path), flags=apsw.SQLITE_OPEN_READONLY) as reader:
        assert (
            reader.execute("SELECT indexed, listings FROM account_state ORDER BY 1").fetchall()
            == [(1, MIN_INDEXED_LISTINGS)] * 2
        )


def test_steps_of_another_index_do_not_count_as_contention(alice: Alice) -> None:
    alice.add(MIN_INDEXED_LISTINGS)
    steps = []
    for _ in range(3):
        steps += [alice.step(10), alice.run(alice.store.stamp_market(10, b"i" * 16, 1_000.0))]
    assert [step.contended for step in steps[1:]] == [False] * 5
    alice.add(2)
    assert alice.step(10).contended
    assert not alice.step(10).contended


def test_a_failed_step_leaves_its_listings_to_the_next(alice: Alice, monkeypatch: pytest.MonkeyPatch) -> None:
    alice.add(MIN_INDEXED_LISTINGS)
    alice.step(100)

    def fail(*_: object) -> None:
        raise apsw.FullError("disk full")

    with monkeypatch.context() as broken:
        broken.setattr(account_index, "index_words", fail)
        with pytest.raises(Unavailable):
            alice.step(100)
    while alice.step(300).has_more:
        pass
    assert alice.indexed() == (1, MIN_INDEXED_LISTINGS, MIN_INDEXED_LISTINGS)


def test_finding_an_account_to_index_reads_no_other_account(alice: Alice) -> None:
    with apsw.Connection(str(alice.path), flags=apsw.SQLITE_OPEN_READONLY) as reader:
        plan = reader.execute(f"EXPLAIN QUERY PLAN {account_index.NEXT_ACCOUNT}").fetchall()
        steps = reader.execute(
            "EXPLAIN QUERY PLAN " + account_index.NEXT_LISTINGS.replace("$", "?"), (1, 1, 1, 1)
        ).fetchall()
    assert [row[3] for row in plan] == ["SCAN account_state USING COVERING INDEX account_state_indexing"]
    assert not any("SCAN" in str(row[3]) or "TEMP B-TREE" in str(row[3]) for row in steps)
