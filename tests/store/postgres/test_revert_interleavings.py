"""A step of a revert and other writes at the same time."""

import asyncio
from typing import Any

import pytest

from listings.domain.history import LATEST, Actor
from listings.domain.listings import AddStep
from listings.domain.model import NewListing
from listings.domain.reverts import Revert, RevertPosition, RevertRequest, RevertStep
from listings.store.postgres.store import PostgresStore
from tests.contract.helpers import erase, set_values
from tests.store.postgres.test_errors import open_session, wait_until_blocked
from tests.store.postgres.test_interleavings import open_store

BOT, OWNER = Actor(7, 1_500), Actor(8, 1_600)
PARTITION = (1, 1)


async def begin(store: PostgresStore) -> tuple[Revert, RevertStep]:
    """Begin to give two listings their external ids back. Return the revert and its last step."""
    for name in "ab":
        new = NewListing(title="Lamp", content="Bright.", external_id=name)
        added: Any = await store.add_listing(*PARTITION, AddStep(new, "2026-11-21 10:00:00"), None, OWNER)
        await store.change_listing(added.listing_id, set_values(external_id=None), BOT)
    scope, _ = await store.find_revert_scope(*PARTITION, RevertRequest("key", BOT.key_id))
    start = RevertPosition(scope.last)
    scan = await store.scan_revert(*PARTITION, scope, start)
    first = RevertStep(start, scan.candidates[:1], scan.candidates[0].position, is_last=False)
    begun = await store.begin_revert(*PARTITION, scope, first, OWNER)
    assert isinstance(begun, Revert)
    return begun, RevertStep(begun.position, scan.candidates[1:], scan.end, is_last=True)


def test_an_erasure_waits_for_a_step_and_erases_what_it_wrote(url: str) -> None:
    async def scenario() -> None:
        async with open_store(url) as store, open_session(url) as other, open_session(url) as observer:
            revert, step = await begin(store)
            async with other.transaction():
                await other.execute("SELECT 1 FROM activity WHERE subject > 0 FOR UPDATE")  # the last that a step needs
                advance = asyncio.create_task(store.advance_revert(revert.key, step, b"a" * 16, 1_700))
                await wait_until_blocked(observer)
                erasure = asyncio.create_task(erase(store, 1, "erased@example.com", 1_700))
                await wait_until_blocked(observer, 2)
            assert await advance is not None
            await erasure
            ids = await other.fetch("SELECT external_id FROM listings WHERE external_id IS NOT NULL")
            assert ids == []
            assert await other.fetch("SELECT 1 FROM changes") == []
            assert await store.page_events(*PARTITION, LATEST, 10) == []
            assert await store.get_revert(revert.key) is None

    asyncio.run(scenario())


@pytest.mark.decision("G46")
def test_a_listing_that_gets_an_external_id_before_the_locks_passes_it_on(url: str) -> None:
    async def scenario() -> None:
        async with open_store(url) as store, open_session(url) as other, open_session(url) as observer:
            ids = []
            for name in "ab":
                new = NewListing(title="Lamp", content="Bright.", external_id=name)
                added: Any = await store.add_listing(*PARTITION, AddStep(new, "2026-11-21 10:00:00"), None, OWNER)
                await store.change_listing(added.listing_id, set_values(external_id=None), BOT)
                ids.append(added.listing_id)
            request = RevertRequest("key", BOT.key_id, overwrite=True)
            scope, _ = await store.find_revert_scope(*PARTITION, request)
            start = RevertPosition(scope.last)
            scan = await store.scan_revert(*PARTITION, scope, start)
            assert [one.listing_id for one in scan.candidates] == ids[::-1]
            first = RevertStep(start, scan.candidates[:1], scan.candidates[0].position, is_last=False)
            async with other.transaction():
                await other.execute("SELECT 1 FROM listings WHERE id = $1 FOR UPDATE", ids[1])
                begin = asyncio.create_task(store.begin_revert(*PARTITION, scope, first, OWNER))
                await wait_until_blocked(observer)
                await store.change_listing(ids[0], set_values(external_id="b"), OWNER)
            revert = await begin
            assert isinstance(revert, Revert)
            assert (revert.counts.reverted, revert.counts.conflicts) == (2, 0)
            listings = [await store.get_listing(one) for one in ids]
            assert [one.external_id for one in listings if one is not None] == ["a", "b"]

    asyncio.run(scenario())
