"""What search engines read beside the pages."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import apsw

from tests.harness import Harness
from tests.site.market import create, get

NAMES = {"s": "http://www.sitemaps.org/schemas/sitemap/0.9"}


def locations(harness: Harness, path: str) -> list[str | None]:
    reply = get(harness, path)
    assert (reply.status, reply.headers["content-type"]) == (200, "application/xml; charset=utf-8")
    assert reply.headers["cache-control"] == "public, max-age=3600"
    return [one.text for one in ET.fromstring(reply.body).findall(".//s:loc", NAMES)]  # noqa: S314 - ours


def test_robots_are_shown_the_market_alone(harness: Harness) -> None:
    reply = get(harness, "/robots.txt")
    assert (reply.status, reply.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    lines = reply.body.decode().splitlines()
    assert lines[0] == "User-agent: *"
    assert {"Disallow: /api/", "Disallow: /console", "Sitemap: http://market.example/sitemap.xml"} <= set(lines)


def test_a_market_without_listings_has_an_empty_map(harness: Harness) -> None:
    assert locations(harness, "/sitemap.xml") == ["http://market.example/sitemaps/1.xml"]
    assert locations(harness, "/sitemaps/1.xml") == []


def test_the_map_leads_to_every_listing_that_is_shown(harness: Harness) -> None:
    alice = harness.person("alice")
    shown = [create(harness, alice) for _ in range(3)]
    create(harness, alice, is_active=False)
    (part,) = locations(harness, "/sitemap.xml")
    assert part is not None
    found = locations(harness, part.removeprefix("http://market.example"))
    assert found == [f"http://market.example/listings/{listing_id}" for listing_id in shown]
    text = get(harness, "/sitemaps/1.xml").body.decode()
    assert re.findall("<lastmod>(.*?)</lastmod>", text) == ["2026-09-21T14:13:20Z"] * 3


def test_a_large_market_has_parts_that_repeat_and_skip_nothing(harness: Harness) -> None:
    alice = harness.person("alice")
    ids = [create(harness, alice) for _ in range(4)]
    with apsw.Connection(str(harness.settings.database)) as database:
        for serial, listing_id in zip((49_999, 50_000, 99_999, 100_000), ids, strict=True):
            database.execute("UPDATE market SET serial = ? WHERE listing_id = ?", (serial, listing_id))
    first, second, third = (locations(harness, f"/sitemaps/{number}.xml") for number in (1, 2, 3))
    assert [len(part) for part in (first, second, third)] == [1, 2, 1]
    assert first + second + third == [f"http://market.example/listings/{listing_id}" for listing_id in ids]


def test_a_part_that_can_not_be_is_not_found(harness: Harness) -> None:
    assert [get(harness, f"/sitemaps/{text}.xml").status for text in ("0", "x", "9" * 19)] == [404] * 3


def test_addresses_are_those_that_the_operator_has_set(tmp_path: Path) -> None:
    with Harness(tmp_path, base_url="https://shop.example") as harness:
        assert locations(harness, "/sitemap.xml") == ["https://shop.example/sitemaps/1.xml"]
