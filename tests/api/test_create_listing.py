"""POST /api/v1/listings."""

import re
from collections.abc import Mapping
from urllib.parse import quote

import httpx2
import pytest

from bench.data import store_of
from tests.api.helpers import (
    ALL_FIELDS,
    HIDDEN_FIELDS,
    LISTINGS,
    REQUIRED,
    STRICT,
    VISIBLE_FIELDS,
    assert_error,
)
from tests.conftest import Client
from tests.harness import RunningService

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


def has_no_listings(client: Client, running: RunningService) -> bool:
    """Return whether the account has never had a listing; drafts and deleted ones count."""
    account = client.person.account.id
    return running.run(lambda services: store_of(services).get_revisions(account % 1024, account)).revision == 0


@pytest.mark.decision("G14")
def test_the_location_is_the_path_of_the_listing(alice: Client, http: httpx2.Client) -> None:
    response = alice.post(json=REQUIRED)
    listing = response.json()["id"]
    assert response.headers["Location"] == f"{LISTINGS}/{listing}"
    read = http.get(response.headers["Location"], headers={"X-API-Key": alice.person.key})
    assert (read.status_code, read.json()["id"]) == (200, listing)


def test_a_rejected_create_has_no_location(alice: Client) -> None:
    assert "Location" not in alice.post(json={}).headers


@pytest.mark.every_engine
def test_all_given_fields_are_returned(alice: Client) -> None:
    path = f"/{alice.create(**ALL_FIELDS)}"
    record = alice.get(path).json()
    assert {name: record[name] for name in VISIBLE_FIELDS} == VISIBLE_FIELDS
    record = alice.get(path, params={"include": ",".join(HIDDEN_FIELDS)}).json()
    assert {name: record[name] for name in ALL_FIELDS} == ALL_FIELDS


@pytest.mark.decision("G5", "G9")
@pytest.mark.parametrize(
    "fields",
    [
        {},
        dict.fromkeys([*DEFAULTS, "district", "latitude", "longitude"]),
        {"category": "", "location": "", "region": "", "district": "", "images": []},
    ],
    ids=["absent", "null", "empty"],
)
def test_null_and_empty_values_count_as_not_given(alice: Client, fields: Mapping[str, object]) -> None:
    record = alice.read(alice.create(**fields))
    assert {name: value for name, value in record.items() if name in DEFAULTS} == DEFAULTS


@pytest.mark.decision("G2")
@pytest.mark.every_engine
def test_text_is_stored_exactly_as_sent(alice: Client) -> None:
    texts = [
        "  spaces  ",
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
    ]
    for text in texts:
        sent: dict[str, object] = dict.fromkeys(["title", "content", "category", "location", "region"], text)
        record = alice.read(alice.create(**sent))
        assert {name: record[name] for name in sent} == sent


@pytest.mark.parametrize(
    ("sent", "expected"),
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
def test_a_price_is_returned_without_rounding_errors(alice: Client, sent: bytes, expected: float) -> None:
    response = alice.post(content=b'{"title": "a", "content": "b", "price": ' + sent + b"}")
    text = alice.get(f"/{response.json()['id']}").text
    match = re.search(r'"price":([-+.0-9eE]+)', text)
    assert match is not None
    assert float(match[1]) == expected
    assert not match[1].startswith("-")


def test_the_last_of_several_duplicate_fields_counts(alice: Client) -> None:
    response = alice.post(content=b'{"title": 5, "content": "b", "title": "first", "title": "last"}')
    assert alice.read(response.json()["id"])["title"] == "last"


@pytest.mark.decision("G20")
@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded", "application/xml"])
def test_the_content_type_is_ignored(alice: Client, content_type: str | None) -> None:
    headers = {"Content-Type": content_type} if content_type is not None else {}
    response = alice.post(content=b'{"title": "a", "content": "b"}', headers=headers)
    assert response.status_code == 201


def test_read_only_fields_are_ignored_and_named(alice: Client, bob: Client) -> None:
    foreign = bob.create()
    body = {"id": foreign, "view_count": 9, **REQUIRED, "created_at": "x", "updated_at": None, "account_id": 1}
    response = alice.post(json=body)
    assert response.status_code == 201
    assert response.headers["X-Ignored-Fields"] == "id, view_count, created_at, updated_at, account_id"
    record = alice.read(response.json()["id"])
    assert record["id"] != foreign
    assert record["view_count"] == 0
    assert record["created_at"] == record["updated_at"] != "x"
    assert bob.read(foreign)["title"] == "Bicycle"


@pytest.mark.parametrize("name", ["Title", "title ", "two words", "a,b", "a\r\nSet-Cookie: x", "ключ", "😀", "%", "\0"])
def test_the_names_of_ignored_fields_are_percent_encoded(alice: Client, name: str) -> None:
    response = alice.post(json={**REQUIRED, name: 1})
    assert response.status_code == 201
    assert response.headers["X-Ignored-Fields"] == quote(name, safe="")
    assert "Set-Cookie" not in response.headers


@pytest.mark.decision("G6")
def test_at_most_twenty_ignored_fields_are_named(alice: Client) -> None:
    response = alice.post(json={**REQUIRED, **{f"key{n}": n for n in range(1000)}})
    assert response.status_code == 201
    assert response.headers["X-Ignored-Fields"].split(", ") == [f"key{n}" for n in range(20)]


def test_long_names_of_ignored_fields_do_not_exceed_the_header_size(alice: Client) -> None:
    response = alice.post(json={**REQUIRED, **{"😀" * 1000 + str(n): n for n in range(100)}})
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
def test_strict_handling_rejects_unknown_fields(alice: Client, running: RunningService, prefer: str) -> None:
    response = alice.post(json={**REQUIRED, "id": 5, "colour": "red"}, headers={"Prefer": prefer})
    message = '"id" is not a field that can be set; "colour" is not a field that can be set'
    assert_error(response, 400, "invalid_request", message)
    assert has_no_listings(alice, running)


@pytest.mark.parametrize(
    "prefer",
    [
        *("handling=lenient", "strict", "handling", "", "handling=stricter", "return=strict"),
        *("handling=lenient, handling=strict", 'a="b, handling=strict"'),
    ],
)
def test_other_preferences_have_no_effect(alice: Client, prefer: str) -> None:
    response = alice.post(json={**REQUIRED, "colour": "red"}, headers={"Prefer": prefer})
    assert (response.status_code, response.headers["X-Ignored-Fields"]) == (201, "colour")
    assert "Preference-Applied" not in response.headers


def test_strict_handling_accepts_a_valid_body_and_says_so(alice: Client) -> None:
    valid = ALL_FIELDS | {"images": ["https://a.example/1.jpg"]}
    response = alice.post(json=valid, headers=STRICT)
    assert response.status_code == 201
    assert response.headers["Preference-Applied"] == "handling=strict"
    assert "X-Ignored-Fields" not in response.headers
