"""Errors of a Citus coordinator about its nodes, raised by plain PostgreSQL."""

import asyncio

import pytest

from listings.domain.errors import Unavailable
from tests.postgres_server import PostgresServer
from tests.store.postgres.test_errors import CREATED, NEW, create_alice, open_session, open_store

REMOTE = "connection to the remote node listings@worker1:5432 failed with the following error: "
REFUSED = f'{REMOTE}connection to server at "worker1" (10.0.0.2), port 5432 failed: Connection refused'
UNREACHABLE = [
    REFUSED,
    f'{REMOTE}could not translate host name "worker1" to address: Name or service not known',
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
                    store.add_listing(1, 1, NEW, CREATED),
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
                await store.add_listing(1, 1, NEW, CREATED)

    with postgres.database(altered=True) as url:
        asyncio.run(scenario(url))
