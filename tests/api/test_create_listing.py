"""POST /api/v1/listings."""

import asyncio
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import httpx
import pytest

from listings.domain.model import Listing
from tests.conftest import Client
from tests.harness import MONTH, Harness, Person, RunningService, create_person

LISTINGS = "/api/v1/listings"
NEEDED = {"title": "Bicycle", "content": "Two wheels."}
DEFAULTS = {
    "type": "product",
    "category": "",
    "images": [],
    "price": 0,
    "price_type": "fixed",
    "location": "",
    "region": "",
    "is_active": True,
    "view_count": 0,
}
EVERYTHING = {
    "title": "Städtefahrrad 🚲",
    "content": "Zwei Räder.\nKaum gefahren.",
    "type": "rental",
    "category": "Bicycles",
    "images": ["https://pictures.example/2.jpg", "/uploads/1.jpg"],
    "price": 19.99,
    "price_type": "per_night",
    "location": "12 Cuba Street",
    "region": "Wellington",
    "is_active": False,
}


def row_of(running: RunningService, listing_id: int) -> Listing:
    found = running.run(lambda service: service.store.get_listing(listing_id))
    assert found is not None
    return found


def stores_nothing(client: Client, running: RunningService) -> bool:
    """Whether the account has no listing at all, drafts and deleted ones included."""
    account = client.person.account.id
    return running.run(lambda service: service.store.get_revision(account % 1024, account)) == 0


# The answer


@pytest.mark.decision("G15")
def test_a_listing_is_created_with_201_an_id_and_a_message(alice: Client) -> None:
    response = alice.post(json=NEEDED)
    content = response.json()
    assert response.status_code == 201
    assert list(content) == ["id", "message"]
    assert type(content["id"]) is int
    assert content["message"] == "listing created"


@pytest.mark.decision("G14")
def test_the_location_is_where_the_listing_can_be_read(alice: Client, http: httpx.Client) -> None:
    response = alice.post(json=NEEDED)
    listing = response.json()["id"]
    assert response.headers["Location"] == f"{LISTINGS}/{listing}"
    read = http.get(response.headers["Location"], headers={"X-API-Key": alice.person.key})
    assert (read.status_code, read.json()["id"]) == (200, listing)


def test_a_refused_listing_has_no_location(alice: Client) -> None:
    assert "Location" not in alice.post(json={}).headers


# What is stored


@pytest.mark.decision("G5", "G9")
def test_what_was_never_given_is_empty_and_the_listing_is_active(alice: Client) -> None:
    record = alice.read(alice.create(**NEEDED))
    assert {name: value for name, value in record.items() if name in DEFAULTS} == DEFAULTS


def test_everything_given_is_read_back(alice: Client) -> None:
    record = alice.read(alice.create(**EVERYTHING))
    assert {name: value for name, value in record.items() if name in EVERYTHING} == EVERYTHING


@pytest.mark.decision("G1")
def test_district_and_coordinates_are_stored_and_not_shown(alice: Client, running: RunningService) -> None:
    listing = alice.create(district="Te Aro", latitude=-41.29, longitude=174.78)
    row = row_of(running, listing)
    assert (row.district, row.latitude, row.longitude) == ("Te Aro", -41.29, 174.78)
    assert {"district", "latitude", "longitude"}.isdisjoint(alice.read(listing))


def test_district_and_coordinates_never_given_are_empty(alice: Client, running: RunningService) -> None:
    row = row_of(running, alice.create())
    assert (row.district, row.latitude, row.longitude) == ("", None, None)


@pytest.mark.decision("G5")
@pytest.mark.parametrize("name", [*DEFAULTS, "district", "latitude", "longitude"])
def test_null_for_an_optional_field_means_not_given(alice: Client, name: str) -> None:
    record = alice.read(alice.create(**{name: None}))
    assert {name: value for name, value in record.items() if name in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize(
    ("name", "value"), [("category", ""), ("location", ""), ("region", ""), ("district", ""), ("images", [])]
)
def test_an_empty_value_is_as_good_as_none(alice: Client, name: str, value: object) -> None:
    record = alice.read(alice.create(**{name: value}))
    assert {name: value for name, value in record.items() if name in DEFAULTS} == DEFAULTS


@pytest.mark.decision("G9")
@pytest.mark.parametrize("flag", [True, False])
def test_a_listing_can_begin_as_a_draft(alice: Client, *, flag: bool) -> None:
    listing = alice.create(is_active=flag)
    assert alice.read(listing)["is_active"] is flag
    assert [record["id"] for record in alice.get().json()["listings"]] == [listing] * flag


@pytest.mark.decision("G2")
@pytest.mark.parametrize(
    "text",
    [
        "  kept  ",
        "\ttabs\r\nand lines\n",
        "from Word\v and PDF\f",
        "\x01\x1f\x7f\x80\x9f",
        "é is not e\u0301",
        "İstanbul ǅ ß ﬁ",
        "\u200b\u2028\ufeff\ufffd\uffff",
        "👩‍👩‍👧 🏴󠁧󠁢󠁷󠁬󠁳󠁿 \U0010ffff",
        "مرحبا \u202e!",
        "'; DROP TABLE listings; --",
        "<script>alert(1)</script>&amp;",
        '\\u0041 \\ " /',
        "$1 ?1 %s {0}",
    ],
)
def test_text_is_kept_exactly_as_sent(alice: Client, text: str) -> None:
    sent = {**dict.fromkeys(["title", "content", "category", "location", "region"], text)}
    record = alice.read(alice.create(**sent))
    assert {name: record[name] for name in sent} == sent


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        (b"0", 0),
        (b"-0", 0),
        (b"-0.0", 0),
        (b"5", 5),
        (b"0.01", 0.01),
        (b"19.99", 19.99),
        (b"1999e-2", 19.99),
        (b"19.990000000000000000000000", 19.99),
        (b"0.30000000000000004", 0.3),
        (b"4.35", 4.35),
        (b"999999999.98", 999_999_999.98),
        (b"999999999.99", 999_999_999.99),
        (b"1E2", 100),
    ],
)
def test_a_price_is_shown_as_it_was_meant(alice: Client, sent: bytes, shown: float) -> None:
    response = alice.post(content=b'{"title": "a", "content": "b", "price": ' + sent + b"}")
    text = alice.get(f"/{response.json()['id']}").text
    match = re.search(r'"price":([-+.0-9eE]+)', text)
    assert match is not None
    assert float(match[1]) == shown
    assert not match[1].startswith("-")


@pytest.mark.decision("G3")
def test_images_keep_their_order_and_their_duplicates(alice: Client) -> None:
    images = ["https://a.example/b.jpg", "/a.jpg", "https://a.example/b.jpg", 'https://bücher.example/"鳥".png']
    assert alice.read(alice.create(images=images))["images"] == images


def test_of_duplicate_keys_the_last_wins(alice: Client) -> None:
    response = alice.post(content=b'{"title": 5, "content": "b", "title": "first", "title": "last"}')
    assert alice.read(response.json()["id"])["title"] == "last"


@pytest.mark.decision("G20")
@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded", "application/xml"])
def test_the_content_type_is_not_enforced(alice: Client, content_type: str | None) -> None:
    headers = {"Content-Type": content_type} if content_type is not None else {}
    response = alice.post(content=b'{"title": "a", "content": "b"}', headers=headers)
    assert response.status_code == 201


def test_a_trailing_slash_is_the_same_path(alice: Client) -> None:
    response = alice.post("/", json=NEEDED)
    assert response.headers["Location"] == f"{LISTINGS}/{response.json()['id']}"


# The times


@pytest.mark.decision("G7")
def test_both_times_are_the_moment_of_creation(harness: Harness) -> None:
    key = harness.person("alice").key
    harness.clock.advance(0.999)
    listing = harness.fetch("POST", LISTINGS, key=key, json=NEEDED).json()["id"]
    record = harness.fetch("GET", f"{LISTINGS}/{listing}", key=key).json()
    assert record["created_at"] == record["updated_at"] == "2026-09-21 14:13:20"


# The id


@pytest.mark.decision("G7a")
def test_ids_ascend_and_carry_the_accounts_bucket(alice: Client, bob: Client) -> None:
    for client in (alice, bob):
        ids = [client.create() for _ in range(5)]
        assert ids == sorted(set(ids))
        assert {listing % 1024 for listing in ids} == {client.person.account.id % 1024}
        assert ids[0] >= 1024


def test_creates_at_the_same_time_get_ids_of_their_own(alice: Client) -> None:
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda _: alice.create(), range(80)))
    assert len(set(ids)) == 80
    assert [record["id"] for record in alice.get().json()["listings"]] == sorted(ids, reverse=True)


def test_accounts_of_one_bucket_share_no_id(harness: Harness) -> None:
    async def enough() -> list[Person]:
        some = [
            await asyncio.gather(*(create_person(harness.service, "alice", MONTH) for _ in range(205))) for _ in "12345"
        ]
        return [person for people in some for person in people]

    people = {person.account.id: person for person in harness.run(enough())}
    keys = [people[1].key, people[1025].key] * 3
    ids = [harness.fetch("POST", LISTINGS, key=key, json=NEEDED).json()["id"] for key in keys]
    assert ids == sorted(set(ids))
    assert {listing % 1024 for listing in ids} == {1}


# What is refused


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "title is required; content is required"),
        ({"content": "b"}, "title is required"),
        ({"title": "a"}, "content is required"),
        ({"title": None, "content": "b"}, "title is required"),
        ({"title": "a", "content": None}, "content is required"),
        ({"title": "", "content": "b"}, "title is required and must not be blank"),
        ({"title": "a", "content": " \n\u3000"}, "content is required and must not be blank"),
        ({**NEEDED, "type": ""}, 'type must be one of product, service, rental, job, got ""'),
        ({**NEEDED, "price_type": ""}, 'price_type must be one of fixed, negotiable, per_hour, per_night, got ""'),
        ({**NEEDED, "price": -0.01}, "price must be from 0 to 999999999.99, got -0.01"),
        ({**NEEDED, "price": 1.999}, "price must have at most two decimals, got 1.999"),
        ({**NEEDED, "latitude": 90.1}, "latitude must be from -90 to 90, got 90.1"),
        ({**NEEDED, "longitude": -180.1}, "longitude must be from -180 to 180, got -180.1"),
        ({**NEEDED, "images": [""]}, 'images[0] must be a URL of 1 to 2048 characters, got ""'),
        (
            {"title": 5, "content": "b", "is_active": "yes"},
            'title must be a string, got a number; is_active must be true or false, got "yes"',
        ),
    ],
)
def test_a_bad_field_is_refused_with_400_and_nothing_is_stored(
    alice: Client, running: RunningService, body: Mapping[str, object], message: str
) -> None:
    response = alice.post(json=body)
    assert (response.status_code, response.json()) == (400, {"error": message})
    assert response.headers["X-Error-Code"] == "invalid_request"
    assert stores_nothing(alice, running)


def test_an_expired_plan_gets_403_and_stores_nothing(charlie: Client, running: RunningService) -> None:
    response = charlie.post(json=NEEDED)
    assert (response.status_code, response.json()) == (403, {"error": "Business plan expired"})
    assert response.headers["X-Error-Code"] == "plan_expired"
    assert stores_nothing(charlie, running)


# Keys that can't be set


def test_what_only_the_service_sets_is_ignored_and_named(alice: Client, bob: Client) -> None:
    foreign = bob.create()
    body = {"id": foreign, "view_count": 9, **NEEDED, "created_at": "x", "updated_at": None, "account_id": 1}
    response = alice.post(json=body)
    assert response.status_code == 201
    assert response.headers["X-Ignored-Fields"] == "id, view_count, created_at, updated_at, account_id"
    record = alice.read(response.json()["id"])
    assert record["id"] != foreign
    assert record["view_count"] == 0
    assert record["created_at"] == record["updated_at"] != "x"
    assert bob.read(foreign)["title"] == "Bicycle"


def test_where_nothing_was_ignored_no_header_says_so(alice: Client) -> None:
    assert "X-Ignored-Fields" not in alice.post(json=EVERYTHING).headers


@pytest.mark.parametrize("name", ["Title", "title ", "two words", "a,b", "a\r\nSet-Cookie: x", "ключ", "😀", "%", "\0"])
def test_ignored_keys_are_named_percent_encoded(alice: Client, name: str) -> None:
    response = alice.post(json={**NEEDED, name: 1})
    assert response.status_code == 201
    assert response.headers["X-Ignored-Fields"] == quote(name, safe="")
    assert "Set-Cookie" not in response.headers


@pytest.mark.decision("G6")
def test_only_the_first_twenty_ignored_keys_are_named(alice: Client) -> None:
    response = alice.post(json={**NEEDED, **{f"key{n}": n for n in range(1000)}})
    assert response.status_code == 201
    assert response.headers["X-Ignored-Fields"].split(", ") == [f"key{n}" for n in range(20)]


def test_long_ignored_keys_leave_an_answer_that_clients_can_read(alice: Client) -> None:
    response = alice.post(json={**NEEDED, **{"😀" * 1000 + str(n): n for n in range(100)}})
    assert response.status_code == 201
    assert len(response.headers["X-Ignored-Fields"]) < 64 * 1024


@pytest.mark.parametrize(
    "prefer",
    [
        "handling=strict",
        "Handling=Strict",
        'handling="strict"',
        "handling = strict",
        "return=minimal, handling=strict",
        "handling=strict;since=today, wait=10",
        "handling=strict, handling=lenient",
        'a="handling=lenient, ", handling=strict',
    ],
)
def test_strict_handling_refuses_keys_that_can_not_be_set(alice: Client, running: RunningService, prefer: str) -> None:
    response = alice.post(json={**NEEDED, "id": 5, "colour": "red"}, headers={"Prefer": prefer})
    message = '"id" is not a field that can be set; "colour" is not a field that can be set'
    assert (response.status_code, response.json()) == (400, {"error": message})
    assert stores_nothing(alice, running)


@pytest.mark.parametrize(
    "prefer",
    [
        *("handling=lenient", "strict", "handling", "", "handling=stricter", "return=strict"),
        *("handling=lenient, handling=strict", 'a="b, handling=strict"'),
    ],
)
def test_any_other_preference_changes_nothing(alice: Client, prefer: str) -> None:
    response = alice.post(json={**NEEDED, "colour": "red"}, headers={"Prefer": prefer})
    assert (response.status_code, response.headers["X-Ignored-Fields"]) == (201, "colour")
    assert "Preference-Applied" not in response.headers


def test_strict_handling_takes_a_sound_body_and_says_that_it_was_strict(alice: Client) -> None:
    sound = EVERYTHING | {"images": ["https://a.example/1.jpg"]}
    response = alice.post(json=sound, headers={"Prefer": "handling=strict"})
    assert response.status_code == 201
    assert response.headers["Preference-Applied"] == "handling=strict"
    assert "X-Ignored-Fields" not in response.headers


def test_strict_handling_refuses_a_relative_image(alice: Client) -> None:
    response = alice.post(json={**NEEDED, "images": ["/1.jpg"]}, headers={"Prefer": "handling=strict"})
    message = 'images[0] must be an absolute http or https URL, got "/1.jpg"'
    assert (response.status_code, response.json()) == (400, {"error": message})
