"""The parameters of GET /api/v1/listings and of a single listing (decisions G1, G17)."""

import asyncio
import base64
import json
import random
import re
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urljoin, urlsplit

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from listings.api.params import LIST_PARAMETERS
from listings.domain.model import NewListing
from listings.service import Service
from tests.api.test_get_listing import RECORD_FIELDS
from tests.conftest import Client
from tests.harness import START, Harness, Person, RunningService
from tests.http.raw import Connection
from tests.http.raw import request as raw_request

LISTINGS = "/api/v1/listings"
STRICT = {"Prefer": "handling=strict"}
SORTS = ("id", "created_at", "updated_at", "price", "title")
NO_CURSOR = "cursor is invalid: use the one from the Link header"
OTHER_LIST = "cursor belongs to a list with different filters or sort order"


def ids_of(response: httpx.Response) -> list[int]:
    assert response.status_code == 200, response.text
    return [record["id"] for record in response.json()["listings"]]


def next_of(response: httpx.Response) -> str:
    """The address of the next page, below the listings; "" on the last one."""
    if "Link" not in response.headers:
        return ""
    link = re.fullmatch(r'<([^<>"\s]+)>; rel="next"', response.headers["Link"])
    assert link is not None, response.headers["Link"]
    address = urlsplit(urljoin(str(response.request.url), link[1]))
    assert address.path == LISTINGS
    return f"?{address.query}"


def cursor_of(response: httpx.Response) -> str:
    return parse_qs(next_of(response)[1:])["cursor"][0]


def walk(client: Client, query: str, between: Callable[[], None] = lambda: None) -> list[list[dict[str, Any]]]:
    """All pages, with something done between them."""
    pages = []
    while query:
        response = client.get(query)
        assert response.status_code == 200, response.text
        pages.append(response.json()["listings"])
        query = next_of(response)
        between()
    return pages


def refusal(response: httpx.Response) -> str:
    assert (response.status_code, response.headers["X-Error-Code"]) == (400, "invalid_request"), response.text
    assert list(response.json()) == ["error"]
    return str(response.json()["error"])


def store(running: RunningService, client: Client, count: int) -> list[int]:
    """Listings with times, prices and titles of their own, of which some are equal."""
    account = client.person.account.id
    chance = random.Random(count)

    async def fill(service: Service) -> list[int]:
        adding = [
            service.store.add_listing(
                account % 1024,
                account,
                NewListing(
                    title=chance.choice("abcdefgÄ🚲"), content="Two wheels.", price_cents=100 * chance.randrange(20)
                ),
                f"2026-09-{chance.randrange(1, 29):02} 14:13:20",
            )
            for _ in range(count)
        ]
        groups = [await asyncio.gather(*adding[at : at + 500]) for at in range(0, count, 500)]
        return [added.listing_id for group in groups for added in group]

    return running.run(fill)


# Pages


def in_order(records: list[dict[str, Any]], sort: str) -> list[int]:
    """What is asked for, by Python's own sort."""
    name = sort.removeprefix("-")
    ordered = sorted(records, key=lambda record: (record[name], record["id"]), reverse=sort.startswith("-"))
    return [int(record["id"]) for record in ordered]


class Meddler:
    """Another client of the same account: it creates, updates and deletes; some listings it leaves alone."""

    def __init__(self, client: Client, listings: list[int]) -> None:
        self._client = client
        self._chance = random.Random(7)
        self._mine = listings[::3]
        self.left_alone = set(listings) - set(self._mine)

    def meddle(self) -> None:
        self._mine.append(self._client.create(title=self._chance.choice("abcdefg"), price=self._chance.randrange(20)))
        for _ in range(2):
            change = {"title": self._chance.choice("abcdefg"), "price": self._chance.randrange(20)}
            assert self._client.patch(f"/{self._chance.choice(self._mine)}", json=change).status_code == 200
        gone = self._mine.pop(self._chance.randrange(len(self._mine)))
        assert self._client.delete(f"/{gone}").status_code == 200


@pytest.mark.decision("G17")
@pytest.mark.parametrize("sort", [f"{sign}{name}" for name in SORTS for sign in ("", "-")])
def test_a_walk_skips_and_repeats_nothing_that_was_left_alone_while_others_write(
    alice: Client, running: RunningService, sort: str
) -> None:
    meddler = Meddler(alice, store(running, alice, 60))
    before = [record for record in alice.get().json()["listings"] if record["id"] in meddler.left_alone]
    pages = walk(alice, f"?limit=7&sort={sort}", meddler.meddle)
    found = [record["id"] for page in pages for record in page if record["id"] in meddler.left_alone]
    assert found == in_order(before, sort)
    assert len(pages) >= 7


@pytest.mark.parametrize("sort", ["-id", "price", "-updated_at", "title"])
def test_a_walk_through_a_large_account_does_neither(alice: Client, running: RunningService, sort: str) -> None:
    meddler = Meddler(alice, store(running, alice, 1100))
    before = [record for record in alice.get().json()["listings"] if record["id"] in meddler.left_alone]
    pages = walk(alice, f"?limit=150&sort={sort}", meddler.meddle)
    found = [record["id"] for page in pages for record in page if record["id"] in meddler.left_alone]
    assert found == in_order(before, sort)


@pytest.mark.parametrize("sort", [f"{sign}{name}" for name in SORTS for sign in ("", "-")])
def test_the_pages_together_are_the_whole_list(alice: Client, running: RunningService, sort: str) -> None:
    store(running, alice, 23)
    whole = alice.get(f"?sort={sort}").json()["listings"]
    pages = walk(alice, f"?limit=5&sort={sort}")
    assert [len(page) for page in pages] == [5, 5, 5, 5, 3]
    assert [record for page in pages for record in page] == whole
    assert [record["id"] for record in whole] == in_order(whole, sort)


def test_the_last_page_has_no_link_even_when_it_is_full(alice: Client) -> None:
    for _ in range(4):
        alice.create()
    pages = walk(alice, "?limit=2")
    assert [len(page) for page in pages] == [2, 2]


def test_the_link_is_a_relative_reference_with_all_that_was_asked_for(alice: Client) -> None:
    for number in range(3):
        alice.create(title=f"red & blue {number}", category="Bikes, old & new", region="Ōtautahi", price=12.5)
    query = {"limit": "2", "q": "red blue", "category": "Bikes, old & new", "region": "Ōtautahi", "include": "all"}
    response = alice.get(f"?{urlencode(query)}&colour=red")
    assert response.headers["Link"].startswith(f"<{LISTINGS}?limit=2&q=red%20blue&category=Bikes%2C%20old%20%26%20new&")
    following = parse_qs(next_of(response)[1:])
    assert {name: values[0] for name, values in following.items() if name != "cursor"} == query
    second = alice.get(next_of(response))
    assert len(ids_of(second)) == 1
    assert "district" in second.json()["listings"][0]


def test_the_body_of_a_page_has_nothing_but_the_listings(alice: Client) -> None:
    for _ in range(3):
        alice.create()
    content = alice.get("?limit=2").json()
    assert list(content) == ["listings"]
    assert [list(record) for record in content["listings"]] == [RECORD_FIELDS] * 2


def test_without_a_limit_all_come(alice: Client, running: RunningService) -> None:
    listings = store(running, alice, 250)
    response = alice.get("?sort=id")
    assert ids_of(response) == sorted(listings)
    assert "Link" not in response.headers


def test_a_page_may_be_of_another_size_than_the_one_before(alice: Client, running: RunningService) -> None:
    listings = sorted(store(running, alice, 10), reverse=True)
    cursor = cursor_of(alice.get("?limit=2"))
    assert ids_of(alice.get(f"?limit=3&cursor={cursor}")) == listings[2:5]
    assert ids_of(alice.get(f"?cursor={cursor}")) == listings[2:]
    assert ids_of(alice.get(f"?cursor={cursor}&sort=-id&status=active&limit=1000&include=all")) == listings[2:]


def test_the_longest_title_makes_a_cursor_that_is_taken(alice: Client) -> None:
    for title in ("\x01" * 255, "🚲" * 255, "\x02" * 255):
        alice.create(title=title)
    filters = urlencode({"category": "🚲" * 100, "region": "🚲" * 100})
    for _ in range(2):
        alice.create(title="\x01" * 255, category="🚲" * 100, region="🚲" * 100)
    assert [len(page) for page in walk(alice, "?limit=1&sort=title")] == [1] * 5
    assert [len(page) for page in walk(alice, f"?limit=1&sort=title&{filters}")] == [1, 1]


def test_head_answers_as_get_without_the_body(alice: Client) -> None:
    for _ in range(3):
        alice.create()
    head, get = alice.request("HEAD", "?limit=2&sort=price"), alice.get("?limit=2&sort=price")
    assert (head.status_code, head.content) == (200, b"")
    for name in ("Content-Length", "Content-Type", "ETag", "Link"):
        assert head.headers[name] == get.headers[name]


# Cursors


@pytest.mark.decision("G17")
@pytest.mark.parametrize(
    "other",
    [
        *("sort=price", "sort=id", "status=all", "status=inactive", "type=job", "category=Bikes", "region=Otago"),
        *("q=bicycle", "price_min=0", "price_max=5", "updated_since=2020-01-01"),
    ],
)
def test_a_cursor_is_for_its_own_list_alone(alice: Client, other: str) -> None:
    for _ in range(3):
        alice.create()
    plain, filtered = cursor_of(alice.get("?limit=1")), alice.get(f"?limit=1&{other}")
    assert refusal(alice.get(f"?limit=1&{other}&cursor={plain}")) == OTHER_LIST
    if "Link" in filtered.headers:
        assert refusal(alice.get(f"?limit=1&cursor={cursor_of(filtered)}")) == OTHER_LIST


@pytest.mark.parametrize(
    "cursor", ["", "x", "abc", "====", "%00", "%C3%A9", "%F0%9F%9A%B2", "../..", "null", "WzFd", "A" * 4000, "-_-_"]
)
def test_what_is_no_cursor_is_refused(alice: Client, cursor: str) -> None:
    assert refusal(alice.get(f"?cursor={cursor}")) == NO_CURSOR


def test_a_cursor_beyond_all_measure_is_refused(alice: Client) -> None:
    assert refusal(alice.get(f"?cursor={'A' * 4001}")) == "cursor must be at most 4000 characters"


@pytest.mark.decision("G17")
def test_a_cursor_that_was_cut_or_changed_anywhere_is_refused(harness: Harness) -> None:
    key = stocked(harness).key
    cursor = house_cursor(harness, key, "limit=1")
    page = harness.fetch("GET", f"{LISTINGS}?limit=1&cursor={cursor}", key=key).body
    spoiled = [cursor[:end] for end in range(len(cursor))]
    spoiled += [cursor[:at] + ("B" if cursor[at] == "A" else "A") + cursor[at + 1 :] for at in range(len(cursor))]
    spoiled += [cursor + "A", "A" + cursor, cursor + cursor]
    for other in spoiled:
        reply = harness.fetch("GET", f"{LISTINGS}?limit=1&cursor={other}", key=key)
        # The last character holds bits that mean nothing.
        assert reply.status == 400 or (other[:-1] == cursor[:-1] and reply.body == page), other
        assert reply.status == 200 or reply.json() == {"error": NO_CURSOR}


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, 200),
        ({0: 2}, 400),
        ({0: 10**30}, 400),
        ({0: "1"}, 400),
        ({2: 2**63 - 1}, 200),
        ({2: 2**63}, 400),
        ({2: 10**400}, 400),
        ({2: -1}, 400),
        ({2: 1.5}, 400),
        ({2: None}, 400),
        ({2: "\0'; DROP TABLE listings"}, 200),
        ({3: 2**63}, 400),
        ({3: -5}, 400),
        ({3: "1"}, 400),
    ],
)
def test_a_cursor_of_the_clients_own_making_does_no_harm(
    harness: Harness, sort: str, change: dict[int, Any], status: int
) -> None:
    key = stocked(harness).key
    data = base64.urlsafe_b64decode(house_cursor(harness, key, f"limit=1&sort={sort}") + "==")
    parts = json.loads(data[6:])
    for place, value in change.items():
        parts[place] = value
    content = json.dumps(parts).encode()
    forged = base64.urlsafe_b64encode(sha256(content).digest()[:6] + content).decode()
    reply = harness.fetch("GET", f"{LISTINGS}?limit=1&sort={sort}&cursor={quote(forged)}", key=key)
    assert reply.status == status, reply


def test_a_cursor_of_another_account_shows_nothing_of_it(alice: Client, bob: Client) -> None:
    for _ in range(3):
        alice.create(title="Alice's")
        bob.create(title="Bob's")
    response = bob.get(f"?limit=1&cursor={cursor_of(alice.get('?limit=1'))}")
    assert {record["title"] for record in response.json()["listings"]} <= {"Bob's"}


@pytest.mark.decision("G17")
def test_a_cursor_outlives_the_service(tmp_path: Path) -> None:
    with Harness(tmp_path) as harness:
        key = stocked(harness).key
        cursor = house_cursor(harness, key, "limit=2&sort=price&status=all&q=two")
        path = f"{LISTINGS}?limit=2&sort=price&status=all&q=two&cursor={cursor}"
        before = harness.fetch("GET", path, key=key)
    with Harness(tmp_path) as harness:
        after = harness.fetch("GET", path, key=key)
    assert (after.status, after.body, after.headers["etag"]) == (200, before.body, before.headers["etag"])


def stocked(harness: Harness) -> Person:
    """alice, with a few listings."""
    alice = harness.person("alice")
    for number in range(5):
        fields = {"title": f"Lamp {number}", "content": "Two.", "price": number}
        assert harness.fetch("POST", LISTINGS, key=alice.key, json=fields).status == 201
    return alice


def house_cursor(harness: Harness, key: str, query: str) -> str:
    link = harness.fetch("GET", f"{LISTINGS}?{query}", key=key).headers["link"]
    found = re.search(r"cursor=([\w-]+)>", link)
    assert found is not None
    return found[1]


# Each parameter


STOCK: dict[str, dict[str, Any]] = {
    "desk": {"title": "Oak desk", "content": "Heavy.", "category": "Furniture", "region": "Otago", "price": 100},
    "café": {"title": "Café table", "content": "Oak & iron", "category": "Furniture", "price": 12.5},
    "bike": {"title": "Bike", "content": "red, 3-speed", "category": "Bikes", "region": "Otago", "price": 450.99},
    "ride": {"title": "Rides", "content": "On a red bike.", "type": "service", "region": "Ōtautahi + hills"},
    "draft": {"title": "Draft", "content": "An oak bike?", "type": "job", "is_active": False, "price": 12.5},
    "gone": {"title": "Gone", "content": "Oak.", "category": "Bikes", "price": 0.01},
}


class Shop:
    """A client whose listings have names."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.names = {client.create(**fields): name for name, fields in STOCK.items()}
        self.ids = {name: listing_id for listing_id, name in self.names.items()}
        client.delete(f"/{self.ids['gone']}")

    def find(self, query: str, **more: Any) -> str:
        """The names of what is found, in its order."""
        return " ".join(self.names[listing_id] for listing_id in ids_of(self.client.get(f"?{query}", **more)))


@pytest.fixture
def shop(alice: Client) -> Shop:
    return Shop(alice)


@pytest.mark.decision("G17")
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("limit=1", "ride"),
        ("limit=0002", "ride bike"),
        ("limit=1000", "ride bike café desk"),
        ("status=active", "ride bike café desk"),
        ("status=inactive", "draft"),
        ("status=deleted", "gone"),
        ("status=all", "gone draft ride bike café desk"),
        ("type=product", "bike café desk"),
        ("type=service", "ride"),
        ("type=rental", ""),
        ("category=Furniture", "café desk"),
        ("category=furniture", ""),
        ("category=", "ride"),
        ("region=Otago", "bike desk"),
        ("region=%C5%8Ctautahi%20%2B%20hills", "ride"),
        ("region=%C5%8Ctautahi+%2B+hills", "ride"),
        ("region=Otago%20", ""),
        ("q=oak", "café desk"),
        ("q=OAK", "café desk"),
        ("q=cafe", "café"),
        ("q=CAF%C3%89+oak", "café"),
        ("q=bike+red", "ride bike"),
        ("q=red,bike!", "ride bike"),
        ("q=bik", ""),
        ("q=3", "bike"),
        ("q=oak&status=all", "gone draft café desk"),
        ("price_min=12.5", "bike café desk"),
        ("price_min=12.51", "bike desk"),
        ("price_max=12.50", "ride café"),
        ("price_max=0", "ride"),
        ("price_min=100&price_max=100", "desk"),
        ("price_min=5&price_max=4", ""),
        ("price_max=999999999.99", "ride bike café desk"),
        ("updated_since=2020-01-01", "ride bike café desk"),
        ("updated_since=2020-01-01T00:00:00Z", "ride bike café desk"),
        ("updated_since=2020-01-01+00:00:00", "ride bike café desk"),
        ("updated_since=2020-01-01T00:00:00.123Z", "ride bike café desk"),  # JavaScript's toISOString
        ("updated_since=2020-01-01T00:00:00.123456%2B00:00", "ride bike café desk"),  # Python's isoformat
        ("updated_since=9999-12-31T23:59:59.999999+00:00", ""),
        ("updated_since=9999-12-31%2023:59:59", ""),
        ("updated_since=0001-01-01", "ride bike café desk"),
        ("sort=id", "desk café bike ride"),
        ("sort=-id", "ride bike café desk"),
        ("sort=created_at", "desk café bike ride"),
        ("sort=-updated_at&status=active", "ride bike café desk"),
        ("sort=price", "ride café desk bike"),
        ("sort=-price", "bike desk café ride"),
        ("sort=price&status=all", "ride gone café draft desk bike"),
        ("sort=-price&status=all", "bike desk draft café gone ride"),
        ("sort=title", "bike café desk ride"),
        ("sort=-title", "ride desk café bike"),
        ("q=oak&price_max=50&category=Furniture&type=product&sort=price&limit=5", "café"),
        ("status=all&category=Bikes&region=Otago", "bike"),
        ("status=deleted&category=Bikes&price_max=1&q=oak&updated_since=2020-01-01", "gone"),
        ("&&limit=1&", "ride"),
        ("lim%69t=1", "ride"),
        ("Limit=1", "ride bike café desk"),
        ("colour=red&limit=1&%FF=%FF", "ride"),
    ],
)
def test_a_good_value_finds_what_it_says(shop: Shop, query: str, found: str) -> None:
    assert shop.find(query) == found


def test_updated_since_includes_its_own_second(harness: Harness) -> None:
    key = stocked(harness).key
    harness.clock.advance(60)
    harness.fetch("PATCH", f"{LISTINGS}/1025", key=key, json={"price": 99})
    for query, count in {"14:14:20": 1, "14:14:21": 0, "14:13:20": 5, "14:13:21": 1}.items():
        reply = harness.fetch("GET", f"{LISTINGS}?updated_since=2026-09-21T{query}", key=key)
        assert len(reply.json()["listings"]) == count, query
    assert harness.clock() == START + 60


NO_MOMENT = "updated_since must be YYYY-MM-DD HH:MM:SS, YYYY-MM-DDTHH:MM:SSZ or YYYY-MM-DD, in UTC"
NO_ORDER = "sort must be one of id, created_at, updated_at, price, title (prefix - for descending order)"
NOT_INCLUDED = "include must be all or a comma-separated list of district, latitude, longitude, deleted_at"
BAD = {
    "limit=0": 'limit must be an integer from 1 to 1000, got "0"',
    "limit=1001": 'limit must be an integer from 1 to 1000, got "1001"',
    "limit=": 'limit must be an integer from 1 to 1000, got ""',
    "limit=-5": 'limit must be an integer from 1 to 1000, got "-5"',
    "limit=1.0": 'limit must be an integer from 1 to 1000, got "1.0"',
    "limit=+5": 'limit must be an integer from 1 to 1000, got " 5"',
    "limit=%D9%A3": 'limit must be an integer from 1 to 1000, got "٣"',
    "limit=" + "9" * 100: f'limit must be an integer from 1 to 1000, got "{"9" * 36}...',
    "status=": 'status must be one of active, inactive, deleted, all, got ""',
    "status=Active": 'status must be one of active, inactive, deleted, all, got "Active"',
    "type=car": 'type must be one of product, service, rental, job, got "car"',
    "type=": 'type must be one of product, service, rental, job, got ""',
    "category=" + "c" * 101: "category must be at most 100 characters, got 101",
    "category=%00": "category must not contain the character U+0000",
    "region=" + "%C3%A9" * 101: "region must be at most 100 characters, got 101",
    "region=%FF": "region must be percent-encoded UTF-8",
    "region=%ED%A0%80": "region must be percent-encoded UTF-8",
    "region=a%C3": "region must be percent-encoded UTF-8",
    "q=": "q must have 1 to 10 words of letters or digits, and at most 200 characters",
    "q=%3F!+-": "q must have 1 to 10 words of letters or digits, and at most 200 characters",
    "q=a+b+c+d+e+f+g+h+i+j+k": "q must have 1 to 10 words of letters or digits, and at most 200 characters",
    "q=" + "a" * 201: "q must have 1 to 10 words of letters or digits, and at most 200 characters",
    "price_min=cheap": 'price_min must be a number of dollars like 12.50, got "cheap"',
    "price_min=": 'price_min must be a number of dollars like 12.50, got ""',
    "price_min=-1": 'price_min must be a number of dollars like 12.50, got "-1"',
    "price_min=1e3": 'price_min must be a number of dollars like 12.50, got "1e3"',
    "price_max=NaN": 'price_max must be a number of dollars like 12.50, got "NaN"',
    "price_max=$5": 'price_max must be a number of dollars like 12.50, got "$5"',
    "price_max=12.505": "price_max must have at most two decimals, got 12.505",
    "price_max=1000000000": "price_max must be from 0 to 999999999.99, got 1000000000.0",
    "updated_since=yesterday": f'{NO_MOMENT}, got "yesterday"',
    "updated_since=2026-02-30": f'{NO_MOMENT}, got "2026-02-30"',
    "updated_since=2026-02-03T24:00:00": f'{NO_MOMENT}, got "2026-02-03T24:00:00"',
    "updated_since=2026-02-03T10:00:00%2B13:00": f'{NO_MOMENT}, got "2026-02-03T10:00:00+13:00"',
    "updated_since=1790000000": f'{NO_MOMENT}, got "1790000000"',
    "sort=colour": f'{NO_ORDER}, got "colour"',
    "sort=--id": f'{NO_ORDER}, got "--id"',
    "sort=": f'{NO_ORDER}, got ""',
    "include=title": f'{NOT_INCLUDED}, got "title"',
    "include=": f'{NOT_INCLUDED}, got ""',
    "include=district,": f'{NOT_INCLUDED}, got "district,"',
    "limit=1&limit=1": "limit may be given only once",
    "limit=1&sort=id&limit=2&limit=3": "limit may be given only once",
    "limit=x&type=car&limit=y": 'limit must be an integer from 1 to 1000, got "x"; '
    'type must be one of product, service, rental, job, got "car"; '
    'limit must be an integer from 1 to 1000, got "y"',
}


@pytest.mark.decision("G17")
@pytest.mark.parametrize("query", BAD, ids=[query[:40] for query in BAD])
def test_a_bad_value_is_told_in_a_sentence(alice: Client, query: str) -> None:
    sentence = refusal(alice.get(f"?{query}"))
    assert sentence.removesuffix('"') == BAD[query].removesuffix('"')


def test_bytes_that_no_client_should_send_are_refused_too(alice: Client, running: RunningService) -> None:
    for query in (b"region=\xff", b"region=\xc3\xa9", b"\xff=1"):
        lines = raw_request("GET", f"{LISTINGS}?QUERY", alice.person.key).replace(b"QUERY", query)
        with Connection(running).send(lines) as connection:
            assert connection.read_response().status == 400


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("colour=red", '"colour" is not a known parameter'),
        ("limit=1&Limit=1", '"Limit" is not a known parameter'),
        ("colour=red&size=0&colour=blue", '"colour" is not a known parameter; "size" is not a known parameter'),
        ("%FF=1", '"?" is not a known parameter'),
        ("%ED%A0%80=1", '"???" is not a known parameter'),
        ("dry_run=true", '"dry_run" is not a known parameter'),
    ],
)
def test_under_strict_handling_an_unknown_parameter_is_refused(alice: Client, query: str, sentence: str) -> None:
    assert refusal(alice.get(f"?{query}", headers=STRICT)) == sentence
    assert ids_of(alice.get(f"?{query}")) == []


def test_of_very_many_faults_twenty_are_told(alice: Client) -> None:
    query = "&".join(f"p{number}=1" for number in range(500))
    assert refusal(alice.get(f"?{query}", headers=STRICT)).endswith('"p19" is not a known parameter; and 480 more')
    assert ids_of(alice.get(f"?{query}")) == []


def test_strict_handling_has_nothing_against_known_parameters(shop: Shop) -> None:
    assert shop.find("limit=1&sort=price&include=all", headers=STRICT) == "ride"


# What more of a record is shown


HIDDEN = {"district": "Te Aro", "latitude": -41.29, "longitude": 174.78}


@pytest.mark.decision("G1")
@pytest.mark.parametrize(
    ("include", "names"),
    [
        ("district", ["district"]),
        ("longitude,latitude", ["latitude", "longitude"]),
        ("district,district", ["district"]),
        ("all", ["district", "latitude", "longitude"]),
        ("all,deleted_at", ["district", "latitude", "longitude", "deleted_at"]),
        ("deleted_at", ["deleted_at"]),
    ],
)
def test_what_is_included_stands_behind_the_fourteen_fields(alice: Client, include: str, names: list[str]) -> None:
    listing = alice.create(**HIDDEN)
    one = alice.get(f"/{listing}?include={include}").json()
    (listed,) = alice.get(f"?include={include}").json()["listings"]
    assert list(one) == list(listed) == [*RECORD_FIELDS, *names]
    assert one == listed
    assert {name: one[name] for name in names} == {name: HIDDEN.get(name) for name in names}


def test_coordinates_that_were_never_given_are_null(alice: Client) -> None:
    record = alice.get(f"/{alice.create()}?include=all").json()
    assert (record["district"], record["latitude"], record["longitude"]) == ("", None, None)


def test_tombstones_tell_when_they_were_made(harness: Harness) -> None:
    key = stocked(harness).key
    harness.clock.advance(60)
    harness.fetch("DELETE", f"{LISTINGS}/1025", key=key)
    harness.clock.advance(60)
    harness.fetch("PATCH", f"{LISTINGS}/2049", key=key, json={"is_active": False})
    query = "status=all&updated_since=2026-09-21T14:13:21&sort=updated_at&include=deleted_at"
    changed = harness.fetch("GET", f"{LISTINGS}?{query}", key=key).json()["listings"]
    assert [(record["id"], record["is_active"], record["deleted_at"]) for record in changed] == [
        (1025, False, "2026-09-21 14:14:20"),
        (2049, False, None),
    ]


@pytest.mark.decision("G17")
def test_a_copy_is_kept_in_step_by_what_has_changed_since(harness: Harness) -> None:
    key = stocked(harness).key
    copy: dict[int, dict[str, Any]] = {}
    chance = random.Random(3)
    since = "2026-09-21 14:13:20"
    for _ in range(12):
        query = urlencode({"status": "all", "sort": "updated_at", "include": "deleted_at", "updated_since": since})
        changed = harness.fetch("GET", f"{LISTINGS}?{query}", key=key).json()["listings"]
        for record in changed:
            copy.pop(record["id"], None)
            if record.pop("deleted_at") is None and record["is_active"]:
                copy[record["id"]] = record
        now = harness.fetch("GET", LISTINGS, key=key).json()["listings"]
        assert sorted(copy.values(), key=lambda record: -record["id"]) == now
        since = max([since, *(record["updated_at"] for record in changed)])
        harness.clock.advance(chance.choice((0, 1, 90)))
        harness.fetch("POST", LISTINGS, key=key, json={"title": "New", "content": "Two."})
        for number in (1, 2):
            segment = 1024 * chance.randrange(1, 9) + 1
            method, body = (("PATCH", {"price": chance.randrange(99)}), ("DELETE", None))[number == chance.randrange(9)]
            harness.fetch(method, f"{LISTINGS}/{segment}", key=key, json=body)


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("include=title", BAD["include=title"]),
        ("include=all&include=all", "include may be given only once"),
    ],
)
def test_a_bad_include_of_a_single_listing_is_refused(alice: Client, query: str, sentence: str) -> None:
    assert refusal(alice.get(f"/{alice.create()}?{query}")) == sentence


def test_a_single_listing_knows_no_other_parameter(alice: Client) -> None:
    listing = alice.create()
    assert alice.get(f"/{listing}?limit=0&status=x").json() == alice.read(listing)
    assert refusal(alice.get(f"/{listing}?limit=1", headers=STRICT)) == '"limit" is not a known parameter'


# What was there before stays


@pytest.mark.decision("G1", "G33")
def test_the_plain_answers_are_what_they_were_to_the_byte(harness: Harness) -> None:
    key = harness.person("alice").key
    fields = {"title": "Chair", "content": "Oak.", "price": 45, "images": ["/1.jpg"], "latitude": 1, "district": "d"}
    created = harness.fetch("POST", LISTINGS, key=key, json=fields)
    record = (
        b'{"id":1025,"title":"Chair","content":"Oak.","type":"product","category":"","images":["/1.jpg"],'
        b'"price":45.0,"price_type":"fixed","location":"","region":"","is_active":true,"view_count":0,'
        b'"created_at":"2026-09-21 14:13:20","updated_at":"2026-09-21 14:13:20"}'
    )
    assert created.body == b'{"id":1025,"message":"listing created"}'
    assert harness.fetch("GET", f"{LISTINGS}/1025", key=key).body == record
    for query in ("", "?", "?colour=red", "?" + "&" * 5000, "?" + "a&" * 2000):
        reply = harness.fetch("GET", LISTINGS + query, key=key)
        assert reply.body == b'{"listings":[' + record + b"]}"
        assert "link" not in reply.headers
    assert harness.fetch("PATCH", f"{LISTINGS}/1025?x=1", key=key, json={}).body == b'{"message":"listing updated"}'
    assert harness.fetch("DELETE", f"{LISTINGS}/1025?x=1", key=key).body == b'{"message":"listing deleted"}'


# Anything at all


NAMES = st.sampled_from((*LIST_PARAMETERS, "colour", "", "%FF", "dry_run"))
PLAUSIBLE = st.sampled_from(
    (
        *("1", "0", "1000", "5.5", "-id", "price", "title", "all", "active", "deleted", "lamp", "2026-09-21", "job"),
        *("2026-09-21T14:13:20Z", "district,all", "deleted_at", "%00", "%F0%9F%9A%B2", "%ED%A0%80", "true", "Café"),
    )
)
ANYTHING = st.text(st.characters(exclude_characters="&#", exclude_categories=["Cs"]), max_size=30)
ENCODED = st.binary(max_size=20).map(quote)
QUERIES = st.lists(st.tuples(NAMES, PLAUSIBLE | ANYTHING | ENCODED), max_size=6).map(
    lambda pairs: "&".join(f"{name}={value}" for name, value in pairs)
)


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Harness, str]]:
    with Harness(tmp_path_factory.mktemp("fuzzed"), rate_limit="0") as harness:
        yield harness, stocked(harness).key


@pytest.mark.decision("G17")
@settings(max_examples=1500)
@given(query=QUERIES | ANYTHING | ENCODED, strict=st.booleans(), one=st.booleans())
def test_no_query_at_all_makes_the_service_fail(
    fuzzed: tuple[Harness, str],
    query: str,
    strict: bool,  # noqa: FBT001 - drawn
    one: bool,  # noqa: FBT001 - drawn
) -> None:
    harness, key = fuzzed
    path = f"{LISTINGS}/1025" if one else LISTINGS
    reply = harness.fetch("GET", f"{path}?{query}", key=key, headers=STRICT if strict else {})
    assert reply.status in {200, 400}, reply
    assert list(reply.json()) == (["error"] if reply.status == 400 else list(reply.json()))
    if "link" in reply.headers:
        following = reply.headers["link"].partition(">")[0][1:]
        assert harness.fetch("GET", following, key=key).status == 200
