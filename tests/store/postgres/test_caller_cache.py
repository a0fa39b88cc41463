"""The PostgreSQL store caches the caller of a key for at most one second."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from listings.domain.accounts import NewKey
from listings.store.postgres.pool import PoolLimits
from listings.store.postgres.store import PostgresStore
from tests.harness import Clock
from tests.postgres_server import PostgresServer

LIMITS = PoolLimits(sessions=2, seconds=60)
DIGEST = b"k" * 32


async def add_key(store: PostgresStore, digest: bytes = DIGEST) -> int:
    account = await store.find_account("alice@example.com")
    account = account or await store.add_account("Alice", "alice@example.com", None, 1_000)
    assert account is not None
    key = await store.add_key(NewKey(account_id=account.id, name="", digest=digest, hint="", created_at=1_000))
    assert key is not None
    return key.id


def run_with_two(server: PostgresServer, use: Callable[[PostgresStore, PostgresStore, Clock], Awaitable[None]]) -> None:
    """Run `use` with two stores on one database, like those of two processes. The clock is that of the first one."""

    async def run(url: str) -> None:
        clock = Clock()
        store, other = PostgresStore(url, LIMITS, clock), PostgresStore(url, LIMITS)
        await store.open()
        await other.open()
        try:
            await use(store, other, clock)
        finally:
            await store.close()
            await other.close()

    with server.database() as url:
        asyncio.run(run(url))


async def is_revoked(store: PostgresStore) -> bool:
    caller = await store.find_caller(DIGEST)
    assert caller is not None
    return caller.key_revoked_at is not None


@pytest.mark.decision("G25")
def test_a_caller_is_cached_for_at_most_a_second(postgres: PostgresServer) -> None:
    async def use(store: PostgresStore, other: PostgresStore, clock: Clock) -> None:
        key = await add_key(other)
        assert not await is_revoked(store)
        await other.revoke_key(key, 2_000)
        clock.advance(0.9)
        assert not await is_revoked(store)  # from the cache
        clock.advance(0.1)
        assert await is_revoked(store)

    run_with_two(postgres, use)


def test_a_process_sees_its_own_changes_immediately(postgres: PostgresServer) -> None:
    async def use(store: PostgresStore, _other: PostgresStore, _clock: Clock) -> None:
        key = await add_key(store)
        assert not await is_revoked(store)
        await store.change_account(1, lambda _: {"disabled_at": 1_500})
        caller = await store.find_caller(DIGEST)
        assert caller is not None
        assert caller.account_disabled_at == 1_500
        await store.revoke_key(key, 2_000)
        assert await is_revoked(store)

    run_with_two(postgres, use)


def test_simultaneous_requests_of_a_key_look_it_up_together(postgres: PostgresServer) -> None:
    async def scenario(url: str) -> int:
        store = PostgresStore(url, PoolLimits(sessions=8, seconds=60))
        await store.open()
        try:
            await add_key(store)
            callers = await asyncio.gather(*(store.find_caller(DIGEST) for _ in range(60)))
            assert len(set(callers)) == 1
            return len(store._pool._sessions)  # noqa: SLF001 - each message in flight has a session
        finally:
            await store.close()

    with postgres.database() as url:
        assert asyncio.run(scenario(url)) <= 3  # one alone, and the others in messages of 32


@pytest.mark.decision("G25")
def test_an_unknown_key_is_not_cached(postgres: PostgresServer) -> None:
    async def use(store: PostgresStore, other: PostgresStore, _clock: Clock) -> None:
        assert await store.find_caller(DIGEST) is None
        await add_key(other)
        assert not await is_revoked(store)

    run_with_two(postgres, use)
