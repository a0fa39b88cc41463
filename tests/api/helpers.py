"""Constants and small functions that several files of API tests use."""

import re
from typing import Any

import httpx2

from bench.data import store_of
from listings.domain.fields import FIELDS
from listings.domain.listing_json import OPTIONAL_LISTING_FIELDS
from listings.domain.model import Listing
from tests.conftest import Client
from tests.harness import Harness, Person, RunningService

LISTINGS = "/api/v1/listings"
STRICT = {"Prefer": "handling=strict"}
REQUIRED = {"title": "Bicycle", "content": "Two wheels."}
RECORD_FIELDS = [
    "id",
    "title",
    "content",
    "type",
    "category",
    "images",
    "price",
    "price_type",
    "location",
    "region",
    "is_active",
    "view_count",
    "created_at",
    "updated_at",
]
HIDDEN_FIELDS = tuple(name for name in FIELDS if name in OPTIONAL_LISTING_FIELDS)  # returned only on request
ALL_FIELDS: dict[str, Any] = {name: field.example for name, field in FIELDS.items()} | {
    "title": "Städtefahrrad 🚲",
    "content": "Zwei Räder.\nKaum gefahren.",
    "type": "rental",
    "category": "Bicycles",
    "images": ["https://pictures.example/2.jpg", "/uploads/1.jpg"],
    "price": 999_999_999.99,  # more cents than 32 bits
    "price_type": "per_night",
    "location": "12 Cuba Street",
    "latitude": -41.29,
    "longitude": 174.78,
    "is_active": False,
}
"""A value for every field that a client can set."""

VISIBLE_FIELDS = {name: value for name, value in ALL_FIELDS.items() if name not in HIDDEN_FIELDS}


def create_lamps(harness: Harness) -> Person:
    """Create an account with five listings; return its owner."""
    alice = harness.person("alice")
    for number in range(5):
        fields = {"title": f"Lamp {number}", "content": "Two.", "price": number}
        assert harness.fetch("POST", LISTINGS, key=alice.key, json=fields).status == 201
    return alice


def get_row(running: RunningService, listing_id: int) -> Listing:
    listing = running.run(lambda services: store_of(services).get_listing(listing_id))
    assert listing is not None
    return listing


def get_ids(response: httpx2.Response) -> list[int]:
    assert response.status_code == 200, response.text
    return [record["id"] for record in response.json()["listings"]]


def get_etag(client: Client, path: str = "") -> str:
    response = client.get(path)
    assert response.status_code == 200, response.text
    etag = str(response.headers["ETag"])
    assert re.fullmatch(r'"[\x21\x23-\x7e]+"', etag)  # strong (RFC 9110, 8.8.3)
    return etag


def get_state(client: Client) -> tuple[bytes, str]:
    """Return everything that is stored of an account's listings, and the ETag that changes with every edit."""
    response = client.get("?status=all&include=all,deleted_at")
    return response.content, response.headers["ETag"]


def get_outcome(response: httpx2.Response) -> tuple[int, str]:
    """Return the status and the error code; "" if it is not an error."""
    return response.status_code, response.headers.get("X-Error-Code", "")


def assert_error(response: httpx2.Response, status: int, code: str, message: str) -> None:
    assert (response.status_code, response.headers["X-Error-Code"]) == (status, code), response.text
    assert response.json() == {"error": message}


def get_invalid_request(response: httpx2.Response) -> str:
    """Return the message of a 400 with the code invalid_request."""
    assert get_outcome(response) == (400, "invalid_request"), response.text
    assert list(response.json()) == ["error"]
    return str(response.json()["error"])


def assert_not_found(response: httpx2.Response) -> None:
    assert_error(response, 404, "listing_not_found", "Listing not found")


def assert_not_owner(response: httpx2.Response) -> None:
    assert_error(response, 403, "not_owner", "This listing belongs to another account")


def with_key(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key}
