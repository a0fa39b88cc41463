"""Erasures in steps, and what interrupts them."""

import asyncio
from pathlib import Path

import apsw
import pytest

from listings.domain.accounts import build_erased_email, is_erased
from listings.domain.changes import EditState
from listings.domain.errors import Problem, Unavailable
from listings.domain.model import Account, bucket_of
from listings.service import accounts as accounts_module
from tests.harness import Harness

OPERATIONS = [{"op": "create", "listing": {"title": "Lamp", "content": "Bright."}}] * 100


def test_the_email_of_an_erased_account_is_rejected(harness: Harness) -> None:
    with pytest.raises(Problem, match="is reserved for an erased account"):
        harness.run(harness.services.accounts.add("Alice", build_erased_email(7).upper(), None))


def test_an_account_that_is_enabled_during_its_erasure_is_not_erased(harness: Harness) -> None:
    alice = harness.person("alice")
    for _ in range(8):
        harness.fetch("POST", "/api/v1/listings/batch", key=alice.key, json={"operations": OPERATIONS})
    accounts, account_id = harness.services.accounts, str(alice.account.id)

    async def count_listings() -> int:
        return (await harness.store.count_listings(bucket_of(alice.account.id), alice.account.id)).active

    async def enable_after_the_first_deletion() -> None:
        while await count_listings() == 800:  # noqa: ASYNC110 - the erasure signals nothing
            await asyncio.sleep(0)
        await accounts.enable(account_id)

    async def scenario() -> None:
        with pytest.raises(Problem, match="was enabled during its erasure"):
            await asyncio.gather(enable_after_the_first_deletion(), accounts.erase(account_id))
        account = await accounts.find(account_id)
        assert (account.disabled_at, account.email) == (None, alice.account.email)
        assert await count_listings() > 0

    harness.run(scenario())


def test_an_erasure_that_was_interrupted_between_its_steps_is_finished(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = harness.person("alice")
    for _ in range(5):
        harness.fetch("POST", "/api/v1/listings/batch", key=alice.key, json={"operations": OPERATIONS[:1]})
    accounts, store = harness.services.accounts, harness.store
    monkeypatch.setattr(accounts_module, "_ERASE_BATCH_SIZE", 2)

    async def die(*_: object) -> bool:
        raise Unavailable("The process dies")

    async def scenario() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(store, "erase_account", die)
            with pytest.raises(Unavailable):
                await accounts.erase(alice.account.email)
        assert (await accounts.find(alice.account.email)).disabled_at is not None
        assert await store.get_edit_state(bucket_of(alice.account.id), alice.account.id) == EditState(5, 5)
        assert is_erased(await accounts.erase(alice.account.email))

    harness.run(scenario())


def test_a_closed_account_that_is_enabled_before_its_turn_is_not_erased(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob = (harness.person(name).account.id for name in ("alice", "bob"))
    accounts = harness.services.accounts
    for account_id in (alice, bob):
        harness.run(harness.store.close_account(account_id, int(harness.clock())))
    erase = accounts.erase_disabled

    async def erase_while_bob_is_disabled_for_another_reason(account: Account) -> Account:
        await accounts.enable(str(bob))
        await accounts.disable(str(bob))
        return await erase(account)

    monkeypatch.setattr(accounts, "erase_disabled", erase_while_bob_is_disabled_for_another_reason)
    harness.run(harness.services.own_account.erase_closed())
    assert [is_erased(harness.run(accounts.find(str(each)))) for each in (alice, bob)] == [True, False]


def test_an_erased_account_has_no_texts(harness: Harness) -> None:
    alice, bob = harness.person("alice"), harness.person("bob")
    path, body = "/api/v1/listings", {"title": "Flat", "content": "Call 021 555 1234.", "location": "12 Rata Street"}
    ids = [harness.fetch("POST", path, key=alice.key, json={**body, "latitude": -41.2}).json()["id"] for _ in range(3)]
    harness.index_market()
    harness.fetch("DELETE", f"{path}/{ids[0]}", key=alice.key)
    harness.run(harness.services.accounts.erase(str(alice.account.id)))
    harness.index_market()
    for listing in (harness.run(harness.store.get_listing(it)) for it in ids):
        assert listing is not None
        assert (listing.title, listing.content, listing.location, listing.latitude) == ("", "", "", None)
        assert listing.deleted_at is not None
    assert harness.fetch("GET", f"{path}/{ids[0]}", key=bob.key).status == 403
    harness.run(harness.store.close())
    assert not [it for it in harness.settings.file.parent.glob("listings.db*") if b"Rata Street" in read_live(it)]
    harness.run(harness.store.open())


def read_live(file: Path) -> bytes:
    """Return the content of a database file without its free pages, or nothing for other files."""
    if file.suffix != ".db":
        return b""
    connection = apsw.Connection(str(file))
    connection.execute("VACUUM").fetchall()
    connection.close()
    return file.read_bytes()
