"""Market searches in the SQLite file use one full-text index and few steps; index steps do not block the loop."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import apsw
import pytest

from listings.contract.imports import ImportBatch, ImportKey, ImportRow, Position
from listings.contract.listings import AddStep
from listings.domain.model import ImportedListing, Listing, MarketEntry, MarketQuery, NewListing
from listings.store import migrations, sql
from listings.store.mapping import Row
from listings.store.market import entries as market_entries
from listings.store.scripts import market_index as scripts
from listings.store.sqlite.connections import open_reader
from listings.store.sqlite.maintenance import migrate
from listings.store.sqlite.market import index as market_index
from listings.store.sqlite.market import search as market
from listings.store.sqlite.script_runner import run_script
from listings.store.sqlite.store import SqliteStore
from tests.store import databases
from tests.store.market import upgrade as market_upgrade

pytestmark = pytest.mark.uncovered

COUNT = 20_000
STAMP = "2026-11-21 10:00:00"
STATEMENTS = {
    **{f"by serial {direction}": statement for direction, statement in market.BY_SERIAL.items()},
    **{f"of few {direction}": statement for direction, statement in market.BY_SERIAL_OF_FEW.items()},
    **{f"by price {direction}": statement for direction, statement in market.BY_PRICE.items()},
    "traits": market.TRAITS,
    "entries": market.GET_ENTRIES,
    "traits in range": market.TRAITS_IN_RANGE,
}


def listing(number: int, _: Listing | None = None) -> ImportedListing:
    """Return a listing. The oldest twentieth has different prices, and each half has a word of its own."""
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
    """Add COUNT listings of one account and index them."""
    await store.open()
    await store.add_account("Alice", "alice@example.com", None, 1_000)
    key = ImportKey(1, 1, b"\0" * 32, "csv", True)  # noqa: FBT003 - the columns of a row
    await store.begin_import(key, None, 1_000, 0)
    for start in range(0, COUNT, 1000):
        rows = [ImportRow(None, partial(listing, number)) for number in range(start, start + 1000)]
        begin, end = Position(start, start), Position(start + 1000, start + 1000)
        await store.import_listings(key, ImportBatch(begin, end, rows))
    while (await store.index_market(1_000, b"i" * 16, 1_000.0)).has_more:
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


def get_plan(reader: apsw.Connection, statement: str) -> str:
    parameters = max(number for number in range(10) if f"${number}" in statement or not number)
    bound = ["word", *[1] * (parameters - 1)] if "MATCH $1" in statement else [1] * parameters
    cursor = reader.execute(f"EXPLAIN QUERY PLAN {sql.to_sqlite(statement)}", bound)
    return "; ".join(str(row[3]) for row in cursor.fetchall())


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_search_uses_a_full_text_index_and_then_the_serial(reader: apsw.Connection, name: str) -> None:
    plan = get_plan(reader, STATEMENTS[name])
    assert "VIRTUAL TABLE INDEX" in plan
    assert "SEARCH market USING INTEGER PRIMARY KEY (rowid=?)" in plan
    assert "SCAN market;" not in plan
    assert ("TEMP B-TREE" in plan) == name.startswith("of few")


def test_unindexed_listings_and_accounts_are_found_by_an_index(reader: apsw.Connection) -> None:
    assert get_plan(reader, market_index.NEXT_LISTING) == "SEARCH listings USING INDEX listings_unmarketed (id>?)"
    assert get_plan(reader, market_index.NEXT_ACCOUNT) == "SCAN accounts USING INDEX accounts_unmarketed"
    assert get_plan(reader, market_index.IS_OUTDATED) == "SEARCH listings USING INTEGER PRIMARY KEY (rowid=?)"
    entry = get_plan(reader, scripts.GET_ENTRY)
    assert entry == "SEARCH market USING INDEX sqlite_autoindex_market_1 (listing_id=?)"
    of_account = get_plan(reader, scripts.LISTINGS_OF_ACCOUNT)
    assert of_account == "SEARCH market USING COVERING INDEX market_account (account_id=? AND state=?)"
    spellings = get_plan(reader, market.SPELLINGS)
    assert "SEARCH market_spellings USING INDEX market_spellings_skeleton (skeleton=?)" in spellings
    disabled = get_plan(reader, market.HAS_NOT_YET_HIDDEN)
    assert "accounts_unmarketed" in disabled


def test_the_listings_of_a_seller_are_found_by_an_index(reader: apsw.Connection) -> None:
    page = "SEARCH market USING INDEX market_account (account_id=? AND state=? AND listing_id<?)"
    assert get_plan(reader, market_entries.PAGE_SELLER) == page
    count = get_plan(reader, market_entries.COUNT_SELLER)
    assert "SEARCH market USING COVERING INDEX market_account (account_id=? AND state=?)" in count


class Steps:
    """Counts the instructions of SQLite's virtual machine, in hundreds."""

    def __init__(self, reader: apsw.Connection) -> None:
        self._reader = reader

    def count(self, query: MarketQuery) -> tuple[int, int]:
        """Return the hundreds of instructions and the number of entries found."""
        return self._count(lambda: self.find(query))

    def count_traits(self, query: MarketQuery, count: int) -> tuple[int, int]:
        """Like `count`, for the traits of at most `count` listings."""
        return self._count(lambda: market.list_traits(self._read, query, market_entries.INDEX_VERSION, count))

    def _count(self, find: Callable[[], list[Any]]) -> tuple[int, int]:
        hundreds = 0

        def count_hundred() -> bool:
            nonlocal hundreds
            hundreds += 1
            return False

        self._reader.set_progress_handler(count_hundred, 100)
        try:
            found = find()
        finally:
            self._reader.set_progress_handler(None)
        return hundreds, len(found)

    def find(self, query: MarketQuery) -> list[MarketEntry]:
        return market.search(self._read, query, market_entries.INDEX_VERSION)

    def _read(self, statement: str, values: Any) -> list[Any]:
        return self._reader.execute(sql.to_sqlite(statement), values).fetchall()


FILTERS: list[tuple[dict[str, Any], int]] = [
    ({}, 24),
    ({"text": "bike"}, 24),
    ({"text": "nth2 nth3"}, 24),
    ({"text": "odd even"}, 0),
    ({"text": "older"}, 24),
    ({"text": "newer older"}, 0),
    ({"text": "older nth500"}, 20),
    ({"text": "nth500 odd"}, 0),
    ({"text": "19999"}, 1),
    ({"text": "missing"}, 0),
    ({"type": "job"}, 5),
    ({"region": "Rare", "category": "C1"}, 1),
    ({"type": "product", "region": "Common", "category": "C1", "text": "nth3"}, 24),
]


@pytest.mark.parametrize("sort", ["newest", "price", "-price"])
@pytest.mark.parametrize(("filters", "expected"), FILTERS, ids=str)
def test_a_page_takes_few_steps_with_any_filter_and_order(
    reader: apsw.Connection, filters: dict[str, Any], expected: int, sort: Any
) -> None:
    # Reading every listing takes at least 100,000 instructions.
    hundreds, found = Steps(reader).count(MarketQuery(sort=sort, **filters))
    assert found == expected
    assert hundreds <= 20


@pytest.mark.parametrize("sort", ["price", "-price"])
@pytest.mark.parametrize(("lowest", "highest"), [(70_000, 70_999), (3, 3), (5, None), (None, 3), (999_999, None)])
def test_a_price_range_sorted_by_price_takes_few_steps(
    reader: apsw.Connection, sort: Any, lowest: int | None, highest: int | None
) -> None:
    assert Steps(reader).count(MarketQuery(sort=sort, price_min=lowest, price_max=highest))[0] <= 20


@pytest.mark.parametrize(
    ("filters", "expected"),
    [({}, 101), ({"text": "nth2"}, 101), ({"text": "nth500", "type": "product"}, 39), ({"price_max": 500}, 101)],
)
def test_the_traits_of_a_limited_number_of_listings_take_few_steps(
    reader: apsw.Connection, filters: dict[str, Any], expected: int
) -> None:
    hundreds, found = Steps(reader).count_traits(MarketQuery(**filters), 101)
    assert (found, hundreds <= 40) == (expected, True)


@pytest.mark.parametrize(("lowest", "highest", "count"), [(70_000, 70_999, 1_000), (3, 3, 19), (999_999, None, 0)])
def test_the_newest_of_a_price_range_take_steps_for_the_range_only(
    reader: apsw.Connection, lowest: int, highest: int | None, count: int
) -> None:
    hundreds, found = Steps(reader).count(MarketQuery(price_min=lowest, price_max=highest))
    assert hundreds <= 20 + count // 2
    assert found == min(24, count)


def test_the_newest_of_a_large_price_range_are_found_by_price_class(
    reader: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(market, "_MAX_GATHERED", 0)
    hundreds, found = Steps(reader).count(MarketQuery(price_min=70_000, price_max=70_999))
    assert (found, hundreds <= 200) == (24, True)


@pytest.mark.slow
def test_both_plans_for_a_price_range_find_the_same_listings(
    reader: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(reader)
    ends = (None, 0, 1, 3, 4, 255, 256, 900, 70_000, 70_500, 99_999_999_999, 2**62)
    queries = [
        MarketQuery(price_min=lowest, price_max=highest, text=text, limit=1_000)
        for lowest, highest in product(ends, ends)
        for text in ("", "nth3")
    ]
    gathered = [steps.find(query) for query in queries]
    monkeypatch.setattr(market, "_MAX_GATHERED", 0)
    assert [steps.find(query) for query in queries] == gathered


def test_a_step_that_shares_a_batch_with_other_writes_is_contended(tmp_path: Path) -> None:
    async def scene() -> list[bool]:
        store = SqliteStore(tmp_path / "listings.db")
        await store.open()
        await store.add_account("Alice", "alice@example.com", None, 1_000)
        new = NewListing(title="Lamp", content="Brass")
        for _ in range(4):
            await store.add_listing(1, 1, AddStep(new, STAMP))
        steps = [await store.index_market(1, b"i" * 16, 1_000.0) for _ in range(2)]
        _, step = await asyncio.gather(
            store.add_listing(1, 1, AddStep(new, STAMP)), store.index_market(1, b"i" * 16, 1_000.0)
        )
        await store.close()
        return [step.contended for step in (*steps, step)]

    migrate.migrate(tmp_path / "listings.db")
    assert asyncio.run(scene()) == [False, False, True]


def write_during_preparation(
    path: Path, write: Callable[[SqliteStore], Awaitable[object]], word: str
) -> tuple[int, int, int]:
    """Write while an index step is being prepared, and search for a word.

    Returns the number of listings the step indexes, of entries found right after it, and of entries found once all
    steps are done.
    """

    async def scene() -> tuple[int, int, int]:
        store = SqliteStore(path)
        await store.open()
        await store.add_account("Alice", "alice@example.com", None, 1_000)
        await store.add_listing(1, 1, AddStep(NewListing(title="Lamp", content="Brass"), STAMP))
        step, _ = await asyncio.gather(store.index_market(16, b"i" * 16, 1_000.0), write(store))
        query = MarketQuery(text=word)
        found_first = await store.search_market(query)
        while (await store.index_market(16, b"i" * 16, 1_000.0)).done:
            pass
        found = await store.search_market(query)
        await store.close()
        return step.done, len(found_first), len(found)

    migrate.migrate(path)
    return asyncio.run(scene())


def test_a_listing_edited_during_preparation_is_prepared_again(tmp_path: Path) -> None:
    def edit(store: SqliteStore) -> Awaitable[object]:
        return store.change_listing(1025, lambda _: {"title": "Clock"})

    assert write_during_preparation(tmp_path / "listings.db", edit, "clock") == (0, 0, 1)


def test_a_listing_of_an_account_being_indexed_gets_its_latest_words(tmp_path: Path) -> None:
    """A step reads all listings of an account that was enabled, so the prepared words may be outdated."""

    async def index_all(store: SqliteStore) -> None:
        while (await store.index_market(16, b"i" * 16, 1_000.0)).done:
            pass

    async def scene() -> int:
        store = SqliteStore(path)
        await store.open()
        await store.add_account("Alice", "alice@example.com", None, 1_000)
        await store.add_listing(1, 1, AddStep(NewListing(title="Lamp", content="Brass"), STAMP))
        await store.change_account(1, lambda _: {"disabled_at": 1_000})
        await index_all(store)
        await store.change_account(1, lambda _: {"disabled_at": None})
        await store.change_listing(1025, lambda _: {"title": "Clock"})
        index = store.index_market(16, b"i" * 16, 1_000.0)
        await asyncio.gather(index, store.change_listing(1025, lambda _: {"title": "Vase"}))
        await index_all(store)
        found = await store.search_market(MarketQuery(text="vase"))
        await store.close()
        return len(found)

    path = tmp_path / "listings.db"
    migrate.migrate(path)
    assert asyncio.run(scene()) == 1


def test_listings_of_an_account_disabled_during_preparation_are_hidden(tmp_path: Path) -> None:
    def disable(store: SqliteStore) -> Awaitable[object]:
        return store.change_account(1, lambda _: {"disabled_at": 1_000})

    assert write_during_preparation(tmp_path / "listings.db", disable, "lamp") == (1, 0, 0)


def test_other_tasks_run_while_a_step_is_prepared(tmp_path: Path) -> None:
    iterations = 0

    async def count_iterations() -> None:
        nonlocal iterations
        while True:
            iterations += 1
            await asyncio.sleep(0)

    async def scene() -> int:
        store = SqliteStore(tmp_path / "listings.db")
        await store.open()
        await store.add_account("Alice", "alice@example.com", None, 1_000)
        for _ in range(20):
            await store.add_listing(1, 1, AddStep(NewListing(title="Lamp", content="Brass"), STAMP))
        counting = asyncio.create_task(count_iterations())
        step = await store.index_market(100, b"i" * 16, 1_000.0)
        counting.cancel()
        await store.close()
        return step.done

    migrate.migrate(tmp_path / "listings.db")
    assert asyncio.run(scene()) == 20
    assert iterations >= 20


def test_older_entries_are_found_by_terms_until_all_are_indexed_again(tmp_path: Path) -> None:
    path = tmp_path / "listings.db"
    migrate.migrate(path, market_upgrade.migrations_before(migrations.shipped_migrations()))
    words = "INSERT INTO {} (rowid, words) VALUES (1, 'hawke s bikes c'), (2, 'lamp c')"
    fill = market_upgrade.FILL.format(true="1", bytes="x'00'", words_column="", first_words="", second_words="")
    databases.change(path, fill, words.format("market_words"), words.format("market_prices"))
    migrate.migrate(path)
    assert asyncio.run(market_upgrade.upgrade(SqliteStore(path))) == market_upgrade.FOUND


@pytest.mark.parametrize(("max_bytes", "found"), [(1, 1), (30, 2), (1_000_000, 3)])
def test_a_step_reads_prepared_listings_until_their_texts_reach_the_limit(
    database: Path, max_bytes: int, found: int
) -> None:
    with closing(open_reader(database)) as connection:

        def read(statement: str, values: Row) -> list[Row]:
            return connection.execute(sql.to_sqlite(statement), values).fetchall()

        batch = asyncio.run(market_index.prepare_next(read, 10, 1))
        assert len(batch.listings) == 3
        engine = market_index.SqliteMarketEngine(batch)
        listings = run_script(connection, engine.read_outdated(10, max_bytes))
    assert listings == batch.listings[:found]
