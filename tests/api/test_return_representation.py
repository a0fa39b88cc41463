"""`Prefer: return=representation`: a write answers with the record (decision G15)."""

import pytest

from tests.api.helpers import ALL_FIELDS, REQUIRED
from tests.conftest import Client

WHOLE = {"Prefer": "return=representation"}
APPLIED = "return=representation"


@pytest.mark.decision("G15")
def test_a_create_returns_the_record(alice: Client) -> None:
    response = alice.post(json=ALL_FIELDS, headers=WHOLE)
    path = f"/{response.json()['id']}"
    read = alice.get(path)
    assert (response.status_code, response.content) == (201, read.content)
    assert response.headers["ETag"] == read.headers["ETag"]
    assert response.headers["Location"].endswith(path)
    assert response.headers["Preference-Applied"] == APPLIED


@pytest.mark.decision("G15")
@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_an_update_returns_the_record(alice: Client, method: str) -> None:
    path = f"/{alice.create()}"
    response = alice.request(method, path, json={"price": 5, "colour": "red"}, headers=WHOLE)
    read = alice.get(path)
    assert (response.status_code, response.content) == (200, read.content)
    assert response.headers["ETag"] == read.headers["ETag"]
    assert (response.headers["Preference-Applied"], response.headers["X-Ignored-Fields"]) == (APPLIED, "colour")
    assert response.json()["price"] == 5


@pytest.mark.decision("G15")
def test_a_restore_returns_the_record(alice: Client) -> None:
    path = f"/{alice.create()}"
    alice.delete(path, headers=WHOLE)
    response = alice.post(f"{path}/restore", headers=WHOLE)
    read = alice.get(path)
    assert (response.status_code, response.content) == (200, read.content)
    assert response.headers["ETag"] == read.headers["ETag"]
    assert response.headers["Preference-Applied"] == APPLIED


@pytest.mark.decision("G36", "G15")
@pytest.mark.every_engine
def test_a_replayed_create_returns_the_record_as_it_is(alice: Client) -> None:
    headers = {"Idempotency-Key": "k"}
    created = alice.post(json=REQUIRED, headers=headers)
    path = f"/{created.json()['id']}"
    alice.patch(path, json={"price": 5})
    replayed = alice.post(json=REQUIRED, headers=headers | WHOLE)
    assert (replayed.status_code, replayed.json()) == (201, alice.read(created.json()["id"]))
    assert (replayed.headers["ETag"], replayed.headers["Idempotent-Replayed"]) == ('"v2.0"', "true")
    assert alice.patch(path, json={"price": 6}, headers={"If-Match": replayed.headers["ETag"]}).status_code == 200


@pytest.mark.decision("G36", "G15")
def test_a_replayed_create_of_a_deleted_listing_returns_its_id(alice: Client) -> None:
    headers = {"Idempotency-Key": "k"} | WHOLE
    created = alice.post(json=REQUIRED, headers=headers).json()["id"]
    alice.delete(f"/{created}")
    replayed = alice.post(json=REQUIRED, headers=headers)
    assert (replayed.status_code, replayed.json()) == (201, {"id": created, "message": "listing created"})
    assert replayed.headers["Idempotent-Replayed"] == "true"
    assert "Preference-Applied" not in replayed.headers


def test_both_preferences_may_be_applied(alice: Client) -> None:
    preferences = {"Prefer": "return=representation, handling=strict"}
    response = alice.post(json=REQUIRED, headers=preferences)
    assert response.headers["Preference-Applied"] == "handling=strict, return=representation"
    assert response.json()["title"] == REQUIRED["title"]
    assert alice.post(json={**REQUIRED, "colour": "red"}, headers=preferences).status_code == 400


@pytest.mark.parametrize("value", ["return=minimal", "return=minimal, return=representation", "respond-async", ""])
def test_without_the_preference_a_message_is_returned(alice: Client, value: str) -> None:
    response = alice.post(json=REQUIRED, headers={"Prefer": value})
    assert list(response.json()) == ["id", "message"]
    assert "Preference-Applied" not in response.headers


def test_a_dry_run_returns_a_message(alice: Client) -> None:
    path = f"/{alice.create()}"
    responses = [
        alice.post("?dry_run=true", json=REQUIRED, headers=WHOLE),
        alice.patch(f"{path}?dry_run=true", json={}, headers=WHOLE),
        alice.post(f"{path}/restore?dry_run=true", headers=WHOLE),
    ]
    for response in responses:
        assert (response.status_code, list(response.json())) == (200, ["message"])
        assert not {"etag", "preference-applied"} & set(response.headers)
