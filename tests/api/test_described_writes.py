"""Every response that a write can send is one of the OpenAPI document: each write in every mode."""

import itertools
from typing import Any

import httpx2
import pytest

from tests.api.described import check_response, get_operation
from tests.api.helpers import LISTINGS
from tests.conftest import Client

ONE = LISTINGS + "/{id}"
NEW = {"title": "Lamp", "content": "Brass."}
OPERATIONS: list[dict[str, Any]] = [
    {"op": "create", "listing": NEW, "ref": 1},
    {"op": "put", "listing": NEW | {"external_id": "a"}, "ref": "x"},
    {"op": "put", "listing": {"external_id": "a", "price": 5}},
    {"op": "update", "id": 1, "changes": {"price": 5}},
    {"op": "update", "changes": {"price": 5}},
]
WRITES: list[tuple[str, str, dict[str, Any] | None]] = [
    ("POST", LISTINGS, NEW),
    ("PUT", ONE, {"price": 7}),
    ("PATCH", ONE, {"price": 7}),
    ("DELETE", ONE, None),
    ("POST", ONE + "/restore", None),
    ("POST", LISTINGS + "/batch", {"operations": OPERATIONS}),
    ("POST", LISTINGS + "/batch", {"operations": OPERATIONS, "atomic": True}),
    ("POST", "/api/v1/changes/revert", {"change": 1}),
]


@pytest.mark.decision("G40")
@pytest.mark.parametrize(("method", "path", "body"), WRITES)
def test_a_write_gets_a_response_as_described(
    http: httpx2.Client, alice: Client, method: str, path: str, body: dict[str, Any] | None
) -> None:
    for dry_run, representation, strict in itertools.product((False, True), repeat=3):
        check_write(http, alice, method, path, body, dry_run=dry_run, representation=representation, strict=strict)


def check_write(
    http: httpx2.Client,
    alice: Client,
    method: str,
    path: str,
    body: dict[str, Any] | None,
    *,
    dry_run: bool,
    representation: bool,
    strict: bool,
) -> None:
    address = path.replace("{id}", str(alice.create()))
    preferences = ["handling=strict"] * strict + ["return=representation"] * representation
    headers = {
        "X-API-Key": alice.person.key,
        "Prefer": ", ".join(preferences),
        "Idempotency-Key": f"{method} {address} {dry_run} {representation} {strict}",
    }
    sent: dict[str, Any] = {} if body is None else {"json": body | ({} if strict else {"note": "ignored"})}
    for attempt in ("first", "replay"):
        response = http.request(method, address, headers=headers, params={"dry_run": dry_run}, **sent)
        if (path, dry_run) == (LISTINGS, True):  # the one exception, which is described in words
            assert (response.status_code, response.json()) == (200, {"message": "listing would be created"})
            continue
        check_response(get_operation(path, method), response)
        assert response.status_code < 400 or (attempt, method) == ("replay", "DELETE"), response.text
