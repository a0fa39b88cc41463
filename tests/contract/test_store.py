"""The database's id, and closing a store: guarantees of every store (`listings.store.store.Store`)."""

import asyncio

import pytest

from listings.domain.errors import Unavailable
from listings.domain.listings import AddStep
from listings.domain.model import Account, bucket_of
from listings.store.store import Store
from tests.contract.conftest import Run
from tests.contract.helpers import CREATED, MINIMAL, list_ids


def test_a_database_has_one_id(store: Store, run: Run) -> None:
    assert len(run(store.get_database_id())) == 32
    assert run(store.get_database_id()) == run(store.get_database_id())


def test_a_healthy_database_lacks_no_node(store: Store, run: Run) -> None:
    assert run(store.list_unavailable_nodes()) == []


def test_close_finishes_queued_writes(store: Store, run: Run, account: Account) -> None:
    async def close_after_writes() -> list[int]:
        bucket = bucket_of(account.id)
        writes = [
            asyncio.ensure_future(store.add_listing(bucket, account.id, AddStep(MINIMAL, CREATED))) for _ in range(500)
        ]
        await asyncio.sleep(0)
        await store.close()
        return [added.listing_id for added in await asyncio.gather(*writes)]

    ids = run(close_after_writes())
    run(store.open())
    assert set(list_ids(run, store, account)) == set(ids)


def test_a_closed_store_is_unavailable(store: Store, run: Run, account: Account) -> None:
    run(store.close())
    with pytest.raises(Unavailable):
        run(store.get_account(account.id))
    with pytest.raises(Unavailable):
        run(store.revoke_key(1, 1))
    run(store.open())
