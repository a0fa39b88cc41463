"""Statements on PostgreSQL use the intended indexes, and the create function does the same as the statements."""

import asyncio
import inspect
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations, product
from typing import Any, get_args

import asyncpg
import msgspec
import pytest

from listings.domain.account_limits import NO_LIMITS
from listings.domain.history import Actor
from listings.domain.imports import ImportBatch, ImportKey, ImportRow, Position
from listings.domain.listings import AddStep, IdempotencyRecord
from listings.domain.model import ImportedListing, Listing, ListingQuery, NewListing, SortKey, Status
from listings.store import change_groups, change_sql, member_sql, pictures, report, retention, search_sql, sql
from listings.store.market import stamps
from listings.store.market import store as market
from listings.store.migrations import shipped_migrations
from listings.store.postgres import index_steps, writes
from listings.store.postgres import search as postgres_search
from listings.store.postgres import store as store_module
from listings.store.postgres.pool import Pool, PoolLimits, connect
from listings.store.postgres.store import PostgresStore
from listings.store.query import Query, Row
from listings.store.reverts import sql as revert_sql
from tests.postgres_server import PostgresServer

LIMITS = PoolLimits(sessions=2, seconds=60)
ENGINE = writes.PostgresEngine(NO_LIMITS)
COUNT = 10_000
_ALL = (
    vars(sql)
    | vars(change_sql)
    | vars(revert_sql)
    | vars(report)
    | vars(retention)
    | vars(member_sql)
    | vars(pictures)
    | vars(writes)
    | vars(postgres_search)
    | vars(store_module)
)
STATEMENTS = {
    name: value
    for name, value in _ALL.items()
    if name.strip("_").isupper()
    and isinstance(value, str)
    and re.match(r"[\s(]*(SELECT|INSERT|UPDATE|DELETE)\b", value)
} | {
    "change_listing": sql.build_listing_update(("title", "price_cents", "is_active")),
    "change_listings": sql.build_listing_updates(("title", "price_cents", "is_active", "latitude", "deleted_at")),
    "change_account": sql.build_account_update(("name", "plan_expires_at")),
    **{f"ERASE_ROWS[{number}]": statement for number, statement in enumerate(member_sql.ERASE_ROWS)},
}
HOT = (
    *("listings", "listing_words", "account_state", "listing_ids", "idempotency", "imports", "views"),
    *("activity", "changes", "reverts", "revert_conflicts", "change_groups", "usage_hours", "refusals"),
)
INDEXING = {
    "HAS_WORK": index_steps.HAS_WORK,
    "NEXT_DIRTY": stamps.NEXT_DIRTY,
    "DIRTY_LISTINGS": stamps.DIRTY_LISTINGS,
    "MARK": stamps.MARK,
}
MULTI_SHARD = {
    "PURGE_IDEMPOTENCY_RECORDS": "selects by age, once a minute and outside of requests",
    "PURGE_VIEWS": "selects by age, too",
    "LIST_EDIT_REVISIONS": "is sent once for all accounts whose clients wait, outside of requests",
    "LIST_RUNNING_REVERTS": "is sent once a second by each process, outside of requests",
    "READ_BACKLOG": "is sent a few times a minute by a process with metrics",
    "LIST_LARGE_ACCOUNTS": "is sent every ten seconds by each process, outside of requests",
    "HAS_WORK": "is sent by the process that numbers changes, outside of requests",
    "NEXT_DIRTY": "is sent by that process, too",
    "DIRTY_LISTINGS": "is sent by that process, too",
    "_READ_LISTING": "is not sent with Citus",
}
FILTERS: dict[str, Any] = {
    "category": "Rare",
    "region": "Rare",
    "updated_since": "2026-11-21 10:00:00",
    "price_min": 5,
    "price_max": 5,
    "type": "job",
}


def listing(number: int) -> ImportedListing:
    rare = "Rare" if number < 5 else "Common"
    stamp = f"2026-11-{21 if number < 5 else 20} 10:00:00"
    new = NewListing(
        title=f"{rare} bike {number}",
        content="Two wheels.",
        type="job" if number < 5 else "product",
        category=rare,
        region=rare,
        price_cents=number,
        is_active=number % 5 > 0,
        external_id=None if number % 10 else f"sku-{number}",
    )
    deleted = 5 if number % 10 == 0 else None
    return ImportedListing(new, view_count=0, created_at=stamp, updated_at=stamp, deleted_at=deleted)


def decide(number: int, _: Listing | None) -> ImportedListing:
    return listing(number)


async def fill(url: str, count: int) -> None:
    """Create alice's account in bucket 1 with `count` listings."""
    store = PostgresStore(url, LIMITS)
    await store.open()
    await store.add_account("Alice", "alice@example.com", None, 1_000)
    key = ImportKey(1, 1, b"\0" * 32, "csv", True)  # noqa: FBT003 - a field of the key
    await store.begin_import(key, None, 1_000, 0)
    for start in range(0, count, 1000):
        rows = [ImportRow(None, partial(decide, number)) for number in range(start, start + 1000)]
        await store.import_listings(
            key, ImportBatch(Position(start, start), Position(start + 1000, start + 1000), rows)
        )
    await store.close()


_NEIGHBOUR = """
INSERT INTO accounts (id, bucket, name, email, created_at) VALUES (1025, 1, 'Bob', 'bob@example.com', 1000);
INSERT INTO account_state (bucket, account_id, revision, listings) VALUES (1, 1025, 0, 500);
INSERT INTO api_keys (account_id, digest, hint, name, created_at)
SELECT 1, sha256(CAST(CAST(number AS text) AS bytea)), 'h', 'n', 0 FROM generate_series(1, 500) AS numbers (number);
INSERT INTO listings (
    id, bucket, account_id, title, content, type, category, images, price_cents, price_type, location, region,
    district, is_active, created_at, updated_at)
SELECT id + 1024 * 1000000, bucket, 1025, title, content, type, category, images, price_cents, price_type, location,
    region, district, is_active, created_at, updated_at FROM listings LIMIT 500;
INSERT INTO accounts (id, bucket, name, email, created_at)
SELECT 1 + 1024 * number, 1, 'N', 'n' || number, 1000 FROM generate_series(2, 1000) AS numbers (number);
INSERT INTO account_state (bucket, account_id, revision, listings)
SELECT 1, 1 + 1024 * number, 0, 0 FROM generate_series(2, 1000) AS numbers (number);
INSERT INTO sessions (digest, account_id, handle, csrf_secret, created_at, seen_at, confirmed_at, agent)
SELECT sha256(CAST(CAST(id AS text) AS bytea)), id, 'h', 'c', id, id, id, '' FROM accounts;
INSERT INTO invitations (account_id, digest, created_at, expires_at)
SELECT id, sha256(CAST(CAST(id AS text) AS bytea)), id, id FROM accounts;
INSERT INTO activity (bucket, account_id, revision, number, moment, author, kind, subject, detail)
SELECT 1, id, number, 0, number * 1000 + id, 1, 'x', 0, '' FROM accounts, generate_series(1, 50) AS numbers (number);
INSERT INTO changes (
    bucket, account_id, edit_revision, number, listing_id, moment, author, kind, revision, last_serial, fields, detail)
SELECT 1, id, number, 0, 1025, number * 1000 + id, 1, 'updated', number, 1, '[]', '[]'
FROM accounts, generate_series(1, 50) AS numbers (number);
INSERT INTO usage_hours (bucket, account_id, hour, key_id, status, count)
SELECT 1, id, number, 1, 200, 1 FROM accounts, generate_series(1, 50) AS numbers (number);
INSERT INTO refusals (bucket, account_id, moment, request_id, key_id, code, status, method, path)
SELECT 1, id, number, 'r', 1, 'x', 400, 'GET', '/' FROM accounts, generate_series(1, 50) AS numbers (number);
INSERT INTO views (day, bucket, listing_id, visitor)
SELECT number % 4, 1, number, substr(sha256('v'), 1, 16) FROM generate_series(1, 50000) AS numbers (number);
ANALYZE
"""


@pytest.fixture(scope="module")
def large(postgres: PostgresServer) -> Iterator[str]:
    """An analysed database with a large account, a small one and a thousand without listings in the same bucket."""
    with postgres.database(altered=True) as url:  # new, because dead rows of other tests would change the plans
        asyncio.run(fill(url, COUNT))
        for command in _NEIGHBOUR.split(";"):
            postgres.execute(command, url.rpartition("/")[2].partition("?")[0])
        yield url


class Plans:
    """Explains statements with generic plans, like those of prepared statements."""

    def __init__(self, url: str, *, searching: bool = False) -> None:
        self._runner = asyncio.Runner()
        self._connection = self._runner.run(connect(url, 60, searching=searching))
        self._run("SET plan_cache_mode = force_generic_plan")

    def _run(self, command: str) -> list[Any]:
        return self._runner.run(self._connection.fetch(command))

    def of(self, statement: str) -> str:
        parameters = len(set(re.findall(r"\$\d+", statement)))
        self._run(f"PREPARE one AS {statement}")
        values = ", ".join(["NULL"] * parameters)
        rows = self._run(f"EXPLAIN (COSTS OFF) EXECUTE one({values})" if parameters else "EXPLAIN EXECUTE one")
        self._run("DEALLOCATE one")
        return "\n".join(row[0] for row in rows)

    def list_conditions(self, statement: str) -> Iterator[tuple[str, str]]:
        """Return each table that a statement reads, with the conditions by which the server finds its rows."""
        for node in self.of(statement).split("->"):
            if table := re.search(r"Scan.* on (\w+)", node):
                yield table[1], node

    def close(self) -> None:
        self._runner.run(self._connection.close())
        self._runner.close()


@pytest.fixture(scope="module")
def plans(large: str) -> Iterator[Plans]:
    plans = Plans(large)
    yield plans
    plans.close()


@pytest.fixture(scope="module")
def search_plans(large: str) -> Iterator[Plans]:
    plans = Plans(large, searching=True)
    yield plans
    plans.close()


def test_every_statement_can_be_prepared(large: str) -> None:
    async def prepare() -> dict[str, int]:
        connection: asyncpg.Connection[asyncpg.Record] = await connect(large, 60)
        counts = {
            name: len((await connection.prepare(str(statement))).get_parameters())
            for name, statement in STATEMENTS.items()
        }
        await connection.close()
        return counts

    for name, count in asyncio.run(prepare()).items():
        numbers = {int(number) for number in re.findall(r"\$(\d+)", STATEMENTS[name])}
        assert count == len(numbers) == max(numbers, default=0), name


def find_hot_parts(statement: str) -> list[str]:
    """Return each SELECT, INSERT, UPDATE and DELETE of a statement that reads or writes a hot table."""
    parts = re.split(r"(?=\b(?:SELECT|INSERT INTO|DELETE FROM|(?<!DO )(?<!FOR )UPDATE)\b)", statement)
    return [part for part in parts if re.search(rf"\b(FROM|INTO|UPDATE|JOIN) ({'|'.join(HOT)})\b", part)]


def has_bucket(part: str) -> bool:
    """Return whether the bucket is bound to a parameter, also in the values of an INSERT."""
    columns = re.match(r"INSERT INTO \w+ \(([^)]*)\)\s*VALUES \(([^)]*)\)", part)
    if columns is None:
        return re.search(r"(WHERE|AND) bucket = \$\d+\b(?! OR)", part) is not None and " OR " not in part
    named = [name.strip() for name in columns[1].split(",")]
    return re.fullmatch(r"\$\d+", columns[2].split(",")[named.index("bucket")].strip()) is not None


def test_every_table_of_a_hot_statement_is_compared_with_a_parameter(plans: Plans) -> None:
    """Citus needs a constant or a parameter for the bucket of each table, and ignores that of another table."""
    hot = {name: statement for name, statement in (STATEMENTS | INDEXING).items() if find_hot_parts(statement)}
    assert len(hot) >= 44
    assert {name for name, statement in hot.items() if not is_on_one_shard(statement, plans)} == MULTI_SHARD.keys()


def is_on_one_shard(statement: str, plans: Plans) -> bool:
    inserts = [part for part in find_hot_parts(statement) if part.startswith("INSERT")]
    read = [conditions for table, conditions in plans.list_conditions(statement) if table in HOT]
    assert inserts or read
    return all(map(has_bucket, inserts)) and all(re.search(r"\bbucket = \$\d", conditions) for conditions in read)


def test_the_check_for_work_collects_one_row_of_each_table() -> None:
    """Without a limit, Citus collects all rows of a subquery."""
    statement = index_steps.HAS_WORK
    assert statement.count("EXISTS (SELECT 1 FROM") == statement.count(" LIMIT 1)") == 2


def test_no_subquery_lacks_columns() -> None:
    """Citus rejects `EXISTS (SELECT FROM ...)`."""
    modules = (sql, member_sql, search_sql, writes, postgres_search, store_module, market, stamps, index_steps)
    sources = [inspect.getsource(module) for module in modules]
    sources += [one.text for one in shipped_migrations("postgres")]
    assert not [source for source in sources if re.search(r"SELECT\s+FROM", source)]


def test_each_case_states_its_conditions() -> None:
    """Citus sends `CASE column WHEN 'value'` of a DELETE or an UPDATE to a worker as `WHEN NULL`."""
    modules = (sql, member_sql, change_sql, change_groups, revert_sql, report, retention, writes, store_module)
    sources = "".join(map(inspect.getsource, modules))
    assert "CASE WHEN" in sources
    assert not re.findall(r"\bCASE \S+ WHEN\b", sources)


@pytest.mark.parametrize(("function", "statements"), [("create_listing", 13), ("record_edit", 5)])
def test_every_statement_in_a_function_names_the_bucket(function: str, statements: int) -> None:
    *_, migration = (one for one in shipped_migrations("postgres") if f"FUNCTION {function}(\n" in one.text)
    parts = find_hot_parts(migration.text.rpartition(f"FUNCTION {function}(\n")[2].partition("$$;")[0])
    assert len(parts) == statements
    for part in parts:
        is_insert = re.search(r"\(\s*(id, )?bucket\b.*\bVALUES \(\s*(listing_id, )?of_bucket\b", part, re.DOTALL)
        assert is_insert or re.search(r"\bbucket = of_bucket\b", part), part


def test_every_filter_can_be_written_without_an_index() -> None:
    assert postgres_search._UNINDEXED.keys() == search_sql.CONDITIONS.keys()  # noqa: SLF001


def test_every_search_names_the_bucket() -> None:
    for statement in set(list_searches()):
        parts = find_hot_parts(statement)
        assert parts, statement
        assert all(map(has_bucket, parts)), statement


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT id FROM listings WHERE id = $1",
        "SELECT id FROM listings WHERE bucket = $1 UNION ALL SELECT id FROM listings WHERE id = $2",
        "SELECT id FROM listings WHERE bucket = $1 OR id = $2",
        "INSERT INTO listing_ids (last, bucket) VALUES ($1, 5)",
        "UPDATE account_state SET bucket = $1",
    ],
)
def test_a_statement_without_the_bucket_is_detected(statement: str) -> None:
    assert not all(map(has_bucket, find_hot_parts(statement)))


# Parameters

VALUES: dict[str, Callable[[int], tuple[Any, str]]] = {  # by type: a value for the nth parameter, and its SQL literal
    "int2": lambda number: (100 + number, f"{100 + number}"),
    "int4": lambda number: (10_000 + number, f"{10_000 + number}"),
    "int8": lambda number: (10_000_000 + number, f"{10_000_000 + number}"),
    "float8": lambda number: (number + 0.5, f"{number}.5"),
    "bool": lambda number: (number % 2 == 0, str(number % 2 == 0)),
    "text": lambda number: (f"text {number}", f"text {number}"),
    "bytea": lambda number: (b"%032d" % number, f"{number:032}"),
    "text[]": lambda number: ([f"word {number}"], f'{{"word {number}"}}'),
    "bool[]": lambda number: ([number % 2 == 0], f"{{{'t' if number % 2 == 0 else 'f'}}}"),
    "float8[]": lambda number: ([number + 0.5], f"{{{number}.5}}"),
    "int8[]": lambda number: ([10_000_000 + number], f"{{{10_000_000 + number}}}"),
}


def test_every_parameter_binds_to_its_number(large: str) -> None:
    """The plan is the same for a bound parameter and for a literal."""

    async def compare_plans() -> None:
        connection: asyncpg.Connection[asyncpg.Record] = await connect(large, 60)
        for statement in STATEMENTS.values():
            types = [kind.name for kind in (await connection.prepare(str(statement))).get_parameters()]
            values = [VALUES[kind](number) for number, kind in enumerate(types, 1)]
            written = statement
            for number, ((_, literal), kind) in enumerate(zip(values, types, strict=True), 1):
                written = re.sub(rf"\${number}\b", f"CAST('{literal}' AS {kind})", written)
            explain = "EXPLAIN (VERBOSE, FORMAT JSON) "
            bound = await connection.fetchval(explain + statement, *(value for value, _ in values))
            assert bound == await connection.fetchval(explain + written), statement
        await connection.close()

    asyncio.run(compare_plans())


def test_no_statement_scans_a_whole_table(plans: Plans) -> None:
    single = {"GET_DATABASE_ID", "GET_RESTORE_ID", "_COLUMNS"}
    all_accounts = {"COUNT_ACCOUNTS", "LIST_LARGE_ACCOUNTS", "LIST_PICTURE_BYTES", "READ_BACKLOG"}
    for name in STATEMENTS.keys() - single - all_accounts:
        plan = plans.of(STATEMENTS[name])
        assert not re.search(r"Seq Scan|(Hash|Merge)( \w+)* Join", plan), f"{name}: {plan}"


def test_hot_reads_use_an_index_and_sort_nothing(plans: Plans) -> None:
    assert "Index Scan using listings_pkey" in plans.of(sql.GET_LISTING)
    listed = plans.of(store_module.LIST_LISTINGS)
    assert "Index Scan using listings_active" in listed
    assert "Sort" not in listed
    caller = plans.of(sql.FIND_CALLER)
    assert "Index Scan using api_keys_digest_key" in caller
    assert "accounts_pkey" in caller


def test_a_page_of_all_listings_merges_two_indexes_without_sorting(search_plans: Plans) -> None:
    plan = search_plans.of(store_module.PAGE_LISTINGS)
    assert "Merge Append" in plan
    assert "listings_active" in plan
    assert "listings_hidden" in plan
    assert not re.search(r"Sort\b(?! Key)", plan)


def test_pages_follow_an_index_without_sorting(search_plans: Plans) -> None:
    wanted = index_steps.PostgresIndexStore.wanted
    pages = (
        *(market.GET_STATE, market.LIST_CHANGES, market.PAGE_NEWEST, market.LIST_UNREAD, market.PAGE_SITEMAP),
        *(market.PAGE_SELLER, market.COUNT_SELLER, stamps.LIST_TOMBSTONES, stamps.LISTINGS_OF_ACCOUNT),
        *(it.format(wanted=wanted) for it in (market.GET_PLACES, market.GET_CARDS, market.GET_TEXTS)),
    )
    for statement in (*store_module.SEARCHES.values(), *pages):
        plan = search_plans.of(statement)
        assert re.search("Index (Only )?Scan", plan), plan
        assert not re.search(r"Sort\b(?! Key)|Seq Scan", plan), plan


def test_changes_are_found_in_the_order_of_accounts(plans: Plans) -> None:
    for statement in (stamps.NEXT_DIRTY, stamps.DIRTY_LISTINGS):
        plan = plans.of(statement)
        assert re.search("Index (Only )?Scan using listings_unmarketed", plan)
        assert not re.search(r"Sort\b(?! Key)", plan), plan


PARTITION = (1, 1)


def list_searches() -> Iterator[str]:
    for query in list_queries():
        yield postgres_search.build_account_scan(PARTITION, query, sql.LISTING_COLUMNS).text
        yield build_index_scan(query)
        ids = postgres_search.build_id_search(PARTITION, query, [1], sql.LISTING_COLUMNS)
        yield postgres_search.add_revisions(ids.text)
        yield build_word_total(query)
        for index in search_sql.list_collect_indexes(query):
            collected = postgres_search.build_collect_and_sort(PARTITION, query, index, sql.LISTING_COLUMNS)
            yield postgres_search.add_revisions(collected.text)
            yield search_sql.build_count(PARTITION, query, index).text


def build_index_scan(query: ListingQuery, columns: str = sql.LISTING_COLUMNS) -> str:
    return postgres_search.build_index_scan(PARTITION, query, columns).text


def build_word_total(query: ListingQuery) -> str:
    unpaged = search_sql.remove_page(query)
    return postgres_search.build_total(postgres_search.build_word_search(PARTITION, unpaged, "id").text)


def list_queries() -> Iterator[ListingQuery]:
    """Return searches with each status, order and pair of filters, downwards from the start and upwards from a cursor.

    The other two directions use the same indexes.
    """
    some = [names for size in range(3) for names in combinations(FILTERS, size)]
    for status, names, sort, (descending, has_cursor) in product(
        ("active", "inactive", "deleted", "all"), some, get_args(SortKey), ((True, False), (False, True))
    ):
        yield ListingQuery(
            status=status,  # type: ignore[arg-type]  # one of them
            sort=sort,
            descending=descending,
            limit=100,
            after=("2026" if sort.endswith("_at") or sort == "title" else 1, 1) if has_cursor else None,
            **{name: FILTERS[name] for name in names},
        )


@pytest.mark.uncovered
def test_an_index_scan_does_not_sort(search_plans: Plans) -> None:
    for query in list_queries():
        plan = search_plans.of(postgres_search.add_revisions(build_index_scan(query)))
        if query.sort != "id":
            assert f"using {search_sql.find_scan_index(query)} on" in plan, (query, plan)
        assert not re.search(r"Sort\b(?! Key)|Seq Scan|Bitmap", plan), (query, plan)


def is_by_account(plan: str) -> bool:
    """Return whether the plan finds an account's listings by index.

    That is as good as an index of a status that most of them have.
    """
    return re.search(r"Index Cond: \(\(bucket = \$1\) AND \(account_id = \$2\)\)", plan) is not None


def test_a_sort_by_names_reads_one_account(search_plans: Plans) -> None:
    for status, after in product(("active", "inactive", "deleted", "all"), (None, ("a", 1))):
        options: Any = {"status": status, "after": after}
        query = ListingQuery(sort="folded_title", descending=False, limit=50, **options)
        plan = search_plans.of(postgres_search.replace_fold(build_index_scan(query)))
        assert is_by_account(plan), plan
        assert "Seq Scan" not in plan, plan


@pytest.mark.slow
@pytest.mark.uncovered
def test_collect_and_sort_uses_its_index(search_plans: Plans) -> None:
    indexes = {
        statement.text: index
        for query in list_queries()
        for index in search_sql.list_collect_indexes(query)
        for statement in (
            postgres_search.build_collect_and_sort(PARTITION, query, index, sql.LISTING_COLUMNS),
            search_sql.build_count(PARTITION, query, index),
        )
    }
    for statement, index in indexes.items():
        plan = search_plans.of(statement)
        assert index in plan or is_by_account(plan), (statement, plan)
        assert "Seq Scan" not in plan, (statement, plan)


@pytest.mark.decision("G43")
def test_external_ids_are_found_by_their_index(plans: Plans, search_plans: Plans) -> None:
    for statement in (sql.FIND_EXTERNAL_ID, sql.GET_LISTING_BY_EXTERNAL_ID, writes._FIND_EXTERNAL_IDS):  # noqa: SLF001
        found = plans.of(statement)
        assert re.search(r"using listings_external_id .*\n.*external_id = .*\bCASE", found), found
    queries = [
        ListingQuery(external_ids=("a", "b"), status=status, sort=sort, category="c", limit=100, after=(1, 1))
        for status, sort in product(get_args(Status), get_args(SortKey))
    ]
    for query in queries:
        collected = postgres_search.build_collect_and_sort(
            PARTITION, query, search_sql.BY_EXTERNAL_ID, sql.LISTING_COLUMNS
        )
        found = search_plans.of(collected.text)
        assert re.search(r"using listings_external_id .*\n.*external_id = ANY", found), found


def test_old_idempotency_records_are_found_by_their_age(plans: Plans) -> None:
    plan = plans.of(sql.PURGE_IDEMPOTENCY_RECORDS)
    assert re.search(r"Index (Only )?Scan using idempotency_age .*\n *Index Cond: \(created_at < \$1\)", plan), plan
    assert "Index Scan using idempotency_pkey" in plan, plan


def test_words_are_found_by_an_index(search_plans: Plans) -> None:
    assert "Bitmap Index Scan on listing_words_words" in search_plans.of(postgres_search._FIND_WORDS)  # noqa: SLF001 - the statement


def test_ids_are_looked_up_one_by_one(search_plans: Plans) -> None:
    searches = {
        postgres_search.build_id_search(PARTITION, query, [1], sql.LISTING_COLUMNS).text for query in list_queries()
    }
    for statement in {postgres_search.FETCH_PIECE, *searches}:
        plan = search_plans.of(statement)
        assert re.search(r"Index Scan using listings_pkey.*\n *Index Cond: \(\(bucket = \$1\) AND \(id = ", plan), plan


def test_totals_follow_an_index_without_sorting(search_plans: Plans) -> None:
    for query in {search_sql.remove_page(query): None for query in list_queries()}:
        scanned = search_plans.of(postgres_search.build_total(build_index_scan(query, "id")))
        assert re.search("Index (Only )?Scan", scanned), (query, scanned)
        assert not re.search(r"Sort\b(?! Key)|Seq Scan|Bitmap", scanned), (query, scanned)
        words = search_plans.of(build_word_total(query))
        assert "Bitmap Index Scan on listing_words_words" in words, (query, words)
        assert "Index Scan using listings_pkey" in words, (query, words)
        assert not re.search(r"Sort\b(?! Key)|Seq Scan", words), (query, words)


# The create function and the statements

NEW = NewListing(title="Road bike", content="Two wheels.", price_cents=5, latitude=1.5, is_active=False)
IDEMPOTENCY = IdempotencyRecord("k", b"d" * 32, 1_000, 900)


async def create(url: str, count: int, method: str) -> tuple[list[Any], dict[str, list[Any]]]:
    """Create listings in an account that has `count` others. Return the results and the rows of all tables."""
    store = PostgresStore(url, LIMITS)
    await store.open()
    await store.add_account("Alice", "alice@example.com", None, 1_000)
    for _ in range(count):
        await store.add_listing(1, 1, AddStep(NEW, "2026-11-21 10:00:00"))
    await store.close()
    pool = Pool(url, LIMITS)
    await pool.open()
    session = await pool.acquire()
    outcomes: list[Any] = []
    for idempotency in (None, IDEMPOTENCY, IDEMPOTENCY):
        options = writes.WriteOptions(idempotency, Actor(7, 1_000))
        values: Any = ((1, 1), AddStep(NEW, "2026-11-21 10:00:00"), options)
        if method == "function":
            outcomes.append(await writes.create(session, *values, limits=NO_LIMITS, with_words=count > 0))
        else:
            await session.execute("BEGIN")
            outcomes.append(await writes.add(writes.PostgresTransaction(session), ENGINE, *values))
            await session.execute("COMMIT")
    tables = ("listings", "listing_ids", "idempotency", "account_state", "listing_words")
    rows = {
        table: [tuple(row) for row in await session.fetch(Query[Row](f"SELECT * FROM {table} ORDER BY {table}"))]  # noqa: S608
        for table in tables
    }
    await pool.close()
    return outcomes, rows


@pytest.mark.parametrize("count", [0, search_sql.MIN_INDEXED_LISTINGS], ids=["small", "indexed"])
def test_the_function_does_what_the_statements_do(postgres: PostgresServer, count: int) -> None:
    with postgres.database() as url:
        by_function = asyncio.run(create(url, count, "function"))
    with postgres.database() as url:
        by_statements = asyncio.run(create(url, count, "statements"))
    assert by_function == by_statements
    assert [added.replayed for added in by_function[0]] == [False, False, True]
    assert len(by_function[1]["listings"]) == count + 2
    assert len(by_function[1]["listing_words"]) == (count + 2 if count else 0)


def test_the_function_does_nothing_if_an_account_must_be_indexed(postgres: PostgresServer) -> None:
    async def fetch(url: str) -> tuple[Any, Any]:
        await fill(url, 1000)
        pool = Pool(url, LIMITS)
        await pool.open()
        session = await pool.acquire()
        before = await session.fetch(
            Query[tuple[int, int, int]]("SELECT revision, listings, last FROM account_state, listing_ids")
        )
        options = writes.WriteOptions(None, None)
        step = AddStep(NEW, "2026")
        result = await writes.create(session, (1, 1), step, options, limits=NO_LIMITS, with_words=False)
        after = await session.fetch(
            Query[tuple[int, int, int]]("SELECT revision, listings, last FROM account_state, listing_ids")
        )
        await pool.close()
        assert before == after
        return result, after

    with postgres.database() as url:
        result, (row,) = asyncio.run(fetch(url))
    assert result is None
    assert tuple(row) == (1, 1000, 1000)


def test_a_change_returns_the_stored_listing(postgres: PostgresServer) -> None:
    async def change(url: str) -> tuple[Listing, Listing | None]:
        store = PostgresStore(url, LIMITS)
        await store.open()
        await store.add_account("Alice", "alice@example.com", None, 1_000)
        added = await store.add_listing(1, 1, AddStep(NEW, "2026-11-21 10:00:00"))
        changed = await store.change_listing(added.listing_id, lambda _: {"title": "x\u2603", "latitude": None})
        read = await store.get_listing(added.listing_id)
        await store.close()
        return changed, read

    with postgres.database() as url:
        changed, read = asyncio.run(change(url))
    assert changed == read
    assert msgspec.structs.asdict(changed)["title"] == "x\u2603"
