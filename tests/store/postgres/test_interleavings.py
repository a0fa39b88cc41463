"""A write that waits for a lock uses the values that the other transaction commits."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from listings.domain.account_limits import AccountLimits
from listings.domain.history import CONSOLE, Actor
from listings.domain.listings import AddStep, IdempotencyRecord, LargeListError
from listings.domain.mail import NewMail
from listings.domain.model import ListingQuery, NewListing
from listings.store.postgres import search
from listings.store.postgres.pool import PoolLimits
from listings.store.postgres.store import PostgresStore
from tests.contract.helpers import add_email_token
from tests.harness import TIMEOUT
from tests.store.postgres.test_errors import open_session, wait_until_blocked

STEP = AddStep(NewListing(title="Lamp", content="Bright."), "2026-11-21 10:00:00")
LARGE = AddStep(NewListing(title="Lamp", content="Bright " + "💡" * 100_000), "2026-11-21 10:00:00")
BY_OWNER = Actor(CONSOLE, 1_500)
TOKEN = b"t" * 32


@asynccontextmanager
async def open_store(url: str) -> AsyncIterator[PostgresStore]:
    """Open a store with alice's account, which may have two listings."""
    store = PostgresStore(url, PoolLimits(4, TIMEOUT), account_limits=AccountLimits(listings=2))
    await store.open()
    try:
        await store.add_member("Alice", "alice@example.com", "hash", 1_000)
        yield store
    finally:
        await store.close()


async def run_after(url: str, commands: str, write: Coroutine[Any, Any, Any]) -> Any:
    """Run a write that waits until another transaction has committed these commands."""
    async with open_session(url) as other, open_session(url) as observer:
        async with other.transaction():
            await other.execute(commands)
            task = asyncio.create_task(write)
            await wait_until_blocked(observer)
        return await task


def test_a_create_is_counted_if_a_full_account_gets_room_meanwhile(url: str) -> None:
    delete = """
        UPDATE listings SET is_active = FALSE, deleted_at = 1500 WHERE id = 1025;
        UPDATE account_state SET current_listings = current_listings - 1
    """

    async def scenario() -> None:
        async with open_store(url) as store, open_session(url) as other:
            for _ in range(2):
                await store.add_listing(1, 1, STEP)
            added = await run_after(url, delete, store.add_listing(1, 1, STEP, None, BY_OWNER))
            state = await other.fetchrow("SELECT listings, current_listings FROM account_state")
            event = await other.fetchrow("SELECT revision, edit_revision FROM listings WHERE id = $1", added.listing_id)
            assert tuple(state) == (3, 2)
            assert tuple(event) == (3, 1)

    asyncio.run(scenario())


@pytest.mark.parametrize("withdraws", [True, False])
def test_a_token_that_is_withdrawn_meanwhile_confirms_nothing(url: str, *, withdraws: bool) -> None:
    command = "DELETE FROM email_tokens" if withdraws else "SELECT 1 FROM email_tokens FOR UPDATE"

    async def scenario() -> str:
        async with open_store(url) as store:
            await add_email_token(store, 1, TOKEN, "new@example.com")
            confirmed = await run_after(url, command, store.confirm_email(TOKEN, 1_500))
            account = await store.get_account(1)
            assert account is not None
            assert (confirmed is None) is withdraws
            return account.email

    assert asyncio.run(scenario()) == ("alice@example.com" if withdraws else "new@example.com")


def test_an_email_that_is_deleted_meanwhile_gets_no_token(url: str) -> None:
    mail = NewMail("mail1", "confirm_email", "new@example.com", 1, "{}", 1_000)

    async def scenario() -> None:
        async with open_store(url) as store:
            await store.add_mail(mail)
            adding = store.add_email_token(1, mail, TOKEN, 1_000, 2_000)
            assert await run_after(url, "DELETE FROM mails", adding) is False
            assert await store.find_email_token(TOKEN, 1_500) is None

    asyncio.run(scenario())


def test_a_change_of_a_slow_transaction_is_numbered_after_its_commit(url: str) -> None:
    async def scenario() -> None:
        async with open_store(url) as store, open_session(url) as slow:
            first = (await store.add_listing(1, 1, STEP)).listing_id
            await store.stamp_market(10, b"i" * 16, 1_000)
            await slow.execute("BEGIN")
            await slow.execute("UPDATE listings SET title = 'Boat', version = version + 1")
            second = (await store.add_listing(1, 1, STEP)).listing_id
            await store.stamp_market(10, b"i" * 16, 1_000)
            position = (await store.list_market_changes(0, 9))[-1]
            assert position.id == second
            await slow.execute("COMMIT")
            await store.stamp_market(10, b"i" * 16, 1_000)
            found = await store.list_market_changes(position.sequence, 9)
            assert [(it.id, it.title) for it in found] == [(first, "Boat")]

    asyncio.run(scenario())


def test_an_account_that_is_disabled_while_it_is_shown_again_is_hidden(url: str) -> None:
    async def scenario() -> None:
        async with open_store(url) as store:
            await store.add_listing(1, 1, STEP)
            while (await store.stamp_market(10, b"i" * 16, 1_000)).done:
                pass
            await store.change_account(1, lambda _: {"disabled_at": 1_500})
            while (await store.stamp_market(10, b"i" * 16, 1_000)).done:
                pass
            await store.change_account(1, lambda _: {"disabled_at": None})
            disable = "UPDATE accounts SET disabled_at = 1600 WHERE id = 1"
            await run_after(url, disable, store.stamp_market(10, b"i" * 16, 1_000))
            while (await store.stamp_market(10, b"i" * 16, 1_000)).has_more:
                pass
            assert await store.page_newest() == []
            assert not any(it.is_shown for it in await store.list_market_changes(0, 9))

    asyncio.run(scenario())


def test_an_idempotency_record_that_is_used_again_meanwhile_is_not_purged(url: str) -> None:
    record = IdempotencyRecord("key", b"d" * 32, 1_000, 500)

    async def scenario() -> None:
        async with open_store(url) as store, open_session(url) as other:
            await store.add_listing(1, 1, STEP, record)
            renew = "UPDATE idempotency SET created_at = 9000"
            await run_after(url, renew, store.purge_idempotency_records(5_000, 10))
            assert await other.fetchval("SELECT created_at FROM idempotency") == 9_000

    asyncio.run(scenario())


def test_an_address_that_another_account_takes_meanwhile_is_taken(url: str) -> None:
    async def scenario() -> object:
        async with open_store(url) as store:
            await store.add_account("Bob", "bob@example.com", None, 1_000)
            take = "UPDATE accounts SET email = 'new@example.com' WHERE id = 2"
            return await run_after(url, take, store.change_email(1, "new@example.com", BY_OWNER))

    assert asyncio.run(scenario()) is None


@pytest.mark.as_written
@pytest.mark.parametrize("query", [ListingQuery(), ListingQuery(words=("bright",))], ids=["all", "words"])
def test_a_search_result_that_has_grown_since_it_was_measured_is_large(
    url: str, monkeypatch: pytest.MonkeyPatch, query: ListingQuery
) -> None:
    monkeypatch.setattr(search, "build_size", lambda found: f"SELECT 0 FROM ({found}) AS found")  # noqa: S608 - no text of others

    async def scenario() -> None:
        async with open_store(url) as store:
            await store.add_listing(1, 1, LARGE)
            with pytest.raises(LargeListError):
                await store.find_listings(1, 1, query)

    asyncio.run(scenario())
