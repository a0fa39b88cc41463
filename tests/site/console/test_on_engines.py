"""The hints for a large account, on SQLite and on PostgreSQL."""

import asyncio
from pathlib import Path

import pytest

from listings.domain.model import NewListing
from listings.service import Services
from tests.site.console.test_drafts import make_reads_slow
from tests.site.tab import open_console, open_harness


@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
def test_a_large_account_sees_what_needs_attention(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine
    with open_harness(tmp_path) as harness:
        tab = open_console(harness)
        harness.run(fill(harness.services, 5_000))
        make_reads_slow(monkeypatch)
        assert "Over 1,000 listings without a picture" in tab.get("/console").text
        assert "Publish 1 draft" in tab.text
        for show, count in (("no-picture", 50), ("no-price", 50), ("no-views", 0), ("drafts", 1)):
            page = tab.get(f"/console/listings?show={show}").page
            assert len(page.values("input", "value", name="id")) == count, show


async def fill(services: Services, count: int) -> None:
    """Create listings of Alice, the first one as a draft, and index them."""
    key = await services.keys.create("alice@example.com", "test")
    caller = await services.access.authenticate(key.secret)
    for start in range(0, count, 500):
        new = [NewListing(title="Lamp", content="c", is_active=bool(start + number)) for number in range(500)]
        await asyncio.gather(*(services.listings.create(caller, one) for one in new))
    while await services.market.index_accounts():
        pass
