"""The parameters of GET /api/v1/listings and of a single listing (decisions G1, G17); see also test_list_pages.py."""

import random
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from listings.api.params import LIST_PARAMETERS
from tests.api.helpers import LISTINGS, RECORD_FIELDS, STRICT, create_lamps, get_ids, get_invalid_request
from tests.conftest import Client
from tests.harness import START, Harness, RunningService
from tests.http.raw import Connection
from tests.http.raw import request as raw_request

pytestmark = pytest.mark.uncovered

HIDDEN = {"district": "Te Aro", "latitude": -41.29, "longitude": 174.78}


SHOP: dict[str, dict[str, Any]] = {
    "desk": {"title": "Oak desk", "content": "Heavy.", "category": "Furniture", "region": "Otago", "price": 100},
    "café": {"title": "Café table", "content": "Oak & iron", "category": "Furniture", "price": 12.5},
    "bike": {"title": "Bike", "content": "red, 3-speed", "category": "Bikes", "region": "Otago", "price": 450.99},
    "ride": {"title": "Rides", "content": "On a red bike.", "type": "service", "region": "Ōtautahi + hills"},
    "draft": {"title": "Draft", "content": "An oak bike?", "type": "job", "is_active": False, "price": 12.5},
    "gone": {"title": "Gone", "content": "Oak.", "category": "Bikes", "price": 0.01},
}


class Shop:
    """An account whose listings have names; "draft" is inactive, and "gone" is deleted."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.names = {client.create(**fields): name for name, fields in SHOP.items()}
        self.ids = {name: listing_id for listing_id, name in self.names.items()}
        client.delete(f"/{self.ids['gone']}")

    def find(self, query: str, **more: Any) -> str:
        return " ".join(self.names[listing_id] for listing_id in get_ids(self.client.get(f"?{query}", **more)))


@pytest.fixture
def shop(alice: Client) -> Shop:
    return Shop(alice)


VALID_QUERIES = {
    "limit=1": "ride",
    "limit=0002": "ride bike",
    "limit=1000": "ride bike café desk",
    "status=active": "ride bike café desk",
    "status=inactive": "draft",
    "status=deleted": "gone",
    "status=all": "gone draft ride bike café desk",
    "type=product": "bike café desk",
    "type=service": "ride",
    "type=rental": "",
    "category=Furniture": "café desk",
    "category=furniture": "",
    "category=": "ride",
    "region=Otago": "bike desk",
    "region=%C5%8Ctautahi%20%2B%20hills": "ride",
    "region=%C5%8Ctautahi+%2B+hills": "ride",
    "region=Otago%20": "",
    "q=oak": "café desk",
    "q=OAK": "café desk",
    "q=cafe": "café",
    "q=CAF%C3%89+oak": "café",
    "q=bike+red": "ride bike",
    "q=red,bike!": "ride bike",
    "q=bik": "",
    "q=3": "bike",
    "q=oak&status=all": "gone draft café desk",
    "price_min=12.5": "bike café desk",
    "price_min=12.51": "bike desk",
    "price_max=12.50": "ride café",
    "price_max=0": "ride",
    "price_min=100&price_max=100": "desk",
    "price_max=999999999.99": "ride bike café desk",
    "updated_since=2020-01-01": "ride bike café desk",
    "updated_since=2020-01-01T00:00:00Z": "ride bike café desk",
    "updated_since=2020-01-01+00:00:00": "ride bike café desk",
    "updated_since=2020-01-01T00:00:00.123Z": "ride bike café desk",  # JavaScript's toISOString
    "updated_since=2020-01-01T00:00:00.123456%2B00:00": "ride bike café desk",  # Python's isoformat
    "updated_since=9999-12-31T23:59:59.999999+00:00": "",
    "updated_since=9999-12-31T23:59:59-13:00": "",
    "updated_since=0001-01-01T00:00:00%2B13:00": "ride bike café desk",
    "updated_since=9999-12-31%2023:59:59": "",
    "updated_since=0001-01-01": "ride bike café desk",
    "sort=id": "desk café bike ride",
    "sort=-id": "ride bike café desk",
    "sort=created_at": "desk café bike ride",
    "sort=-updated_at&status=active": "ride bike café desk",
    "sort=price": "ride café desk bike",
    "sort=-price": "bike desk café ride",
    "sort=price&status=all": "ride gone café draft desk bike",
    "sort=-price&status=all": "bike desk draft café gone ride",
    "sort=title": "bike café desk ride",
    "sort=-title": "ride desk café bike",
    "q=oak&price_max=50&category=Furniture&type=product&sort=price&limit=5": "café",
    "status=all&category=Bikes&region=Otago": "bike",
    "status=deleted&category=Bikes&price_max=1&q=oak&updated_since=2020-01-01": "gone",
    "&&limit=1&": "ride",
    "lim%69t=1": "ride",
    "colour=red&limit=1&%FF=%FF": "ride",
}


@pytest.mark.decision("G17")
def test_a_valid_query_finds_the_matching_listings(shop: Shop) -> None:
    assert {query: shop.find(query) for query in VALID_QUERIES} == VALID_QUERIES


def test_updated_since_includes_its_own_second(harness: Harness) -> None:
    key = create_lamps(harness).key
    harness.clock.advance(60)
    harness.fetch("PATCH", f"{LISTINGS}/1025", key=key, json={"price": 99})
    for time, count in {"14:14:20": 1, "14:14:21": 0, "14:13:20": 5, "14:13:21": 1}.items():
        reply = harness.fetch("GET", f"{LISTINGS}?updated_since=2026-09-21T{time}", key=key)
        assert len(reply.json()["listings"]) == count, time
    assert harness.clock() == START + 60


INVALID_TIME = "updated_since must be YYYY-MM-DD HH:MM:SS, YYYY-MM-DDTHH:MM:SSZ or YYYY-MM-DD, in UTC"
INVALID_SORT = "sort must be one of id, created_at, updated_at, price, title (prefix - for descending order)"
INVALID_INCLUDE = (
    "include must be all or a comma-separated list of district, latitude, longitude, deleted_at, external_id, etag"
)
BAD_VALUES = {
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
    "updated_since=yesterday": f'{INVALID_TIME}, got "yesterday"',
    "updated_since=2026-02-30": f'{INVALID_TIME}, got "2026-02-30"',
    "updated_since=2026-02-03T24:00:00": f'{INVALID_TIME}, got "2026-02-03T24:00:00"',
    "updated_since=2026-02-03T10:00:00%2B24:00": f'{INVALID_TIME}, got "2026-02-03T10:00:00+24:00"',
    "updated_since=2026-02-03%2B13:00": f'{INVALID_TIME}, got "2026-02-03+13:00"',
    "updated_since=1790000000": f'{INVALID_TIME}, got "1790000000"',
    "sort=colour": f'{INVALID_SORT}, got "colour"',
    "sort=--id": f'{INVALID_SORT}, got "--id"',
    "sort=": f'{INVALID_SORT}, got ""',
    "include=title": f'{INVALID_INCLUDE}, got "title"',
    "include=": f'{INVALID_INCLUDE}, got ""',
    "include=district,": f'{INVALID_INCLUDE}, got "district,"',
    "price_min=5&price_max=4.99": "price_min must not be above price_max",
    "price_max=0&price_min=0.01": "price_min must not be above price_max",
    "include=district&include=title": f'{INVALID_INCLUDE}, got "title"',
    "limit=1&limit=1": "limit may be given only once",
    "limit=1&sort=id&limit=2&limit=3": "limit may be given only once",
    "limit=x&type=car&limit=y": 'limit must be an integer from 1 to 1000, got "x"; '
    'type must be one of product, service, rental, job, got "car"; '
    'limit must be an integer from 1 to 1000, got "y"',
}


@pytest.mark.decision("G17")
def test_a_bad_value_is_rejected_with_a_clear_message(alice: Client) -> None:
    for query, expected in BAD_VALUES.items():
        message = get_invalid_request(alice.get(f"?{query}"))
        assert message.removesuffix('"') == expected.removesuffix('"'), query


def test_raw_bytes_that_are_not_ascii_are_rejected(alice: Client, running: RunningService) -> None:
    for query in (b"region=\xff", b"region=\xc3\xa9", b"\xff=1"):
        sent = raw_request("GET", f"{LISTINGS}?QUERY", alice.person.key).replace(b"QUERY", query)
        with Connection(running).send(sent) as connection:
            assert connection.read_response().status == 400


@pytest.mark.decision("G17")
def test_unknown_parameters_are_named(alice: Client) -> None:
    for query, names in {
        "page=1&limit=5&offset=0&pages=3&page=x": "page, offset, pages",
        "dry_run=true": "dry_run",
        "%C3%A9%2C=&=1": '%C3%A9%2C, ""',
        "%FF=1": "%3F",
        "lim%69t=1&colour": "colour",
    }.items():
        response = alice.get(f"?{query}")
        assert (response.status_code, response.headers["X-Ignored-Parameters"]) == (200, names)


@pytest.mark.decision("G17")
def test_every_endpoint_with_a_key_names_unknown_parameters(alice: Client) -> None:
    path = f"/{alice.create()}"
    responses = [
        alice.get("?x=1", headers={"If-None-Match": "*"}),
        alice.get(f"{path}?x=1"),
        alice.request("HEAD", f"{path}?x=1"),
        alice.post("?dry_run=true&x=1", json={"title": "t", "content": "c"}),
        alice.patch(f"{path}?x=1", json={}),
        alice.post(f"{path}/restore?x=1"),
        alice.delete(f"{path}?x=1"),
        alice.post("/batch?x=1", json={"operations": [{}]}),
    ]
    assert [response.status_code for response in responses] == [304, 200, 200, 200, 200, 200, 200, 200]
    assert {response.headers.get("X-Ignored-Parameters") for response in responses} == {"x"}


def test_known_parameters_are_not_named_as_ignored(alice: Client) -> None:
    for query in ("", "?", "?limit=5&include=district&&", "?lim%69t=1"):
        assert "X-Ignored-Parameters" not in alice.get(query).headers


def test_strict_handling_rejects_unknown_parameters(alice: Client) -> None:
    for query, message in {
        "colour=red": '"colour" is not a known parameter',
        "colour=red&size=0&colour=blue": '"colour" is not a known parameter; "size" is not a known parameter',
        "%FF=1": '"?" is not a known parameter',
        "%ED%A0%80=1": '"???" is not a known parameter',
        "dry_run=true": '"dry_run" is not a known parameter',
    }.items():
        assert get_invalid_request(alice.get(f"?{query}", headers=STRICT)) == message
        assert get_ids(alice.get(f"?{query}")) == []


def test_at_most_twenty_errors_are_listed(alice: Client) -> None:
    query = "&".join(f"p{number}=1" for number in range(500))
    message = get_invalid_request(alice.get(f"?{query}", headers=STRICT))
    assert message.endswith('"p19" is not a known parameter; and 480 more')
    assert get_ids(alice.get(f"?{query}")) == []


def test_strict_handling_accepts_known_parameters(shop: Shop) -> None:
    assert shop.find("limit=1&sort=price&include=all", headers=STRICT) == "ride"


# include


@pytest.mark.decision("G1")
def test_included_fields_follow_the_fourteen(alice: Client) -> None:
    listing = alice.create(**HIDDEN)
    for include, names in {
        "district": ["district"],
        "longitude,latitude": ["latitude", "longitude"],
        "district,district": ["district"],
        "all": ["district", "latitude", "longitude"],
        "all,deleted_at": ["district", "latitude", "longitude", "deleted_at"],
        "deleted_at": ["deleted_at"],
    }.items():
        one = alice.get(f"/{listing}?include={include}").json()
        (listed,) = alice.get(f"?include={include}").json()["listings"]
        assert list(one) == list(listed) == [*RECORD_FIELDS, *names]
        assert one == listed
        assert {name: one[name] for name in names} == {name: HIDDEN.get(name) for name in names}


def test_coordinates_that_were_never_given_are_null(alice: Client) -> None:
    record = alice.get(f"/{alice.create()}?include=all").json()
    assert (record["district"], record["latitude"], record["longitude"]) == ("", None, None)


def test_deleted_listings_have_their_time_of_deletion(harness: Harness) -> None:
    key = create_lamps(harness).key
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
@pytest.mark.every_engine
def test_a_copy_can_be_synchronised_by_updated_since(harness: Harness) -> None:
    key = create_lamps(harness).key
    copy: dict[int, dict[str, Any]] = {}
    random_source = random.Random(3)
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
        harness.clock.advance(random_source.choice((0, 1, 90)))
        harness.fetch("POST", LISTINGS, key=key, json={"title": "New", "content": "Two."})
        for number in (1, 2):
            path = f"{LISTINGS}/{1024 * random_source.randrange(1, 9) + 1}"
            is_delete = number == random_source.randrange(9)
            method, body = ("DELETE", None) if is_delete else ("PATCH", {"price": random_source.randrange(99)})
            harness.fetch(method, path, key=key, json=body)


@pytest.mark.decision("G1")
def test_a_repeated_include_is_the_same_as_a_list(alice: Client) -> None:
    path = f"/{alice.create(district='d')}"
    for queries in (
        ("?include=district,deleted_at", "?include=district&include=deleted_at"),
        ("?include=all,deleted_at", "?include=deleted_at&include=all&include=district"),
    ):
        for each in ("", path):
            one, several = (alice.get(f"{each}{query}") for query in queries)
            assert (several.content, several.headers["ETag"]) == (one.content, one.headers["ETag"])
    alice.create()
    following = alice.get("?limit=1&include=district&include=latitude").links["next"]["url"]
    assert list(alice.get(following.partition("listings")[2]).json()["listings"][0])[-2:] == ["district", "latitude"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("include=title", BAD_VALUES["include=title"]),
        ("include=all&include=title", BAD_VALUES["include=title"]),
    ],
)
def test_a_bad_include_of_a_single_listing_is_rejected(alice: Client, query: str, message: str) -> None:
    assert get_invalid_request(alice.get(f"/{alice.create()}?{query}")) == message


def test_a_single_listing_has_no_other_parameter(alice: Client) -> None:
    listing = alice.create()
    assert alice.get(f"/{listing}?limit=0&status=x").json() == alice.read(listing)
    message = get_invalid_request(alice.get(f"/{listing}?limit=1", headers=STRICT))
    assert message == '"limit" is not a known parameter'


@pytest.mark.decision("G1", "G33")
def test_responses_without_parameters_never_change(harness: Harness) -> None:
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


NAMES = st.sampled_from((*LIST_PARAMETERS, "colour", "", "%FF", "dry_run"))
PLAUSIBLE = st.sampled_from(
    (
        *("1", "0", "1000", "5.5", "-id", "price", "title", "all", "active", "deleted", "lamp", "2026-09-21", "job"),
        *("2026-09-21T14:13:20Z", "district,all", "deleted_at", "%00", "%F0%9F%9A%B2", "%ED%A0%80", "true", "Café"),
    )
)
ANY_TEXT = st.text(st.characters(exclude_characters="&#", exclude_categories=["Cs"]), max_size=30)
ENCODED = st.binary(max_size=20).map(quote)
QUERIES = st.lists(st.tuples(NAMES, PLAUSIBLE | ANY_TEXT | ENCODED), max_size=6).map(
    lambda pairs: "&".join(f"{name}={value}" for name, value in pairs)
)


@pytest.fixture(scope="module")
def shared_harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Harness, str]]:
    """A service without a rate limit, and the key of an account with listings."""
    with Harness(tmp_path_factory.mktemp("shared"), rate_limit="0") as harness:
        yield harness, create_lamps(harness).key


@pytest.mark.decision("G17")
@settings(max_examples=500)
@given(query=QUERIES | ANY_TEXT | ENCODED, strict=st.booleans(), one=st.booleans())
def test_no_query_causes_a_server_error(
    shared_harness: tuple[Harness, str],
    query: str,
    strict: bool,  # noqa: FBT001 - drawn
    one: bool,  # noqa: FBT001 - drawn
) -> None:
    harness, key = shared_harness
    path = f"{LISTINGS}/1025" if one else LISTINGS
    reply = harness.fetch("GET", f"{path}?{query}", key=key, headers=STRICT if strict else {})
    assert reply.status in {200, 400}, reply
    assert reply.status == 200 or list(reply.json()) == ["error"]
    if "link" in reply.headers:
        next_path = reply.headers["link"].partition(">")[0][1:]
        assert harness.fetch("GET", next_path, key=key).status == 200
