"""How a search of the market is carried out in the SQLite file: along one index of words, in few steps."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import apsw
import pytest

from listings.contract.imports import ImportBatch, ImportKey, ImportRow, Position
from listings.domain.model import ImportedListing, Listing, MarketEntry, MarketQuery, NewListing
from listings.store import sql
from listings.store.sqlite import market, market_index
from listings.store.sqlite.connections import open_reader
from listings.store.sqlite.maintenance import migrate
from listings.store.sqlite.store import SqliteStore

COUNT = 20_000
STAMP = "2026-11-21 10:00:00"
STATEMENTS = {
    "newest": market.NEWEST,
    "newest of few": market.NEWEST_OF_FEW,
    **{f"by price {way}": statement for way, statement in market.BY_PRICE.items()},
}


def listing(number: int, _: Listing | None = None) -> ImportedListing:
    """The oldest twentieth has prices of its own, the older half a word."""
    age = "older" if number < COUNT // 2 else "newer"
    shares = [f"nth{share}" for share in (2, 3, 500) if number % share == 0]
    new = NewListing(
        title=f"Bike {number}",
        content=" ".join(["Two wheels.", "odd" if number % 2 else "even", age, *shares]),
        type="job" if number < 5 else "product",
        category=f"C{number % 7}",
        region="Rare" if number < 5 else "Common",
        price_cents=70_000 + number if number < COUNT // 20 else number % 1_000,
    )
    return ImportedListing(new, view_count=0, created_at=STAMP, updated_at=STAMP, deleted_at=None)


async def fill(store: SqliteStore) -> None:
    """One account with so many listings, all of them in the market."""
    await store.open()
    await store.add_account("Alice", "alice@example.com", None, 1_000)
    key = ImportKey(1, 1, b"\0" * 32, "csv", True)  # noqa: FBT003 - as the row has it
    await store.begin_import(key, None, 1_000, 0)
    for start in range(0, COUNT, 1000):
        rows = [ImportRow(None, partial(listing, number)) for number in range(start, start + 1000)]
        places = Position(start, start), Position(start + 1000, start + 1000)
        await store.import_listings(key, ImportBatch(*places, rows))
    while (await store.index_market(1_000, b"i" * 16, 1_000.0)).left:
        pass
    await store.close()


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apsw.Connection]:
    path = tmp_path_factory.mktemp("market") / "listings.db"
    migrate.migrate(path)
    asyncio.run(fill(SqliteStore(path)))
    reader = open_reader(path)
    yield reader
    reader.close()


def plan_of(reader: apsw.Connection, statement: str) -> str:
    parameters = max(number for number in range(10) if f"${number}" in statement or not number)
    bound = ["word", *[1] * (parameters - 1)] if "MATCH $1" in statement else [1] * parameters
    cursor = reader.execute(f"EXPLAIN QUERY PLAN {sql.to_sqlite(statement)}", bound)
    return "; ".join(str(row[3]) for row in cursor.fetchall())


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_search_goes_along_an_index_of_words_and_then_by_serial(reader: apsw.Connection, name: str) -> None:
    plan = plan_of(reader, STATEMENTS[name])
    assert "VIRTUAL TABLE INDEX" in plan
    assert "SEARCH market USING INTEGER PRIMARY KEY (rowid=?)" in plan
    assert "SCAN market;" not in plan
    assert ("TEMP B-TREE" in plan) == (name == "newest of few")


def test_what_is_still_to_be_done_is_found_by_its_index(reader: apsw.Connection) -> None:
    assert plan_of(reader, market_index.NEXT_LISTING) == "SEARCH listings USING INDEX listings_unmarketed (id>?)"
    assert plan_of(reader, market_index.NEXT_ACCOUNT) == "SCAN accounts USING INDEX accounts_unmarketed"
    known = plan_of(reader, market_index.GET_KNOWN)
    assert "SCAN" not in known
    assert "SEARCH market USING INDEX sqlite_autoindex_market_1 (listing_id=?)" in known
    of_account = plan_of(reader, market_index.LISTINGS_OF_ACCOUNT)
    assert of_account.startswith("SEARCH market USING INDEX market_account (account_id=? AND state=?)")
    assert "TEMP B-TREE" not in of_account
    closed = plan_of(reader, market.HAS_CLOSED)
    assert "accounts_unmarketed" in closed


class Steps:
    """Counts what SQLite's virtual machine does, in hundreds of instructions."""

    def __init__(self, reader: apsw.Connection) -> None:
        self._reader = reader

    def of(self, query: MarketQuery) -> tuple[int, int]:
        """The hundreds, and how many entries were found."""
        hundreds = 0

        def note() -> bool:
            nonlocal hundreds
            hundreds += 1
            return False

        self._reader.set_progress_handler(note, 100)
        try:
            found = self.find(query)
        finally:
            self._reader.set_progress_handler(None)
        return hundreds, len(found)

    def find(self, query: MarketQuery) -> list[MarketEntry]:
        """What a query finds."""
        return market.search(self._read, query)

    def _read(self, statement: str, values: Any) -> list[Any]:
        return self._reader.execute(sql.to_sqlite(statement), values).fetchall()


FILTERS: list[tuple[dict[str, Any], int]] = [
    ({}, 24),
    ({"words": ("bike",)}, 24),
    ({"words": ("nth2", "nth3")}, 24),
    ({"words": ("odd", "even")}, 0),
    ({"words": ("older",)}, 24),
    ({"words": ("newer", "older")}, 0),
    ({"words": ("older", "nth500")}, 20),
    ({"words": ("nth500", "odd")}, 0),
    ({"words": ("19999",)}, 1),
    ({"words": ("missing",)}, 0),
    ({"type": "job"}, 5),
    ({"region": "Rare", "category": "C1"}, 1),
    ({"type": "product", "region": "Common", "category": "C1", "words": ("nth3",)}, 24),
]


@pytest.mark.parametrize("sort", ["newest", "price", "-price"])
@pytest.mark.parametrize(("filters", "expected"), FILTERS, ids=str)
def test_a_page_takes_few_steps_whatever_is_asked_for(
    reader: apsw.Connection, filters: dict[str, Any], expected: int, sort: Any
) -> None:
    # To look at every listing takes 100,000 instructions and more.
    hundreds, found = Steps(reader).of(MarketQuery(sort=sort, **filters))
    assert found == expected
    assert hundreds <= 20


@pytest.mark.parametrize("sort", ["price", "-price"])
@pytest.mark.parametrize(("least", "most"), [(70_000, 70_999), (3, 3), (5, None), (None, 3), (999_999, None)])
def test_a_range_of_prices_takes_few_steps_in_the_order_of_prices(
    reader: apsw.Connection, sort: Any, least: int | None, most: int | None
) -> None:
    assert Steps(reader).of(MarketQuery(sort=sort, price_min=least, price_max=most))[0] <= 20


@pytest.mark.parametrize(("least", "most", "count"), [(70_000, 70_999, 1_000), (3, 3, 19), (999_999, None, 0)])
def test_the_newest_of_a_range_of_prices_take_steps_for_the_range_alone(
    reader: apsw.Connection, least: int, most: int | None, count: int
) -> None:
    hundreds, found = Steps(reader).of(MarketQuery(price_min=least, price_max=most))
    assert hundreds <= 20 + count // 2
    assert found == min(24, count)


def test_the_newest_of_a_large_range_are_looked_for_among_prices_of_its_size(
    reader: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(market, "_FEW", 0)
    hundreds, found = Steps(reader).of(MarketQuery(price_min=70_000, price_max=70_999))
    assert (found, hundreds <= 200) == (24, True)


def test_the_newest_of_any_range_are_the_same_either_way(
    reader: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(reader)
    ends = (None, 0, 1, 3, 4, 255, 256, 900, 70_000, 70_500, 99_999_999_999, 2**62)
    queries = [
        MarketQuery(price_min=least, price_max=most, words=words, limit=1_000)
        for least, most in product(ends, ends)
        for words in ((), ("nth3",))
    ]
    gathered = [steps.find(query) for query in queries]
    monkeypatch.setattr(market, "_FEW", 0)
    assert [steps.find(query) for query in queries] == gathered


def test_a_step_that_shares_its_transaction_with_others_writes_beside_them(tmp_path: Path) -> None:
    async def scene() -> list[bool]:
        store = SqliteStore(tmp_path / "listings.db")
        await store.open()
        await store.add_account("Alice", "alice@example.com", None, 1_000)
        new = NewListing(title="Lamp", content="Brass")
        for _ in range(4):
            await store.add_listing(1, 1, new, STAMP)
        steps = [await store.index_market(1, b"i" * 16, 1_000.0) for _ in range(2)]
        _, step = await asyncio.gather(store.add_listing(1, 1, new, STAMP), store.index_market(1, b"i" * 16, 1_000.0))
        await store.close()
        return [step.contended for step in (*steps, step)]

    migrate.migrate(tmp_path / "listings.db")
    assert asyncio.run(scene()) == [False, False, True]


def market_of(path: Path, meanwhile: Callable[[SqliteStore], Awaitable[object]], word: str) -> tuple[int, int, int]:
    """What is taken in, and found by a word, in a step that is prepared before something else is written, and after it.

    First how many the step takes in, then how many entries are found; last how many once nothing is left to be done.
    """

    async def scene() -> tuple[int, int, int]:
        store = SqliteStore(path)
        await store.open()
        await store.add_account("Alice", "alice@example.com", None, 1_000)
        await store.add_listing(1, 1, NewListing(title="Lamp", content="Brass"), STAMP)
        step, _ = await asyncio.gather(store.index_market(16, b"i" * 16, 1_000.0), meanwhile(store))
        query = MarketQuery(words=(word,))
        at_once = await store.search_market(query)
        while (await store.index_market(16, b"i" * 16, 1_000.0)).done:
            pass
        found = await store.search_market(query)
        await store.close()
        return step.done, len(at_once), len(found)

    migrate.migrate(path)
    return asyncio.run(scene())


def test_a_listing_that_is_edited_while_a_step_is_prepared_comes_again(tmp_path: Path) -> None:
    def edit(store: SqliteStore) -> Awaitable[object]:
        return store.change_listing(1025, lambda _: {"title": "Clock"})

    assert market_of(tmp_path / "listings.db", edit, "clock") == (0, 0, 1)


def test_the_listings_of_an_account_that_is_disabled_while_a_step_is_prepared_are_not_shown(tmp_path: Path) -> None:
    def disable(store: SqliteStore) -> Awaitable[object]:
        return store.change_account(1, lambda _: {"disabled_at": 1_000})

    assert market_of(tmp_path / "listings.db", disable, "lamp") == (1, 0, 0)


def test_others_have_their_turns_while_a_step_is_prepared(tmp_path: Path) -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def scene() -> int:
        store = SqliteStore(tmp_path / "listings.db")
        await store.open()
        await store.add_account("Alice", "alice@example.com", None, 1_000)
        for _ in range(20):
            await store.add_listing(1, 1, NewListing(title="Lamp", content="Brass"), STAMP)
        counting = asyncio.create_task(count_turns())
        step = await store.index_market(100, b"i" * 16, 1_000.0)
        counting.cancel()
        await store.close()
        return step.done

    migrate.migrate(tmp_path / "listings.db")
    assert asyncio.run(scene()) == 20
    assert turns >= 20
