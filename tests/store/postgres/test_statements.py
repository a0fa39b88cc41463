"""The statements on PostgreSQL: each is planned by the index that is meant for it; the function does as they do."""

import asyncio
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations, product
from typing import Any

import asyncpg
import msgspec
import pytest

from listings.contract.history import Actor
from listings.contract.imports import ImportBatch, ImportKey, ImportRow, Position
from listings.contract.listings import IdempotencyRecord
from listings.domain.model import SORTED_BY, ImportedListing, Listing, ListingQuery, NewListing
from listings.store import member_sql, search_sql, sql
from listings.store.migrations import shipped_migrations
from listings.store.postgres import search as postgres_search
from listings.store.postgres import store as store_module
from listings.store.postgres import writes
from listings.store.postgres.pool import Pool, PoolLimits, connect
from listings.store.postgres.store import PostgresStore
from tests.postgres_server import PostgresServer

BOUNDS = PoolLimits(sessions=2, seconds=60)
COUNT = 10_000
_ALL = vars(sql) | vars(member_sql) | vars(writes) | vars(postgres_search) | vars(store_module)
STATEMENTS = {
    name: value
    for name, value in _ALL.items()
    if name.strip("_").isupper()
    and isinstance(value, str)
    and re.match(r"[\s(]*(SELECT|INSERT|UPDATE|DELETE)\b", value)
} | {
    "change_listing": sql.change_listing(("title", "price_cents", "is_active")),
    "change_account": sql.change_account(("name", "plan_expires_at")),
}
HOT = (
    *("listings", "listing_words", "account_state", "listing_ids", "idempotency", "imports", "views"),
    *("activity", "usage_hours", "refusals"),
)
TO_ALL_SHARDS = {
    "FORGET_CLAIMS": "the purge goes by age, once a minute and outside of requests",
    "FORGET_VIEWS": "so does that of yesterday's visitors",
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
    )
    deleted = 5 if number % 10 == 0 else None
    return ImportedListing(new, view_count=0, created_at=stamp, updated_at=stamp, deleted_at=deleted)


def judge(number: int, _: Listing | None) -> ImportedListing:
    return listing(number)


async def fill(url: str, count: int) -> None:
    """alice's account in bucket 1 with so many listings."""
    store = PostgresStore(url, BOUNDS)
    await store.open()
    await store.add_account("Alice", "alice@example.com", None, 1_000)
    key = ImportKey(1, 1, b"\0" * 32, "csv", True)  # noqa: FBT003 - as the row has it
    await store.begin_import(key, None, 1_000, 0)
    for start in range(0, count, 1000):
        rows = [ImportRow(None, partial(judge, number)) for number in range(start, start + 1000)]
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
ANALYZE
"""


@pytest.fixture(scope="module")
def large(postgres: PostgresServer) -> Iterator[str]:
    """A database of one large account and a small one beside it in the same bucket, analysed."""
    with postgres.database(altered=True) as url:  # since what others have left swells its tables, and alters plans
        asyncio.run(fill(url, COUNT))
        for command in _NEIGHBOUR.split(";"):
            postgres.execute(command, url.rpartition("/")[2].partition("?")[0])
        yield url


class Plans:
    """What the server plans for statements whose values it does not know, as for one that is held prepared."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._connection = self._runner.run(connect(url, 60))
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

    def close(self) -> None:
        self._runner.run(self._connection.close())
        self._runner.close()


@pytest.fixture(scope="module")
def plans(large: str) -> Iterator[Plans]:
    plans = Plans(large)
    yield plans
    plans.close()


@pytest.mark.parametrize("name", STATEMENTS)
def test_every_statement_is_planned_with_its_parameters(name: str, large: str) -> None:
    async def prepare() -> int:
        connection: asyncpg.Connection[asyncpg.Record] = await connect(large, 60)
        prepared = await connection.prepare(STATEMENTS[name])
        count = len(prepared.get_parameters())
        await connection.close()
        return count

    numbers = {int(number) for number in re.findall(r"\$(\d+)", STATEMENTS[name])}
    assert asyncio.run(prepare()) == len(numbers) == max(numbers, default=0)


def hot_parts(statement: str) -> list[str]:
    """Each SELECT, INSERT, UPDATE and DELETE of a statement that asks a hot table for rows, or gives it one."""
    parts = re.split(r"(?=\b(?:SELECT|INSERT INTO|DELETE FROM|(?<!DO )(?<!FOR )UPDATE)\b)", statement)
    return [part for part in parts if re.search(rf"\b(FROM|INTO|UPDATE|JOIN) ({'|'.join(HOT)})\b", part)]


def carries_the_bucket(part: str) -> bool:
    """Whether the bucket is bound to a parameter, and to one row's, if it is given one."""
    columns = re.match(r"INSERT INTO \w+ \(([^)]*)\)\s*VALUES \(([^)]*)\)", part)
    if columns is None:
        return re.search(r"(WHERE|AND) bucket = \$\d+\b(?! OR)", part) is not None and " OR " not in part
    named = [name.strip() for name in columns[1].split(",")]
    return re.fullmatch(r"\$\d+", columns[2].split(",")[named.index("bucket")].strip()) is not None


def test_every_hot_statement_carries_the_bucket() -> None:
    hot = {name: hot_parts(statement) for name, statement in STATEMENTS.items() if hot_parts(statement)}
    assert len(hot) >= 28
    assert {name for name, parts in hot.items() if not all(map(carries_the_bucket, parts))} == TO_ALL_SHARDS.keys()


def test_everything_in_the_function_carries_the_bucket() -> None:
    *_, migration = (one for one in shipped_migrations("postgres") if "CREATE FUNCTION create_listing" in one.text)
    body = migration.text.partition("CREATE FUNCTION create_listing")[2]
    parts = hot_parts(body)
    assert len(parts) == 9
    for part in parts:
        given = re.search(r"\(\s*(id, )?bucket\b.*\bVALUES \(\s*(listing_id, )?of_bucket\b", part, re.DOTALL)
        assert given or re.search(r"\bbucket = of_bucket\b", part), part


def test_every_search_carries_the_bucket() -> None:
    for statement in set(searches()):
        parts = hot_parts(statement)
        assert parts, statement
        assert all(map(carries_the_bucket, parts)), statement


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
def test_a_statement_without_the_bucket_is_found(statement: str) -> None:
    assert not all(map(carries_the_bucket, hot_parts(statement)))


# What each value is bound to

VALUES: dict[str, Callable[[int], tuple[Any, str]]] = {  # by type: the nth one's value, and how SQL writes it
    "int2": lambda number: (100 + number, f"{100 + number}"),
    "int4": lambda number: (10_000 + number, f"{10_000 + number}"),
    "int8": lambda number: (10_000_000 + number, f"{10_000_000 + number}"),
    "float8": lambda number: (number + 0.5, f"{number}.5"),
    "bool": lambda number: (number % 2 == 0, str(number % 2 == 0)),
    "text": lambda number: (f"text {number}", f"text {number}"),
    "bytea": lambda number: (b"%032d" % number, f"{number:032}"),
    "text[]": lambda number: ([f"word {number}"], f'{{"word {number}"}}'),
    "int8[]": lambda number: ([10_000_000 + number], f"{{{10_000_000 + number}}}"),
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_every_parameter_binds_to_its_number(name: str, large: str) -> None:
    """What the server plans is the same, whether a value is bound to `$n` or stands in its place."""

    async def plans() -> tuple[Any, Any]:
        connection: asyncpg.Connection[asyncpg.Record] = await connect(large, 60)
        try:
            types = [kind.name for kind in (await connection.prepare(STATEMENTS[name])).get_parameters()]
            made = [VALUES[kind](number) for number, kind in enumerate(types, 1)]
            written = re.sub(
                r"\$(\d+)", lambda it: f"CAST('{made[int(it[1]) - 1][1]}' AS {types[int(it[1]) - 1]})", STATEMENTS[name]
            )
            explain = "EXPLAIN (VERBOSE, FORMAT JSON) "
            bound = await connection.fetchval(explain + STATEMENTS[name], *(value for value, _ in made))
            return bound, await connection.fetchval(explain + written)
        finally:
            await connection.close()

    bound, written = asyncio.run(plans())
    assert bound == written


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_statement_scans_a_whole_table(name: str, plans: Plans) -> None:
    if name in {"GET_DATABASE_ID", "_COLUMNS"}:
        return
    plan = plans.of(STATEMENTS[name])
    assert "Seq Scan" not in plan, plan


def test_hot_reads_use_their_index_and_sort_nothing(plans: Plans) -> None:
    assert "Index Scan using listings_pkey" in plans.of(sql.GET_LISTING)
    listed = plans.of(sql.LIST_LISTINGS)
    assert "Index Scan using listings_active" in listed
    assert "Sort" not in listed
    caller = plans.of(sql.FIND_CALLER)
    assert "Index Scan using api_keys_digest_key" in caller
    assert "accounts_pkey" in caller


def test_a_page_of_all_listings_merges_two_indexes_and_sorts_nothing(plans: Plans) -> None:
    plan = plans.of(store_module.PAGE_LISTINGS)
    assert "Merge Append" in plan
    assert "listings_active" in plan
    assert "listings_hidden" in plan
    assert not re.search(r"Sort\b(?! Key)", plan)


def searches() -> Iterator[str]:
    """The statements of every search."""
    for shape in shapes():
        yield search_sql.search(shape)
        yield postgres_search.walk(search_sql.walk(shape))
        yield postgres_search.among(shape)
        for gathering in search_sql.gatherings(shape):
            yield postgres_search.gather(gathering)
            yield search_sql.count_few(gathering)


def shapes() -> Iterator[search_sql.Shape]:
    some = [names for size in range(3) for names in combinations(FILTERS, size)]
    for status, names, sort, descending, behind in product(
        ("active", "inactive", "deleted", "all"), some, SORTED_BY, (True, False), (True, False)
    ):
        query = ListingQuery(
            status=status,  # type: ignore[arg-type]  # one of them
            sort=sort,
            descending=descending,
            limit=100,
            after=("2026" if sort.endswith("_at") or sort == "title" else 1, 1) if behind else None,
            **{name: FILTERS[name] for name in names},
        )
        yield search_sql.shape_of(query)


def test_a_walk_goes_along_its_index_and_sorts_nothing(plans: Plans) -> None:
    for shape in shapes():
        walked = search_sql.walk(shape)
        plan = plans.of(postgres_search.walk(walked))
        if shape.sort != "id":
            assert f"using {walked.by} on" in plan, (shape, plan)
        assert not re.search(r"Sort\b(?! Key)|Seq Scan|Bitmap", plan), (shape, plan)


def by_account(plan: str) -> bool:
    """Whether an index leads to the account's listings: as good as that of a status which most of them have."""
    return re.search(r"Index Cond: \(\(bucket = \$1\) AND \(account_id = \$2\)\)", plan) is not None


def test_a_gathering_goes_along_its_index(plans: Plans) -> None:
    for shape in shapes():
        for gathering in search_sql.gatherings(shape):
            for statement in (postgres_search.gather(gathering), search_sql.count_few(gathering)):
                plan = plans.of(statement)
                assert gathering.by in plan or by_account(plan), (gathering, plan)
                assert "Seq Scan" not in plan, (gathering, plan)


def test_words_are_looked_up(plans: Plans) -> None:
    assert "Bitmap Index Scan on listing_words_words" in plans.of(postgres_search._FIND_WORDS)  # noqa: SLF001 - its text
    among = postgres_search.among(search_sql.shape_of(ListingQuery(limit=10)))
    assert "listings_pkey" in plans.of(among)


# The function and the statements

NEW = NewListing(title="Road bike", content="Two wheels.", price_cents=5, latitude=1.5, is_active=False)
CLAIM = IdempotencyRecord("k", b"d" * 32, 1_000, 900)


async def make(url: str, count: int, way: str) -> tuple[list[Any], dict[str, list[Any]]]:
    """What creates come to, and what they leave, beside so many listings."""
    store = PostgresStore(url, BOUNDS)
    await store.open()
    await store.add_account("Alice", "alice@example.com", None, 1_000)
    for _ in range(count):
        await store.add_listing(1, 1, NEW, "2026-11-21 10:00:00")
    await store.close()
    pool = Pool(url, BOUNDS)
    await pool.open()
    session = await pool.take()
    outcomes: list[Any] = []
    for claim in (None, CLAIM, CLAIM):
        terms = writes.WriteOptions(claim, Actor(7, 1_000))
        values: Any = (session, (1, 1), NEW, "2026-11-21 10:00:00", terms)
        if way == "function":
            outcomes.append(await writes.create(*values, with_words=count > 0))
        else:
            await session.run("BEGIN")
            outcomes.append(await writes.add(*values))
            await session.run("COMMIT")
    tables = ("listings", "listing_ids", "idempotency", "account_state", "listing_words")
    left = {
        table: [tuple(row) for row in await session.fetch(f"SELECT * FROM {table} ORDER BY {table}")]  # noqa: S608
        for table in tables
    }
    await pool.close()
    return outcomes, left


@pytest.mark.parametrize("count", [0, search_sql.LARGE], ids=["small", "indexed"])
def test_the_function_does_what_the_statements_do(postgres: PostgresServer, count: int) -> None:
    with postgres.database() as url:
        by_function = asyncio.run(make(url, count, "function"))
    with postgres.database() as url:
        by_statements = asyncio.run(make(url, count, "statements"))
    assert by_function == by_statements
    assert [added.replayed for added in by_function[0]] == [False, False, True]
    assert len(by_function[1]["listings"]) == count + 2
    assert len(by_function[1]["listing_words"]) == (count + 2 if count else 0)


def test_the_function_leaves_to_the_statements_what_needs_an_index(postgres: PostgresServer) -> None:
    async def fetch(url: str) -> tuple[Any, Any]:
        await fill(url, 1000)
        pool = Pool(url, BOUNDS)
        await pool.open()
        session = await pool.take()
        before = await session.fetch("SELECT revision, listings, last FROM account_state, listing_ids")
        made = await writes.create(session, (1, 1), NEW, "2026", writes.WriteOptions(None, None), with_words=False)
        after = await session.fetch("SELECT revision, listings, last FROM account_state, listing_ids")
        await pool.close()
        assert before == after
        return made, after

    with postgres.database() as url:
        made, (row,) = asyncio.run(fetch(url))
    assert made is None
    assert tuple(row) == (1, 1000, 1000)


def test_what_is_changed_is_the_listing_that_is_returned(postgres: PostgresServer) -> None:
    async def change(url: str) -> tuple[Listing, Listing | None]:
        store = PostgresStore(url, BOUNDS)
        await store.open()
        await store.add_account("Alice", "alice@example.com", None, 1_000)
        added = await store.add_listing(1, 1, NEW, "2026-11-21 10:00:00")
        changed = await store.change_listing(added.listing_id, lambda _: {"title": "x\u2603", "latitude": None})
        read = await store.get_listing(added.listing_id)
        await store.close()
        return changed, read

    with postgres.database() as url:
        changed, read = asyncio.run(change(url))
    assert changed == read
    assert msgspec.structs.asdict(changed)["title"] == "x\u2603"
