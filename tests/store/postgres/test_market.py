"""Query plans of market searches in PostgreSQL, and the rows that they read."""

import asyncio
import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import asyncpg
import pytest
from msgspec.structs import astuple, replace

from listings.domain.model import MarketEntry, MarketQuery
from listings.store import migrations, sql
from listings.store.market import entries as market_entries
from listings.store.postgres import migrate
from listings.store.postgres.market import index as market_index
from listings.store.postgres.market import search as market
from listings.store.postgres.pool import connect
from listings.store.postgres.store import PostgresStore
from listings.store.scripts import market_index as scripts
from tests.postgres_server import PostgresServer
from tests.store.market import upgrade as market_upgrade
from tests.store.postgres.test_statements import LIMITS, Plans
from tests.store.sqlite.test_market import COUNT, listing

STATEMENTS = {
    **{f"scan {sort}": statement for sort, statement in market.SCAN.items()},
    **{f"has more {sort}": statement for sort, statement in market.HAS_MORE.items()},
    **{f"by price {sort}": statement for sort, statement in market.BY_PRICE.items()},
    **{f"free {sort}": statement for sort, statement in market.FREE.items()},
    **{f"by terms {sort}": statement for sort, statement in market.GATHER_BY_TERMS.items()},
    **{f"in range {sort}": statement for sort, statement in market.GATHER_BY_PRICE.items()},
    **{f"by serial {sort}": statement for sort, statement in market.BY_SERIAL.items()},
    **{f"by serial in range {sort}": statement for sort, statement in market.BY_SERIAL_IN_RANGE.items()},
    **{
        name: value
        for module in (market, market_index, market_entries, scripts)
        for name, value in vars(module).items()
        if name.strip("_").isupper()
        and isinstance(value, str)
        and re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)", value)
        and "{}" not in value
    },
}


async def fill(url: str) -> None:
    """Create an account with the same listings as in the SQLite tests, all of them indexed for the market."""
    store = PostgresStore(url, LIMITS)
    await store.open()
    await store.add_account("Alice", "alice@example.com", None, 1_000)
    rows = []
    for number in range(COUNT):
        new, *past = astuple(listing(number))
        rows.append((1024 * (number + 1) + 1, 1, 1, *astuple(new), *past, False, None, None, None))
    connection: asyncpg.Connection[asyncpg.Record] = await connect(url, 60)
    await connection.executemany(sql.ADD_LISTING, rows)
    await connection.close()
    while (await store.index_market(1_000, b"i" * 16, 1_000.0)).has_more:
        pass
    await store.close()


@pytest.fixture(scope="module")
def large(postgres: PostgresServer) -> Iterator[str]:
    """An analysed database with one account, whose 20,000 listings are indexed for the market."""
    with postgres.database(altered=True) as url:
        asyncio.run(fill(url))
        name = url.rpartition("/")[2].partition("?")[0]
        postgres.execute("VACUUM ANALYZE", name)
        yield url


@pytest.fixture(scope="module")
def plans(large: str) -> Iterator[Plans]:
    """The plans of searches."""
    plans = Plans(large, searching=True)
    yield plans
    plans.close()


@pytest.fixture(scope="module")
def default_plans(large: str) -> Iterator[Plans]:
    """The plans of all other statements."""
    plans = Plans(large)
    yield plans
    plans.close()


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_statement_scans_a_whole_table(name: str, plans: Plans, default_plans: Plans) -> None:
    assert "Seq Scan" not in plans.of(STATEMENTS[name])
    assert "Seq Scan" not in default_plans.of(STATEMENTS[name])


@pytest.mark.parametrize("sort", ["newest", "oldest", "price", "-price"])
def test_a_scan_follows_the_index_of_the_order(sort: Any, plans: Plans) -> None:
    index = "market_price" if "price" in sort else "(market_newest|market_pkey)"
    for statement in (market.SCAN[sort], market.HAS_MORE[sort]):
        plan = plans.of(statement)
        assert re.search(rf"Index (Only )?Scan( Backward)? using {index} on market", plan), plan
        assert not re.search(r"Sort\b(?! Key)|Bitmap", plan), plan


PART, PRICE = r"ARRAY\[\(serial >> 13\)\] @> ARRAY\[part", r"ARRAY\[width_bucket.*\] (@>|&&) "
GATHERINGS = {
    **{f"by serial {sort}": PART for sort in market.BY_SERIAL},
    **{f"by serial in range {sort}": f"{PART}.*{PRICE}" for sort in market.BY_SERIAL_IN_RANGE},
    "TRAITS": PART,
    "TRAITS_IN_RANGE": f"{PART}.*{PRICE}",
    **{f"by price {sort}": PRICE for sort in market.BY_PRICE},
    **{f"free {sort}": f"{PART}.*{PRICE}" for sort in market.FREE},
}


@pytest.mark.parametrize("name", GATHERINGS)
def test_parts_are_searched_by_position_and_terms(name: str, plans: Plans) -> None:
    # The position comes first, so that the scan ends where the part ends in the index.
    outer, _, inner = plans.of(STATEMENTS[name]).partition("Function Scan on generate_series")
    assert outer.count("->  Nested Loop\n") == 1
    assert "Sort" not in outer
    assert "Bitmap Index Scan on market_words" in inner
    assert re.search(rf"Index Cond: \(.*{GATHERINGS[name]}.* AND \(words @> ", inner)
    assert not re.search("BitmapAnd|BitmapOr", inner)


@pytest.mark.parametrize("name", [f"by terms {sort}" for sort in market.GATHER_BY_TERMS])
def test_rare_listings_are_gathered_by_their_terms(name: str, plans: Plans) -> None:
    plan = plans.of(STATEMENTS[name])
    assert re.search(r"Bitmap Index Scan on market_words\n *Index Cond: \(words @> \$1\)", plan)


def test_the_sample_searches_parts_by_position_and_terms(plans: Plans) -> None:
    plan = plans.of(market.SAMPLE)
    assert re.search(rf"Bitmap Index Scan on market_words\n *Index Cond: \(.*{PART}.*words @> \$1", plan)
    assert "Sort" not in plan


def test_a_small_price_range_is_searched_by_price(plans: Plans) -> None:
    for statement in (*market.GATHER_BY_PRICE.values(), market.TRAITS_BY_PRICE):
        assert re.search("Scan (using|on) market_price", plans.of(statement))
    assert re.search("Scan using market_price", plans.of(market.COUNT_BY_PRICE))


def test_pending_work_is_found_by_an_index(default_plans: Plans) -> None:
    assert "listings_unmarketed" in default_plans.of(market_index.NEXT_LISTINGS)
    assert "accounts_unmarketed" in default_plans.of(market_index.NEXT_ACCOUNT)
    has_work = default_plans.of(market_index.HAS_WORK)
    assert "listings_unmarketed" in has_work
    assert "accounts_unmarketed" in has_work


class Reader:
    """Runs the statements of a search."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetch(self, statement: str, *values: object) -> list[Any]:
        found: list[Any] = await self._connection.fetch(statement, *values)
        return found

    async def fetch_one(self, statement: str, *values: object) -> Any:
        return (await self.fetch(statement, *values))[0]


class RowCounter(Reader):
    """Counts the rows that the nodes of a search's plans have read. This takes twice as long."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self.count = 0

    async def fetch(self, statement: str, *values: object) -> list[Any]:
        (explained,) = await self._connection.fetchrow(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", *values)
        self._count(json.loads(explained)[0]["Plan"])
        return await super().fetch(statement, *values)

    def _count(self, plan: dict[str, Any]) -> None:
        loops = plan["Actual Loops"]
        self.count += (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * loops
        for part in plan.get("Plans", ()):
            self._count(part)


async def count_rows(url: str, query: MarketQuery) -> tuple[int, int]:
    """Return how many rows a search reads, and how many it finds."""
    connection: asyncpg.Connection[asyncpg.Record] = await connect(url, 60, searching=True)
    rows: Any = RowCounter(connection)
    found = await market.search(rows, query, market_entries.INDEX_VERSION)
    await connection.close()
    return rows.count, len(found)


@pytest.mark.parametrize("sort", ["newest", "price", "-price"])
@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, 24),
        ({"text": "bike"}, 24),
        ({"text": "nth2 nth3"}, 24),
        ({"text": "19999"}, 1),
        ({"text": "nth500 odd"}, 0),
        ({"text": "older"}, 24),
        ({"text": "newer"}, 24),
        ({"text": "newer older"}, 0),
        ({"text": "odd even"}, 0),
        ({"type": "job"}, 5),
        ({"region": "Rare", "category": "C1"}, 1),
        ({"price_min": 70_000, "price_max": 70_999}, 24),
        ({"price_min": 70_000, "price_max": 70_999, "text": "nth3"}, 24),
        ({"price_min": 3, "price_max": 3}, 19),
        ({"price_min": 999_999}, 0),
    ],
    ids=str,
)
def test_a_page_reads_few_rows_for_any_filter(large: str, filters: dict[str, Any], expected: int, sort: Any) -> None:
    # A scan of all listings would read 20,000 rows in each of at least three nodes of the plan.
    rows, found = asyncio.run(count_rows(large, MarketQuery(sort=sort, **filters)))
    assert found == expected
    assert rows <= 22_000


@pytest.mark.parametrize(
    ("filters", "expected"),
    [({}, 101), ({"text": "nth2"}, 101), ({"text": "nth500", "type": "product"}, 39), ({"price_max": 500}, 101)],
    ids=str,
)
def test_the_traits_of_a_limited_number_of_listings_read_few_rows(
    large: str, filters: dict[str, Any], expected: int
) -> None:
    async def count() -> tuple[int, int]:
        connection: asyncpg.Connection[asyncpg.Record] = await connect(large, 60, searching=True)
        rows: Any = RowCounter(connection)
        found = await market.list_traits(rows, MarketQuery(**filters), market_entries.INDEX_VERSION, 101)
        await connection.close()
        return len(found), rows.count

    found, rows = asyncio.run(count())
    assert found == expected
    assert rows <= 22_000


@cache
def stored() -> list[tuple[int, int, set[str]]]:
    """Return the price, the serial and the words of every listing."""
    news = [listing(number).new for number in range(COUNT)]
    return [
        (new.price_cents, serial, set(f"{new.title} {new.content}".split())) for serial, new in enumerate(news, start=1)
    ]


def expected(words: set[str], query: MarketQuery) -> list[tuple[int, int]]:
    """Return the prices and serials of all listings that a search should find."""
    found = [
        (price, serial)
        for price, serial, stored_words in stored()
        if (query.price_min or 0) <= price <= (price if query.price_max is None else query.price_max)
        and words <= stored_words
    ]
    if query.sort in {"newest", "oldest"}:
        return sorted(found, key=lambda entry: entry[1], reverse=query.sort == "newest")
    return sorted(found, reverse=query.sort == "-price")


@pytest.mark.parametrize("sort", ["newest", "oldest", "price", "-price"])
@pytest.mark.parametrize("prices", [(None, None), (0, 0), (0, 70_500), (500, None), (70_000, 70_400)], ids=str)
@pytest.mark.parametrize("text", ["nth500", "older nth500", "newer older"])
def test_the_pages_contain_every_listing_once_and_in_order(
    large: str, text: str, prices: tuple[int | None, int | None], sort: Any
) -> None:
    query = MarketQuery(text=text, price_min=prices[0], price_max=prices[1], sort=sort, limit=7)

    async def read_all() -> list[tuple[int, int]]:
        connection: asyncpg.Connection[asyncpg.Record] = await connect(large, 60, searching=True)
        rows: Any = Reader(connection)
        found: list[tuple[int, int]] = []
        while page := await market.search(
            rows, replace(query, after=found[-1] if found else None), market_entries.INDEX_VERSION
        ):
            found += [MarketEntry(*row).cursor for row in page]
        await connection.close()
        return found

    assert asyncio.run(read_all()) == expected(set(text.split()), query)


@pytest.mark.parametrize("sort", ["newest", "price", "-price"])
@pytest.mark.parametrize("after", [(0, 1), (0, 12_001), (499, 5_000), (70_999, 1_000), (10**12, 2**62)], ids=str)
def test_a_page_starts_after_any_cursor(large: str, after: tuple[int, int], sort: Any) -> None:
    query = MarketQuery(text="older nth3", sort=sort, after=after)

    async def read() -> list[tuple[int, int]]:
        connection: asyncpg.Connection[asyncpg.Record] = await connect(large, 60, searching=True)
        rows: Any = Reader(connection)
        found = await market.search(rows, query, market_entries.INDEX_VERSION)
        await connection.close()
        return [MarketEntry(*row).cursor for row in found]

    every = expected({"older", "nth3"}, query)
    if sort == "newest":
        following = [entry for entry in every if entry[1] < after[1]]
    else:
        following = [entry for entry in every if (entry > after if sort == "price" else entry < after)]
    assert asyncio.run(read()) == following[:24]


def test_older_entries_are_found_by_terms_until_all_are_indexed_again(postgres: PostgresServer) -> None:
    shipped = migrations.shipped_migrations("postgres")
    fill = market_upgrade.FILL.format(
        true="true",
        bytes="'x'",
        words_column=", words",
        first_words=", '{hawke,s,bikes,c}'",
        second_words=", '{lamp,c}'",
    )
    with postgres.bare_database() as url:
        asyncio.run(migrate.migrate(url, market_upgrade.migrations_before(shipped)))
        for statement in fill.split(";\n")[:-1]:
            postgres.execute(statement, url.rpartition("/")[2].partition("?")[0])
        asyncio.run(migrate.migrate(url, shipped))
        assert asyncio.run(market_upgrade.upgrade(PostgresStore(url, LIMITS))) == market_upgrade.FOUND
