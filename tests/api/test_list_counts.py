"""The ids, the entity tags and the count that a client may ask for in a list (decisions G1, G17, G53, G35)."""

import re

import pytest

from listings.api import codec
from tests.api.helpers import LISTINGS, RECORD_FIELDS, STRICT, get_etag, get_ids, get_invalid_request
from tests.api.test_large_lists import create_lamps
from tests.api.test_list_pages import get_next_query
from tests.conftest import Client
from tests.harness import Harness

COUNT = "X-Total-Count"


@pytest.mark.decision("G1")
def test_a_list_has_the_tag_of_each_listing_on_request(alice: Client) -> None:
    path = f"/{alice.create(district='Te Aro')}"
    alice.patch(path, json={"price": 5})
    tag = get_etag(alice, path)
    (listed,) = alice.get("?include=etag,district").json()["listings"]
    assert list(listed) == [*RECORD_FIELDS, "district", "etag"]
    assert listed["etag"] == alice.get(f"{path}?include=all&include=etag").json()["etag"] == tag
    assert "etag" not in alice.get("?include=all").json()["listings"][0]
    assert alice.patch(path, json={"price": 6}, headers={"If-Match": tag}).status_code == 200
    operation = {"op": "update", "id": int(path[1:]), "changes": {"price": 7}, "if_match": tag}
    (result,) = alice.post("/batch", json={"operations": [operation]}).json()["results"]
    assert result["status"] == 412
    assert get_etag(alice, "?include=etag") != get_etag(alice)
    assert get_etag(alice, f"{path}?include=etag") != get_etag(alice, path)


@pytest.mark.decision("G17")
@pytest.mark.every_engine
def test_ids_filter_a_list(alice: Client, bob: Client) -> None:
    first, second, third, paused, deleted = (alice.create(title=f"Lamp {name}", price=5) for name in "abcde")
    alice.patch(f"/{paused}", json={"is_active": False})
    alice.delete(f"/{deleted}")
    others, unknown = bob.create(), third + 1024 * 1000
    for query, found in {
        f"ids={first}": [first],
        f"ids={first},{third},{first}": [third, first],
        f"ids={first}&ids={third},{first}": [third, first],
        f"ids={first},{paused},{deleted},{others},{unknown},{2**63 - 1}": [first],
        f"ids={first},{paused},{deleted},{others}&status=all": [deleted, paused, first],
        f"ids={first},{second},{third}&sort=price&limit=2": [first, second],
        f"ids={first},{second}&q=lamp+b": [second],
        f"ids={first}&price_min=6": [],
        f"ids={others}": [],
        f"ids={','.join(str(first + 1024 * number) for number in range(100))}": [third, second, first],
    }.items():
        response = alice.get(f"?{query}&count=true")
        assert get_ids(response) == found, query
        assert response.headers[COUNT] == ("3" if "limit" in query else str(len(found)))


@pytest.mark.decision("G17")
@pytest.mark.every_engine
def test_pages_of_ids_join_up(alice: Client) -> None:
    ids = [alice.create() for _ in range(5)]
    query, found = f"?ids={','.join(map(str, ids[:4]))}&limit=3&sort=title", []
    while query:
        page = alice.get(query)
        found += get_ids(page)
        query = get_next_query(page)
    assert found == ids[:4]
    cursor = alice.get(f"?ids={ids[0]},{ids[1]}&limit=1").headers["X-Next-Cursor"]
    assert "different filters" in get_invalid_request(alice.get(f"?ids={ids[0]}&limit=1&cursor={cursor}"))
    assert get_ids(alice.get(f"?ids={ids[1]}&ids={ids[0]}&limit=1&cursor={cursor}")) == [ids[0]]


@pytest.mark.decision("G17")
def test_ids_must_be_at_most_a_hundred_ids(alice: Client) -> None:
    for text in ("", "1,", "a", "01", "0", "-1", "1.0", "1%2C%202", "9223372036854775808", "%D9%A3", "1;2"):
        assert get_invalid_request(alice.get(f"?ids={text}")).startswith(
            "ids must be a comma-separated list of listing ids, got "
        )
    many = ",".join(map(str, range(1, 101)))
    assert get_ids(alice.get(f"?ids={many}&ids={many}")) == []
    assert get_invalid_request(alice.get(f"?ids={many}&ids=101")) == "ids must be at most 100 listing ids, got 101"


@pytest.mark.decision("G53")
@pytest.mark.every_engine
def test_a_list_has_its_count_on_request(alice: Client, bob: Client) -> None:
    bob.create(title="Lamp")
    assert alice.get("?count=true").headers[COUNT] == "0"
    ids = [alice.create(title=f"Lamp {number}", price=number) for number in range(5)]
    alice.delete(f"/{ids[0]}")
    cursor = alice.get("?limit=2").headers["X-Next-Cursor"]
    for query, count in {
        "": 4,
        "status=all": 5,
        "limit=1": 4,
        f"limit=2&cursor={cursor}": 4,
        "price_min=3": 2,
        "price_min=3&limit=1&sort=-price": 2,
        "q=lamp": 4,
        "q=lamp+4&limit=1": 1,
        "q=rimu": 0,
        "category=none": 0,
    }.items():
        response = alice.get(f"?count=true&{query}", headers=STRICT)
        assert (response.status_code, response.headers[COUNT]) == (200, str(count)), query
        assert alice.request("HEAD", f"?count=true&{query}").headers[COUNT] == str(count)
    page = alice.get("?limit=3&count=true")
    assert alice.get(get_next_query(page)).headers[COUNT] == "4"


@pytest.mark.decision("G53")
def test_without_count_nothing_is_counted(alice: Client) -> None:
    alice.create()
    for query in ("", "?count=false", "?limit=1"):
        assert COUNT not in alice.get(query).headers
    assert get_invalid_request(alice.get("?count=yes")) == 'count must be true or false, got "yes"'
    assert get_invalid_request(alice.get("?count=true&count=true")) == "count may be given only once"


@pytest.mark.decision("G35")
def test_a_list_with_a_count_has_a_tag_of_its_own(alice: Client) -> None:
    """A client with a copy without the count would get a 304 otherwise, and no count."""
    tag = get_etag(alice, "?limit=1")
    counted = alice.get("?limit=1&count=true", headers={"If-None-Match": tag})
    assert (counted.status_code, counted.headers[COUNT]) == (200, "0")
    again = alice.get("?limit=1&count=true", headers={"If-None-Match": counted.headers["ETag"]})
    assert again.status_code == 304


@pytest.mark.every_engine
def test_a_large_list_has_its_count(harness: Harness) -> None:
    alice = harness.person("alice")
    create_lamps(harness, alice)
    for query in ("", "&q=brass", "&limit=5", "&q=brass&limit=5", "&sort=title"):
        reply = harness.fetch("GET", f"{LISTINGS}?count=true{query}", key=alice.key)
        assert reply.headers[COUNT.lower()] == ("8" if "q=" in query else "12")
        link = re.findall("<(.*)>", reply.headers.get("link", ""))
        assert bool(link) == ("limit" in query)
        if link:
            assert harness.fetch("GET", link[0], key=alice.key).headers[COUNT.lower()] == reply.headers[COUNT.lower()]


@pytest.mark.every_engine
@pytest.mark.decision("G53")
def test_a_count_is_exact_beyond_a_thousand_if_only_the_status_is_filtered(harness: Harness) -> None:
    alice = harness.person("alice")
    for count in (100,) * 10 + (2,):
        operations = [{"op": "create", "listing": {"title": "a", "content": "b"}}] * count
        assert harness.fetch("POST", f"{LISTINGS}/batch", key=alice.key, json={"operations": operations}).status == 200
    for query, total in {
        "": "1002",
        "&status=all&limit=1": "1002",
        "&limit=5&sort=title": "1002",
        "&status=deleted": "0",
        "&type=product": "1000+",
        "&price_max=5&limit=1": "1000+",
    }.items():
        reply = harness.fetch("GET", f"{LISTINGS}?count=true{query}", key=alice.key)
        assert (query, reply.headers[COUNT.lower()]) == (query, total)


def test_a_count_with_filters_is_exact_up_to_a_thousand() -> None:
    assert [codec.format_total(total) for total in (1_000, 1_001)] == [
        b"x-total-count: 1000\r\n",
        b"x-total-count: 1000+\r\n",
    ]
