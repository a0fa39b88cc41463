"""Searches of a large account use an index and few steps, regardless of the number of listings."""

import asyncio
import re
from collections.abc import Generator, Iterator
from itertools import combinations, product
from pathlib import Path
from typing import Any, get_args

import apsw
import pytest

from listings.domain.errors import Unavailable
from listings.domain.listings import AddStep
from listings.domain.model import SORTED_BY, UNINDEXED_SORTS, ListingQuery, NewListing, SortKey
from listings.store import search_sql, sql
from listings.store.sqlite import search as sqlite_search
from listings.store.sqlite import snapshot_reads
from listings.store.sqlite.connections import open_reader
from listings.store.sqlite.maintenance import migrate
from listings.store.sqlite.search import Plan
from listings.store.sqlite.snapshot_reads import SnapshotReads
from listings.store.sqlite.store import SqliteStore

FILTERS: dict[str, Any] = {
    "category": "Rare",
    "region": "Rare",
    "updated_since": "2026-11-21 10:00:00",
    "price_min": 5,
    "price_max": 5,
    "type": "job",
}
ALL_PAIRS = ((True, True, True), (True, False, False), (False, True, False), (False, False, True))
ORDERS: tuple[SortKey, ...] = get_args(SortKey)
COUNT = 10_000
READ_ROWS = "; SCAN found; SEARCH listings USING INTEGER PRIMARY KEY (rowid=?)"
SHARES = {"second": 2, "third": 3, "eleventh": 11}  # one in n listings has the word


def generate_queries() -> Iterator[ListingQuery]:
    filters = [names for size in range(3) for names in combinations(FILTERS, size)]
    for status, names, sort, (descending, has_cursor, has_limit) in product(
        ("active", "inactive", "deleted", "all"), filters, ORDERS, ALL_PAIRS
    ):
        yield ListingQuery(
            status=status,  # type: ignore[arg-type]  # one of the literals
            sort=sort,
            descending=descending,
            limit=100 if has_limit else None,
            after=(1, 1) if has_cursor else None,
            **{name: FILTERS[name] for name in names},
        )


def list_indexes(query: ListingQuery) -> list[str]:
    return [search_sql.find_scan_index(query), *search_sql.list_collect_indexes(query)]


def explain(reader: apsw.Connection, query: ListingQuery, **plan: Any) -> str:
    """Return SQLite's plan of a search, without the rows, which are read by their sorted ids."""
    explained = get_plan(reader, sqlite_search.build_page((1, 1), query, Plan(**plan)))
    ids = explained.removeprefix("CO-ROUTINE found; ").removesuffix(READ_ROWS)
    assert (explained == ids) == (query.sort == "id" and not plan.get("scans_texts"))
    return ids


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> apsw.Connection:
    """A database with one large account: its listings are common bikes, except for a few rare ones."""
    path = tmp_path_factory.mktemp("search") / "listings.db"
    migrate.migrate(path)
    asyncio.run(fill(path))
    reader = open_reader(path)
    sqlite_search.prepare(reader)
    return reader


async def fill(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    account = await store.add_account("Alice", "alice@example.com", None, 1_000)
    assert account is not None
    for at in range(0, COUNT, 500):
        await asyncio.gather(
            *(
                store.add_listing(1, account.id, AddStep(build_listing(n), build_timestamp(n)))
                for n in range(at, at + 500)
            )
        )
    for number in range(1, 6):
        await store.change_listing(1024 * (number + 100) + 1, lambda _: {"is_active": False})
        await store.change_listing(1024 * (number + 200) + 1, lambda _: {"is_active": False, "deleted_at": 5})
    while (await store.index_accounts(1_000)).has_more:
        pass
    await store.close()


def build_listing(number: int) -> NewListing:
    rare = "Rare" if number < 5 else "Common"
    return NewListing(
        title=f"{rare} bike {number}",
        content=" ".join(["Two wheels.", *(word for word, share in SHARES.items() if number % share == 0)]),
        type="job" if number < 5 else "product",
        category=rare,
        region=rare,
        price_cents=number,
        external_id=f"sku-{number}",
    )


def build_timestamp(number: int) -> str:
    return f"2026-11-{21 if number < 5 else 20} 10:00:00"


def get_plan(reader: apsw.Connection, statement: search_sql.Statement) -> str:
    cursor = reader.execute(f"EXPLAIN QUERY PLAN {sql.to_sqlite(statement.text)}", statement.values)
    return "; ".join(str(row[3]) for row in cursor.fetchall())


@pytest.mark.uncovered
def test_every_search_of_a_large_account_uses_the_index_it_names(reader: apsw.Connection) -> None:
    for query in generate_queries():
        for index in list_indexes(query):
            plan = explain(reader, query, index=index)
            assert plan.startswith(f"SEARCH listings USING INDEX {index} (bucket=? AND account_id=?"), (query, plan)


@pytest.mark.decision("G43")
def test_an_external_id_is_found_by_all_columns_of_its_index(reader: apsw.Connection) -> None:
    for statement in (sql.FIND_EXTERNAL_ID, sql.GET_LISTING_BY_EXTERNAL_ID):
        columns = "(bucket=? AND account_id=? AND external_id=? AND <expr>=?)"
        assert get_plan(reader, search_sql.Statement(statement, (1, 1, "a"))).endswith(
            f"INDEX listings_external_id {columns}"
        )


def test_an_index_scan_does_not_sort(reader: apsw.Connection) -> None:
    for query in generate_queries():
        assert "TEMP B-TREE" not in explain(reader, query, index=search_sql.find_scan_index(query)), query


def test_a_small_account_is_scanned_by_status_only(reader: apsw.Connection) -> None:
    for query in generate_queries():
        plan = explain(reader, query)
        assert "SCAN" not in plan, (query, plan)
        assert "listings_by" not in plan, (query, plan)


def test_every_count_uses_its_index(reader: apsw.Connection) -> None:
    for query in generate_queries():
        for index in search_sql.list_collect_indexes(query):
            plan = get_plan(reader, search_sql.build_count((1, 1), query, index))
            assert f"INDEX {index} (bucket=? AND account_id=?" in plan, (query, plan)


def test_ids_are_looked_up_one_by_one(reader: apsw.Connection) -> None:
    states = ("active", "inactive", "deleted", "all")
    for status, sort, after, scans_texts in product(states, SORTED_BY, (None, (1, 1)), (False, True)):
        options: Any = {"status": status, "sort": sort, "type": "job", "words": ("bike",), "after": after}
        query = ListingQuery(**options, limit=5)
        plan = explain(reader, query, ids=(1, 2), scans_texts=scans_texts)
        searches = re.findall(r"SEARCH listings [^;]*", plan)
        assert len(searches) == (2 if status == "all" else 1)
        assert all(re.search(r"\b(row)?id=\?", search) for search in searches), plan


def test_every_total_uses_its_index(reader: apsw.Connection) -> None:
    for query in generate_queries():
        for index in list_indexes(query):
            plan = get_plan(reader, sqlite_search.build_total((1, 1), query, Plan(index)))
            assert f"SEARCH listings USING INDEX {index} (bucket=? AND account_id=?" in plan, (query, plan)
        plan = get_plan(reader, sqlite_search.build_total((1, 1), query, Plan(match='"a"')))
        assert "SCAN listings_words VIRTUAL TABLE INDEX 0:M1; SEARCH listings USING INTEGER PRIMARY KEY" in plan


class Steps:
    """Counts the instructions of SQLite's virtual machine, in thousands."""

    def __init__(self, reader: apsw.Connection) -> None:
        self._reader = reader

    def count(self, query: ListingQuery) -> tuple[int, int]:
        """Return the thousands of instructions of a search that counts, and the number of listings found."""
        thousands = 0

        def count_thousand() -> bool:
            nonlocal thousands
            thousands += 1
            return False

        self._reader.set_progress_handler(count_thousand, 1_000)
        try:
            found, _ = sqlite_search.find_and_count(self._read, self._iterate, (1, 1), query)
        finally:
            self._reader.set_progress_handler(None)
        return thousands, len(found)

    def _read(self, statement: str, values: Any) -> list[Any]:
        return self._reader.execute(sql.to_sqlite(statement), values).fetchall()

    def _iterate(self, statement: str, values: Any) -> Generator[Any]:
        yield from self._reader.execute(sql.to_sqlite(statement), values)


SINGLE = [
    *({name: value} for name, value in FILTERS.items()),
    *({"status": status} for status in ("active", "inactive", "deleted", "all")),
    {"category": "Common"},
    {"type": "product"},
    {"price_min": 0},
    {"updated_since": "2026-11-20 10:00:00"},
    {"external_ids": tuple(f"sku-{number}" for number in range(5))},
    {"words": ("rare",)},
    {"words": ("bike",)},
    *({"words": (word,)} for word in SHARES),
    {"words": ("second", "third")},
]


@pytest.mark.decision("G17")
@pytest.mark.parametrize("filters", SINGLE, ids=str)
def test_a_page_takes_few_steps_with_any_filter_and_order(reader: apsw.Connection, filters: dict[str, Any]) -> None:
    # Scanning all listings takes at least 200,000 instructions. Up to 5,000 ids may be found by their words. Those of a
    # status are counted exactly, with four instructions each.
    for sort, descending in product(ORDERS, (True, False)):
        query = ListingQuery(sort=sort, descending=descending, limit=100, **filters)
        steps, found = Steps(reader).count(query)
        assert steps <= (120 if "words" in filters else 90 if query.is_counted_exactly else 60), query
        assert found in {5, 6, 100}, query


def test_frequent_words_are_found_by_the_index_if_all_matches_are_sorted(reader: apsw.Connection) -> None:
    for sort in UNINDEXED_SORTS:
        query = ListingQuery(status="all", sort=sort, descending=False, words=("bike",), limit=3)  # type: ignore[arg-type]  # one of them
        steps, found = Steps(reader).count(query)
        assert steps <= 1_500
        assert found == 3


def test_a_sort_by_names_pauses_for_the_event_loop(reader: apsw.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = list[float]()
    monkeypatch.setattr(snapshot_reads, "sleep", pauses.append)

    async def read(query: ListingQuery) -> None:
        reads = SnapshotReads(Path(reader.filename), lambda error: Unavailable(str(error)))
        async with reads.read((1, 1), query) as found:
            assert [one.title async for piece in found.pieces for one in piece] == ["Common bike 10"]
        await reads.close()

    asyncio.run(read(ListingQuery(sort="title", descending=False, limit=1)))
    assert pauses == []
    asyncio.run(read(ListingQuery(sort="folded_title", descending=False, limit=1)))
    assert len(pauses) > COUNT / 100
    assert max(pauses) <= 0.001
