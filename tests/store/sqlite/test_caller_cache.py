"""The cache of callers on SQLite is valid until any process writes something that may change a caller."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from listings.domain.accounts import NewKey, Rotation
from listings.domain.history import Payment
from listings.domain.listings import AddStep
from listings.domain.model import NewListing, bucket_of
from listings.store.sqlite.maintenance import migrate
from listings.store.sqlite.store import SqliteStore
from tests.contract.helpers import erase
from tests.harness import TIMEOUT

DIGEST = b"k" * 32
END = 9_000_000_000
Change: TypeAlias = Callable[[SqliteStore, int, int], Awaitable[Any]]


def new_key(account_id: int, digest: bytes) -> NewKey:
    return NewKey(account_id=account_id, name="", digest=digest, hint="", created_at=1_000)


CHANGES: dict[str, Change] = {
    "the key is revoked": lambda store, _, key: store.revoke_key(key, 2_000),
    "the key is rotated": lambda store, account, key: store.rotate_key(
        key, lambda *_: Rotation(new_key(account, b"n" * 32), 2_000)
    ),
    "the plan is extended": lambda store, account, _: store.change_account(account, lambda _: {"plan_expires_at": END}),
    "the account is disabled": lambda store, account, _: store.change_account(
        account, lambda _: {"disabled_at": 2_000}
    ),
    "the account is erased": lambda store, account, _: erase(store, account, "e@x.invalid", 2_000),
    "a payment is added": lambda store, account, _: store.add_payment(
        Payment("manual", "1", account, 1), lambda _: END, 2_000
    ),
}


@pytest.mark.decision("G25")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_by_another_process_is_visible_immediately(
    tmp_path: Path, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("listings.store.sqlite.write_lock.MAX_CACHE_SECONDS", TIMEOUT)  # entries must not expire
    path = tmp_path / "listings.db"
    migrate.migrate(path)

    async def run() -> None:
        one, other = SqliteStore(path), SqliteStore(path)
        await one.open()
        await other.open()
        try:
            account = await other.add_account("Alice", "alice@example.com", None, 1_000)
            assert account is not None
            key = await other.add_key(new_key(account.id, DIGEST))
            assert key is not None
            before = await one.find_caller(DIGEST)
            listing = NewListing(title="A", content="A")
            await other.add_listing(bucket_of(account.id), account.id, AddStep(listing, "2026-01-01 00:00:00"))
            await other.add_key(new_key(account.id, b"o" * 32))
            assert await one.find_caller(DIGEST) is before  # from the cache
            await change(other, account.id, key.id)
            assert await one.find_caller(DIGEST) != before
        finally:
            await one.close()
            await other.close()

    asyncio.run(run())
