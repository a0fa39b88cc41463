"""Numbers on the results page of the market."""

import asyncio
import shutil
from typing import Any

import pytest

from listings.domain.listings import AddStep
from listings.domain.model import NewListing, bucket_of
from listings.search.folders import find_root
from tests.harness import Harness, Person, build_scope, fetch, index_market
from tests.site.market import create, get, get_page


def test_counts_are_exact(harness: Harness) -> None:
    alice = harness.person("alice")
    harness.run(add_many(harness, alice, 1_021))
    page = get_page(harness, "/?q=lamp")
    assert "1,021 results" in page.text
    assert "All types For sale 1,021" in page.text


async def add_many(harness: Harness, person: Person, count: int) -> None:
    bucket, account_id = bucket_of(person.account.id), person.account.id
    new = NewListing(title="Lamp", content="Bright.")
    for _ in range(count):
        await harness.store.add_listing(bucket, account_id, AddStep(new, "2026-11-21 10:00:00"))
    await index_market(harness.services, harness.settings)


@pytest.mark.decision("G51")
def test_without_an_index_a_search_is_503_and_other_pages_work(harness: Harness) -> None:
    listing_id = create(harness, harness.person("alice"))
    shutil.rmtree(find_root(harness.settings.file))
    reply = get(harness, "/?q=bicycle")
    assert reply.status == 503
    assert "Search is being prepared. Try again in a minute" in reply.body.decode()
    pages = {
        path: get_page(harness, path).text for path in ("/", "/?sort=newest", f"/listings/{listing_id}", "/sellers/1")
    }
    assert all("Bicycle" in text for text in pages.values())
    assert "Search is being prepared" in pages["/?sort=newest"]
    harness.index_market()
    assert get(harness, "/?q=bicycle").status == 200


def test_a_visitor_searches_once_at_a_time(harness: Harness) -> None:
    sent: list[Any] = []
    events: list[str] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    async def search(client: str) -> None:
        await fetch(harness.application, "GET", "/?q=bicycle", [(b"accept", b"text/html")], [b""], client=client)
        events.append(client)

    async def scene() -> None:
        async with harness.services.searches.acquire(("visitors", "2001:db8::/64")):
            waiting = asyncio.create_task(search("2001:db8::1"))
            await search("192.0.2.1")
            events.append("turn ends")
        await waiting
        await harness.application(build_scope("GET", "/?q=bicycle", [(b"accept", b"text/html")]), receive, send)

    harness.run(scene())
    assert events == ["192.0.2.1", "turn ends", "2001:db8::1"]
    assert sent == []
