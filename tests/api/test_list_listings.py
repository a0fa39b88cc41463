"""GET /api/v1/listings without parameters."""

import asyncio

import pytest

from bench.data import store_of
from listings.domain.listings import AddStep
from listings.domain.model import NewListing
from listings.service import Services
from tests.api.helpers import get_ids
from tests.conftest import Client
from tests.harness import RunningService


@pytest.mark.decision("G16")
def test_there_is_no_hidden_page_size(alice: Client, running: RunningService) -> None:
    account = alice.person.account.id

    async def add_listings(services: Services) -> list[int]:
        step = AddStep(NewListing(title="Bicycle", content="Two wheels."), "2026-09-21 14:13:20")
        add = store_of(services).add_listing
        adding = (add(account % 1024, account, step) for _ in range(300))
        return [added.listing_id for added in await asyncio.gather(*adding)]

    added = running.run(add_listings)
    response = alice.get()
    assert get_ids(response) == sorted(added, reverse=True)
    assert "Link" not in response.headers


@pytest.mark.parametrize("body", [b"{not json", b"\xff", b"[" * 100_000, b"x" * 3_000_000])
def test_a_body_is_ignored(alice: Client, body: bytes) -> None:
    listing = alice.create()
    assert get_ids(alice.get(content=body)) == [listing]


@pytest.mark.decision("G35")
def test_a_list_must_be_revalidated_before_reuse(alice: Client) -> None:
    assert alice.get().headers["Cache-Control"] == "private, no-cache"
