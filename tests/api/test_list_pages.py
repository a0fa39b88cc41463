"""Pages and cursors of GET /api/v1/listings (decision G53)."""

import asyncio
import base64
import json
import random
import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urljoin, urlsplit

import httpx2
import pytest

from bench.data import store_of
from listings.domain.listings import AddStep
from listings.domain.model import NewListing
from listings.service import Services
from tests.api.helpers import LISTINGS, RECORD_FIELDS, create_lamps, get_ids, get_invalid_request
from tests.conftest import Client
from tests.harness import Harness, RunningService

pytestmark = [pytest.mark.uncovered, pytest.mark.decision("G53")]

SORTS = ("id", "created_at", "updated_at", "price", "title")
INVALID_CURSOR = "cursor is invalid: use the one from Link or X-Next-Cursor"
OTHER_QUERY = "cursor belongs to a list with different filters or sort order"
in_every_order = pytest.mark.parametrize("sort", [f"{sign}{name}" for name in SORTS for sign in ("", "-")])


def get_next_query(response: httpx2.Response) -> str:
    """Return the query of the next page; "" on the last one."""
    if "Link" not in response.headers:
        assert "X-Next-Cursor" not in response.headers
        return ""
    link = re.fullmatch(r'<([^<>"\s]+)>; rel="next"', response.headers["Link"])
    assert link is not None, response.headers["Link"]
    url = urlsplit(urljoin(str(response.request.url), link[1]))
    assert url.path == LISTINGS
    assert parse_qs(url.query)["cursor"] == [response.headers["X-Next-Cursor"]]
    return f"?{url.query}"


def get_cursor(response: httpx2.Response) -> str:
    return parse_qs(get_next_query(response)[1:])["cursor"][0]


def get_pages(client: Client, query: str, between: Callable[[], None] = lambda: None) -> list[list[dict[str, Any]]]:
    """Return the records of all pages; call `between` after each page."""
    pages = []
    while query:
        response = client.get(query)
        assert response.status_code == 200, response.text
        pages.append(response.json()["listings"])
        query = get_next_query(response)
        between()
    return pages


def add_listings(running: RunningService, client: Client, count: int) -> list[int]:
    """Store listings with random times, prices and titles, some of them equal; return their ids."""
    account = client.person.account.id
    random_source = random.Random(count)

    async def fill(services: Services) -> list[int]:
        adding = [
            store_of(services).add_listing(
                account % 1024,
                account,
                AddStep(
                    NewListing(
                        title=random_source.choice("abcdefgÄ🚲"),
                        content="Two wheels.",
                        price_cents=100 * random_source.randrange(20),
                    ),
                    f"2026-09-{random_source.randrange(1, 29):02} 14:13:20",
                ),
            )
            for _ in range(count)
        ]
        groups = [await asyncio.gather(*adding[at : at + 500]) for at in range(0, count, 500)]
        return [added.listing_id for group in groups for added in group]

    return running.run(fill)


def sort_ids(records: list[dict[str, Any]], sort: str) -> list[int]:
    """Return the ids of the records in the order of `sort`."""
    name = sort.removeprefix("-")
    ordered = sorted(records, key=lambda record: (record[name], record["id"]), reverse=sort.startswith("-"))
    return [int(record["id"]) for record in ordered]


class ConcurrentWriter:
    """Another client of the account: it creates, updates and deletes listings, but not those in `untouched`."""

    def __init__(self, client: Client, listings: list[int]) -> None:
        self._client = client
        self._random = random.Random(7)
        self._touched = listings[::3]
        self.untouched = set(listings) - set(self._touched)

    def write(self) -> None:
        self._touched.append(
            self._client.create(title=self._random.choice("abcdefg"), price=self._random.randrange(20))
        )
        for _ in range(2):
            change = {"title": self._random.choice("abcdefg"), "price": self._random.randrange(20)}
            assert self._client.patch(f"/{self._random.choice(self._touched)}", json=change).status_code == 200
        deleted = self._touched.pop(self._random.randrange(len(self._touched)))
        assert self._client.delete(f"/{deleted}").status_code == 200


def assert_complete(client: Client, writer: ConcurrentWriter, limit: int, sort: str) -> int:
    """Check that pages contain each untouched listing once, in order; return the number of pages."""
    before = [record for record in client.get().json()["listings"] if record["id"] in writer.untouched]
    pages = get_pages(client, f"?limit={limit}&sort={sort}", writer.write)
    found = [record["id"] for page in pages for record in page if record["id"] in writer.untouched]
    assert found == sort_ids(before, sort)
    return len(pages)


@pytest.mark.every_engine
@in_every_order
def test_concurrent_writes_cause_no_gaps_or_repeats(alice: Client, running: RunningService, sort: str) -> None:
    writer = ConcurrentWriter(alice, add_listings(running, alice, 60))
    assert assert_complete(alice, writer, 7, sort) >= 7


def test_a_full_last_page_has_no_link(alice: Client) -> None:
    for _ in range(4):
        alice.create()
    pages = get_pages(alice, "?limit=2")
    assert [len(page) for page in pages] == [2, 2]


def test_the_link_is_relative_and_repeats_the_known_parameters(alice: Client) -> None:
    for number in range(3):
        alice.create(title=f"red & blue {number}", category="Bikes, old & new", region="Ōtautahi", price=12.5)
    query = {"limit": "2", "q": "red blue", "category": "Bikes, old & new", "region": "Ōtautahi", "include": "all"}
    response = alice.get(f"?{urlencode(query)}&colour=red")
    assert response.headers["Link"].startswith(f"<{LISTINGS}?limit=2&q=red%20blue&category=Bikes%2C%20old%20%26%20new&")
    repeated = parse_qs(get_next_query(response)[1:])
    assert {name: values[0] for name, values in repeated.items() if name != "cursor"} == query
    second = alice.get(get_next_query(response))
    assert len(get_ids(second)) == 1
    assert "district" in second.json()["listings"][0]


def test_the_body_of_a_page_contains_only_the_listings(alice: Client) -> None:
    for _ in range(3):
        alice.create()
    content = alice.get("?limit=2").json()
    assert list(content) == ["listings"]
    assert [list(record) for record in content["listings"]] == [RECORD_FIELDS] * 2


def test_the_limit_may_change_from_page_to_page(alice: Client, running: RunningService) -> None:
    listings = sorted(add_listings(running, alice, 10), reverse=True)
    cursor = get_cursor(alice.get("?limit=2"))
    assert get_ids(alice.get(f"?limit=3&cursor={cursor}")) == listings[2:5]
    assert get_ids(alice.get(f"?cursor={cursor}")) == listings[2:]
    assert get_ids(alice.get(f"?cursor={cursor}&sort=-id&status=active&limit=1000&include=all")) == listings[2:]


def test_the_longest_title_gives_a_valid_cursor(alice: Client) -> None:
    for title in ("\x01" * 255, "🚲" * 255, "\x02" * 255):
        alice.create(title=title)
    filters = urlencode({"category": "🚲" * 100, "region": "🚲" * 100})
    for _ in range(2):
        alice.create(title="\x01" * 255, category="🚲" * 100, region="🚲" * 100)
    assert [len(page) for page in get_pages(alice, "?limit=1&sort=title")] == [1] * 5
    assert [len(page) for page in get_pages(alice, f"?limit=1&sort=title&{filters}")] == [1, 1]


@pytest.mark.parametrize(
    "other",
    [
        *("sort=price", "sort=id", "status=all", "status=inactive", "type=job", "category=Bikes", "region=Otago"),
        *("q=bicycle", "price_min=0", "price_max=5", "updated_since=2020-01-01"),
    ],
)
def test_a_cursor_is_valid_only_for_its_own_query(alice: Client, other: str) -> None:
    for _ in range(3):
        alice.create()
    cursor, filtered = get_cursor(alice.get("?limit=1")), alice.get(f"?limit=1&{other}")
    assert get_invalid_request(alice.get(f"?limit=1&{other}&cursor={cursor}")) == OTHER_QUERY
    if "Link" in filtered.headers:
        assert get_invalid_request(alice.get(f"?limit=1&cursor={get_cursor(filtered)}")) == OTHER_QUERY


@pytest.mark.parametrize(
    "cursor", ["", "x", "abc", "====", "%00", "%C3%A9", "%F0%9F%9A%B2", "../..", "null", "WzFd", "A" * 4000, "-_-_"]
)
def test_an_invalid_cursor_is_rejected(alice: Client, cursor: str) -> None:
    assert get_invalid_request(alice.get(f"?cursor={cursor}")) == INVALID_CURSOR


def test_a_cursor_of_more_than_4000_characters_is_rejected(alice: Client) -> None:
    assert get_invalid_request(alice.get(f"?cursor={'A' * 4001}")) == "cursor must be at most 4000 characters"


def fetch_cursor(harness: Harness, key: str, query: str) -> str:
    link = harness.fetch("GET", f"{LISTINGS}?{query}", key=key).headers["link"]
    found = re.search(r"cursor=([\w-]+)>", link)
    assert found is not None
    return found[1]


def test_a_truncated_or_changed_cursor_is_rejected(harness: Harness) -> None:
    key = create_lamps(harness).key
    cursor = fetch_cursor(harness, key, "limit=1")
    page = harness.fetch("GET", f"{LISTINGS}?limit=1&cursor={cursor}", key=key).body
    changed = [cursor[:end] for end in range(len(cursor))]
    changed += [cursor[:at] + ("B" if cursor[at] == "A" else "A") + cursor[at + 1 :] for at in range(len(cursor))]
    changed += [cursor + "A", "A" + cursor, cursor + cursor]
    for other in changed:
        reply = harness.fetch("GET", f"{LISTINGS}?limit=1&cursor={other}", key=key)
        # The last character of the base64 text has unused bits.
        assert reply.status == 400 or (other[:-1] == cursor[:-1] and reply.body == page), other
        assert reply.status == 200 or reply.json() == {"error": INVALID_CURSOR}


def fetch_with_forged_cursor(harness: Harness, sort: str, change: dict[int, Any]) -> int:
    key = create_lamps(harness).key
    data = base64.urlsafe_b64decode(fetch_cursor(harness, key, f"limit=1&sort={sort}") + "==")
    parts = json.loads(data[6:])
    for index, value in change.items():
        parts[index] = value
    content = json.dumps(parts).encode()
    forged = base64.urlsafe_b64encode(sha256(content).digest()[:6] + content).decode()
    return harness.fetch("GET", f"{LISTINGS}?limit=1&sort={sort}&cursor={quote(forged)}", key=key).status


@pytest.mark.every_engine
@pytest.mark.parametrize("change", [{}, {2: 2**63 - 1}, {2: "\0'; DROP TABLE listings"}])
def test_a_forged_cursor_of_valid_types_is_harmless(harness: Harness, change: dict[int, Any]) -> None:
    for sort in SORTS:
        assert fetch_with_forged_cursor(harness, sort, change) == 200, sort


@pytest.mark.parametrize(
    "change",
    [
        {0: 2},
        {0: 10**30},
        {0: "1"},
        {2: 2**63},
        {2: 10**400},
        {2: -1},
        {2: 1.5},
        {2: None},
        {3: 2**63},
        {3: -5},
        {3: "1"},
    ],
)
def test_a_forged_cursor_of_other_types_is_rejected(harness: Harness, change: dict[int, Any]) -> None:
    assert fetch_with_forged_cursor(harness, "id", change) == 400


def test_a_cursor_of_another_account_exposes_nothing(alice: Client, bob: Client) -> None:
    for _ in range(3):
        alice.create(title="Alice's")
        bob.create(title="Bob's")
    response = bob.get(f"?limit=1&cursor={get_cursor(alice.get('?limit=1'))}")
    assert {record["title"] for record in response.json()["listings"]} <= {"Bob's"}


def test_a_cursor_outlives_a_restart(tmp_path: Path) -> None:
    with Harness(tmp_path) as harness:
        key = create_lamps(harness).key
        cursor = fetch_cursor(harness, key, "limit=2&sort=price&status=all&q=two")
        path = f"{LISTINGS}?limit=2&sort=price&status=all&q=two&cursor={cursor}"
        before = harness.fetch("GET", path, key=key)
    with Harness(tmp_path) as harness:
        after = harness.fetch("GET", path, key=key)
    assert (after.status, after.body, after.headers["etag"]) == (200, before.body, before.headers["etag"])
