"""Prefer: errors=detailed: each fault with its field and a code for programs (decision G31)."""

from typing import Any

import pytest

from tests.api.batches import LAMP, delete, update
from tests.api.described import check_response, get_operation
from tests.api.helpers import LISTINGS, STRICT, with_key
from tests.conftest import Client

DETAILED = {"Prefer": "errors=detailed"}
REVERT = "/../changes/revert"


def list_faults(body: dict[str, Any]) -> list[tuple[str, str]]:
    assert list(body) == ["error", "errors"]
    assert all(fault["message"] in body["error"] for fault in body["errors"])
    return [(fault["field"], fault["code"]) for fault in body["errors"]]


@pytest.mark.decision("G31")
@pytest.mark.parametrize(
    ("method", "path", "body", "faults"),
    [
        ("POST", "", {"price": -1, "images": ["a", "b c"]}, [("title", "required"), ("content", "required")]),
        ("PATCH", "/{id}", {"isActive": False}, [("isActive", "misspelled")]),
        ("PATCH", "/{id}?dryRun=true", {}, [("dryRun", "misspelled")]),
        ("PATCH", "/{id}", {"external_id": "taken"}, [("external_id", "taken")]),
        ("GET", "?limit=0&limit=5&status=x", None, [("limit", "out_of_range"), ("status", "not_allowed")]),
        ("GET", "?limit=5&limit=5", None, [("limit", "repeated")]),
        ("GET", "?cursor=x", None, [("cursor", "invalid_format")]),
        ("GET", "?price_min=5&price_max=4", None, [("price_min", "inconsistent")]),
        ("POST", "/batch", {"operations": []}, [("operations", "wrong_type")]),
        ("POST", "/batch", {"operations": [{}], "atomic": 1}, [("atomic", "wrong_type")]),
        ("POST", REVERT, {"key": "self"}, [("since", "required")]),
        ("POST", REVERT, {"change": 1, "since": "2026-01-01"}, [("since", "inconsistent")]),
        ("POST", REVERT, {"key": 1, "since": "x"}, [("since", "invalid_format")]),
    ],
)
def test_each_fault_has_its_field_and_code(
    alice: Client, method: str, path: str, body: Any, faults: list[tuple[str, str]]
) -> None:
    alice.create(external_id="taken")
    sent: dict[str, Any] = {} if body is None else {"json": body}
    path = path.replace("{id}", str(alice.create()))
    response = alice.request(method, path, headers=DETAILED, **sent)
    assert response.headers["Preference-Applied"] == "errors=detailed"
    assert list_faults(response.json())[: len(faults)] == faults
    plain = alice.request(method, path, **sent)
    assert (plain.status_code, plain.json()) == (response.status_code, {"error": response.json()["error"]})


def test_headers_are_named_like_fields(alice: Client) -> None:
    path = f"/{alice.create()}"
    for name, value in {"If-Match": "v1.0", "If-None-Match": "v1.0", "X-Change-Group": "#"}.items():
        response = alice.patch(path, json={}, headers=DETAILED | {name: value})
        assert list_faults(response.json()) == [(name, "invalid_format")]
    response = alice.post(json=LAMP, headers=DETAILED | with_key("x" * 256))
    assert list_faults(response.json()) == [("Idempotency-Key", "invalid_format")]


@pytest.mark.parametrize(("path", "status"), [("/1", 404), ("/../nothing", 404), ("/../key?x=1", 200)])
def test_other_errors_have_no_faults(alice: Client, path: str, status: int) -> None:
    response = alice.get(path, headers=DETAILED)
    assert response.status_code == status
    if status != 200:
        assert response.json()["errors"] == []
        assert response.headers["Preference-Applied"] == "errors=detailed"


def test_failed_results_of_a_batch_have_their_faults(alice: Client) -> None:
    own = alice.create()
    alice.create(external_id="taken")
    body = {
        "operations": [
            {"op": "create", "listing": {"title": "t", "price": "1", "images": ["ftp://x"]}},
            update(own, external_id="taken"),
            {"op": "put", "listing": {"external_id": "new"}},
            {"op": "delete", "id": "7"},
            delete(1),
            update(own, price=5),
        ]
    }
    response = alice.post("/batch", json=body, headers=DETAILED | with_key("k"))
    check_response(get_operation(LISTINGS + "/batch", "POST"), response)
    assert response.headers["Preference-Applied"] == "errors=detailed"
    *failed, missing, done = [result["body"] for result in response.json()["results"]]
    assert [list_faults(one) for one in failed] == [
        [("listing.content", "required"), ("listing.images[0]", "invalid_url"), ("listing.price", "wrong_type")],
        [("changes.external_id", "taken")],
        [("listing.title", "required"), ("listing.content", "required")],
        [("id", "wrong_type")],
    ]
    assert missing["errors"] == []
    assert done == {"message": "listing updated"}
    assert alice.post("/batch", json=body, headers=DETAILED | with_key("k")).content == response.content
    assert "errors" not in alice.post("/batch", json=body).text


def test_both_preferences_are_applied(alice: Client) -> None:
    headers = {"Prefer": f"{STRICT['Prefer']}, errors=detailed"}
    response = alice.post(json={**LAMP, "colour": "red"}, headers=headers)
    check_response(get_operation(LISTINGS, "POST"), response)
    assert list_faults(response.json()) == [("colour", "unknown")]
    response = alice.post("/batch", json={"operations": [{"op": "create", "listing": LAMP}]}, headers=headers)
    assert response.headers["Preference-Applied"] == "handling=strict, errors=detailed"
