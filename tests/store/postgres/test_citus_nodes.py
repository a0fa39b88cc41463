"""The nodes of a Citus cluster, with stand-ins for its catalogue and its errors on plain PostgreSQL."""

import asyncio
from collections.abc import Iterator

import pytest

from listings.domain.errors import Problem, Unavailable
from listings.domain.listings import AddStep
from listings.store.postgres.inspection import inspect
from listings.store.postgres.migrate import migrate
from listings.store.postgres.pool import PoolLimits
from listings.store.postgres.store import PostgresStore
from listings.store.query import Query
from tests.postgres_server import PostgresServer
from tests.store.postgres.test_errors import CREATED, NEW, create_alice, open_session, open_store

LIMITS = PoolLimits(sessions=1, seconds=60)
REMOTE = "connection to the remote node listings@worker1:5432 failed with the following error: "
REFUSED = f'{REMOTE}connection to server at "worker1" (10.0.0.2), port 5432 failed: Connection refused'
UNREACHABLE = [
    REFUSED,
    f'{REMOTE}could not translate host name "worker1" to address: Name or service not known',
    f"{REMOTE}Connection refused\n\tIs the server running on that host and accepting TCP/IP connections?",
    f"{REMOTE}FATAL:  the database system is shutting down",
    "could not establish any connections to the node worker1:5432 after 30000 ms",
]
LOST = f"{REMOTE}server closed the connection unexpectedly"
_FAIL = """
CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '{message}' USING ERRCODE = '08006';
END $$;
CREATE OR REPLACE TRIGGER fail BEFORE INSERT OR UPDATE ON listings FOR EACH ROW EXECUTE FUNCTION fail()
"""


def test_a_write_that_never_reached_its_node_is_known_to_have_failed(postgres: PostgresServer) -> None:
    async def scenario(url: str) -> None:
        async with open_store(url, sessions=1) as store, open_session(url) as other:
            listing_id = await create_alice(store)
            session = store._pool.acquire_idle()  # noqa: SLF001 - to see that it stays
            assert session is not None
            store._pool.release(session)  # noqa: SLF001
            for message in UNREACHABLE:
                await other.execute(_FAIL.format(message=message))
                for write in (
                    store.add_listing(1, 1, AddStep(NEW, CREATED)),
                    store.change_listing(listing_id, lambda _: {"title": "x"}),
                ):
                    with pytest.raises(Unavailable, match=r"A node .* can't be reached; nothing was written"):
                        await write
            assert store._pool.acquire_idle() is session  # noqa: SLF001 - the coordinator is not to blame

    with postgres.database(altered=True) as url:
        asyncio.run(scenario(url))


def test_a_create_whose_node_was_lost_meanwhile_has_an_unknown_outcome(postgres: PostgresServer) -> None:
    async def scenario(url: str) -> None:
        async with open_store(url) as store, open_session(url) as other:
            await create_alice(store)
            await other.execute(_FAIL.format(message=LOST))
            with pytest.raises(Unavailable, match="outcome is unknown"):
                await store.add_listing(1, 1, AddStep(NEW, CREATED))

    with postgres.database(altered=True) as url:
        asyncio.run(scenario(url))


_CATALOGUE = """
SET allow_system_table_mods = on;
CREATE TABLE pg_catalog.pg_dist_local_group (groupid integer NOT NULL);
CREATE TABLE pg_catalog.pg_dist_node (
    nodename text, nodeport integer, groupid integer, noderole text DEFAULT 'primary', isactive boolean DEFAULT true);
INSERT INTO pg_dist_local_group VALUES ({group});
INSERT INTO pg_dist_node (nodename, nodeport, groupid, isactive) VALUES
    ('coordinator', 5432, 0, true), ('alive', 5432, 1, true), ('away', 5432, 2, true), ('slow', 5432, 3, true),
    ('stopped', 5432, 4, false);
CREATE FUNCTION citus_check_connection_to_node(nodename text, nodeport integer = 5432) RETURNS boolean
LANGUAGE sql AS $$ SELECT CASE WHEN nodename = 'slow' THEN pg_sleep(1000) IS NULL ELSE nodename <> 'away' END $$;
"""
ABSENT = ["away:5432", "slow:5432", "stopped:5432"]


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    with postgres.database(altered=True) as url:
        yield url


async def pretend_citus(url: str, group: int) -> None:
    async with open_session(url) as other:
        await other.execute(_CATALOGUE.format(group=group))


def test_absent_workers_are_found(url: str) -> None:
    async def scenario() -> None:
        async with open_store(url, sessions=1) as store:
            assert await store.list_unavailable_nodes() == []  # without Citus
            await pretend_citus(url, group=0)
            assert await store.list_unavailable_nodes() == ABSENT
            await store.check()
        found = await inspect(url)
        assert found.unavailable_workers == ABSENT
        assert found.pending_work is None  # its statement would read all shards

    asyncio.run(scenario())


def test_sessions_do_not_filter_the_catalogue_for_shards(url: str) -> None:
    """With the filter, the first statement with an array in each session takes seconds."""

    async def scenario() -> None:
        await pretend_citus(url, group=0)
        async with open_store(url, sessions=1) as store:
            query = Query[tuple[str]]("SELECT current_setting('citus.override_table_visibility')")
            assert await store._read(query) == [("off",)]  # noqa: SLF001 - no other method returns a setting

    asyncio.run(scenario())


def test_a_worker_is_rejected_as_the_database(url: str) -> None:
    asyncio.run(pretend_citus(url, group=2))
    for use in (migrate(url), inspect(url), PostgresStore(url, LIMITS).open()):
        with pytest.raises(Problem, match="a worker of a Citus cluster: set LISTINGS_DATABASE_URL to the coordinator"):
            asyncio.run(use)


def test_statements_that_fail_to_find_listings_for_the_market_are_reported(url: str) -> None:
    async def scenario() -> None:
        assert (await inspect(url)).indexing_error is None
        async with open_session(url) as other:
            await other.execute("ALTER TABLE listings RENAME market_version TO other")
        assert "42703" in str((await inspect(url)).indexing_error)

    asyncio.run(scenario())
