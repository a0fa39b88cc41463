"""How long the store on PostgreSQL keeps who a key belongs to: a second at most."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from listings.contract.accounts import NewKey
from listings.store.postgres.pool import PoolLimits
from listings.store.postgres.store import PostgresStore
from tests.harness import Clock
from tests.postgres_server import PostgresServer

BOUNDS = PoolLimits(sessions=2, seconds=60)
DIGEST = b"k" * 32


async def add_key(store: PostgresStore, digest: bytes = DIGEST) -> int:
    account = await store.find_account("alice@example.com")
    account = account or await store.add_account("Alice", "alice@example.com", None, 1_000)
    assert account is not None
    key = await store.add_key(NewKey(account_id=account.id, name="", digest=digest, hint="", created_at=1_000))
    assert key is not None
    return key.id


def with_two(server: PostgresServer, use: Callable[[PostgresStore, PostgresStore, Clock], Awaitable[None]]) -> None:
    """Two stores on one database, as two processes have them; the clock is the first one's."""

    async def run(url: str) -> None:
        clock = Clock()
        one, other = PostgresStore(url, BOUNDS, clock), PostgresStore(url, BOUNDS)
        await one.open()
        await other.open()
        try:
            await use(one, other, clock)
        finally:
            await one.close()
            await other.close()

    with server.database() as url:
        asyncio.run(run(url))


async def is_revoked(store: PostgresStore) -> bool:
    caller = await store.find_caller(DIGEST)
    assert caller is not None
    return caller.key_revoked_at is not None


@pytest.mark.decision("G25")
def test_what_another_process_revokes_is_seen_within_a_second(postgres: PostgresServer) -> None:
    async def use(one: PostgresStore, other: PostgresStore, clock: Clock) -> None:
        key = await add_key(other)
        assert not await is_revoked(one)
        await other.revoke_key(key, 2_000)
        clock.advance(0.9)
        assert not await is_revoked(one)  # it was not read again
        clock.advance(0.1)
        assert await is_revoked(one)

    with_two(postgres, use)


def test_what_a_process_changes_itself_it_sees_at_once(postgres: PostgresServer) -> None:
    async def use(one: PostgresStore, _other: PostgresStore, _clock: Clock) -> None:
        key = await add_key(one)
        assert not await is_revoked(one)
        await one.change_account(1, lambda _: {"disabled_at": 1_500})
        caller = await one.find_caller(DIGEST)
        assert caller is not None
        assert caller.account_disabled_at == 1_500
        await one.revoke_key(key, 2_000)
        assert await is_revoked(one)

    with_two(postgres, use)


@pytest.mark.decision("G25")
def test_a_key_that_was_unknown_is_looked_up_again(postgres: PostgresServer) -> None:
    async def use(one: PostgresStore, other: PostgresStore, _clock: Clock) -> None:
        assert await one.find_caller(DIGEST) is None
        await add_key(other)
        assert not await is_revoked(one)

    with_two(postgres, use)
