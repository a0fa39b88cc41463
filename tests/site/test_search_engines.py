"""robots.txt and the sitemaps."""

import asyncio
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import apsw
import pytest

from listings.domain.errors import Unavailable
from listings.domain.model import SitemapEntry
from tests.harness import Harness, Reply, fetch
from tests.site.market import create, get

NAMESPACES = {"s": "http://www.sitemaps.org/schemas/sitemap/0.9"}


def locations(harness: Harness, path: str) -> list[str | None]:
    reply = get(harness, path)
    assert (reply.status, reply.headers["content-type"]) == (200, "application/xml; charset=utf-8")
    assert reply.headers["cache-control"] == "public, max-age=3600"
    return [one.text for one in ET.fromstring(reply.body).findall(".//s:loc", NAMESPACES)]  # noqa: S314 - created by the service


def test_robots_txt_allows_only_the_market(harness: Harness) -> None:
    reply = get(harness, "/robots.txt")
    assert (reply.status, reply.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    lines = reply.body.decode().splitlines()
    assert lines[0] == "User-agent: *"
    assert {"Disallow: /api/", "Disallow: /console", "Sitemap: http://market.example/sitemap.xml"} <= set(lines)


def test_the_sitemap_of_an_empty_market_is_empty(harness: Harness) -> None:
    assert locations(harness, "/sitemap.xml") == ["http://market.example/sitemaps/1.xml"]
    assert locations(harness, "/sitemaps/1.xml") == []


def test_the_sitemap_contains_every_visible_listing(harness: Harness) -> None:
    alice = harness.person("alice")
    shown = [create(harness, alice) for _ in range(3)]
    create(harness, alice, is_active=False)
    (sitemap,) = locations(harness, "/sitemap.xml")
    assert sitemap is not None
    found = locations(harness, sitemap.removeprefix("http://market.example"))
    assert found == [f"http://market.example/listings/{listing_id}" for listing_id in shown]
    text = get(harness, "/sitemaps/1.xml").body.decode()
    assert re.findall("<lastmod>(.*?)</lastmod>", text) == ["2026-09-21T14:13:20Z"] * 3


def test_a_large_market_has_several_sitemaps(harness: Harness) -> None:
    alice = harness.person("alice")
    ids = [create(harness, alice) for _ in range(4)]
    with apsw.Connection(str(harness.settings.database)) as database:
        for serial, listing_id in zip((49_999, 50_000, 99_999, 100_000), ids, strict=True):
            database.execute("UPDATE market_listings SET serial = ? WHERE listing_id = ?", (serial, listing_id))
        database.execute("UPDATE market_indexer SET serial = 100000")
    first, second, third = (locations(harness, f"/sitemaps/{number}.xml") for number in (1, 2, 3))
    assert [len(sitemap) for sitemap in (first, second, third)] == [1, 2, 1]
    assert first + second + third == [f"http://market.example/listings/{listing_id}" for listing_id in ids]


def test_sitemaps_take_turns_and_let_others_run(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    async def page_sitemap(after: int, count: int) -> list[SitemapEntry]:
        steps.append("read")
        asyncio.get_running_loop().call_soon(steps.append, "others")
        serials = range(after + 1, min(after + 1 + count, 1_200))
        return [SitemapEntry(serial, serial, "2026-01-01 00:00:00") for serial in serials]

    async def request_both() -> list[Reply]:
        request = (harness.application, "GET", "/sitemaps/1.xml", [(b"accept", b"text/html")], [b""])
        return [*await asyncio.gather(fetch(*request), fetch(*request))]

    monkeypatch.setattr(harness.services.market, "page_sitemap", page_sitemap)
    replies = harness.run(request_both())
    assert [reply.body.count(b"<url>") for reply in replies] == [1_200, 1_200]
    assert steps == ["read", "others"] * 8


def test_a_sitemap_that_can_not_be_read_is_unavailable(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    async def page_sitemap(*_: int) -> list[SitemapEntry]:
        raise Unavailable("The database is locked")

    monkeypatch.setattr(harness.services.market, "page_sitemap", page_sitemap)
    assert get(harness, "/sitemaps/1.xml").status == 503


def test_an_invalid_sitemap_number_is_not_found(harness: Harness) -> None:
    assert [get(harness, f"/sitemaps/{text}.xml").status for text in ("0", "x", "9" * 19)] == [404] * 3


def test_sitemap_urls_use_the_base_url(tmp_path: Path) -> None:
    with Harness(tmp_path, base_url="https://shop.example") as harness:
        assert locations(harness, "/sitemap.xml") == ["https://shop.example/sitemaps/1.xml"]
