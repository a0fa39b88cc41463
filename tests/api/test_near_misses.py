"""A name that is almost right is rejected if ignoring it would store or return something else."""

from typing import Any

import pytest

from tests.api.batches import LAMP, create, delete, run, update
from tests.api.helpers import STRICT, get_ids, get_invalid_request, get_state
from tests.conftest import Client

DRY_RUNS = [
    *("dryRun", "dry-run", "dryrun", "DRY_RUN", "dry_run%20", "+dry+run", "Dry%09Run", "dry_run=true&dryRun"),
    *("validate_only", "validateOnly", "VALIDATE-ONLY", "preview"),
]
WRITES: list[tuple[str, str, Any]] = [
    ("POST", "", LAMP),
    ("PUT", "/{id}", {"price": 5}),
    ("PATCH", "/{id}", {"price": 5}),
    ("DELETE", "/{id}", None),
    ("POST", "/{id}/restore", None),
    ("POST", "/batch", {"operations": [create()]}),
    ("POST", "/../changes/revert", {"change": 1}),
]


@pytest.mark.decision("G17")
@pytest.mark.parametrize(
    ("method", "path", "body", "name"),
    [*((*WRITES[0], name) for name in DRY_RUNS), *((*write, "dryRun") for write in WRITES[1:])],
)
def test_a_mistyped_dry_run_writes_nothing(alice: Client, method: str, path: str, body: Any, name: str) -> None:
    path = path.replace("{id}", str(alice.create()))
    before = get_state(alice)
    sent = {} if body is None else {"json": body}
    for headers in ({}, STRICT):
        error = get_invalid_request(alice.request(method, f"{path}?{name}=true", headers=headers, **sent))
        assert error.endswith("is not a known parameter: did you mean dry_run?")
    assert get_state(alice) == before


@pytest.mark.decision("G6")
@pytest.mark.parametrize("name", ["dry_run", "dryRun", "Dry Run", "DRY-RUN"])
def test_a_dry_run_in_the_body_writes_nothing(alice: Client, name: str) -> None:
    listing = alice.create()
    before = get_state(alice)
    for method, path, body in WRITES:
        if body is not None:
            response = alice.request(method, path.replace("{id}", str(listing)), json=body | {name: True})
            assert "did you mean dry_run?" in get_invalid_request(response)
    operations = [{"op": "create", "listing": {**LAMP, name: True}}, {**delete(listing), name: True}]
    results = run(alice, *operations)
    assert [result["status"] for result in results] == [400, 400]
    assert all("did you mean dry_run?" in result["body"]["error"] for result in results)
    assert get_state(alice) == before


def test_a_dry_run_in_the_body_that_is_off_is_ignored(alice: Client) -> None:
    response = alice.post(json={**LAMP, "dry_run": False})
    assert (response.status_code, response.headers["X-Ignored-Fields"]) == (201, "dry_run")


@pytest.mark.decision("G6")
@pytest.mark.parametrize(
    ("sent", "meant"), [("isActive", "is_active"), ("priceType", "price_type"), ("Title", "title"), ("PRICE", "price")]
)
def test_a_mistyped_field_is_rejected_unless_the_right_one_is_there(alice: Client, sent: str, meant: str) -> None:
    listing = alice.create()
    before = get_state(alice)
    message = f'"{sent}" is not a field that can be set: did you mean {meant}?'
    assert get_invalid_request(alice.patch(f"/{listing}", json={sent: 1})) == message
    whole = {name: value for name, value in LAMP.items() if name != meant}
    assert message in get_invalid_request(alice.post(json={**whole, sent: 1}))
    (result,) = run(alice, update(listing, **{sent: 1}))
    assert result["body"]["error"] == f'"changes.{message[1:]}'
    assert get_state(alice) == before
    record = alice.read(listing)
    response = alice.patch(f"/{listing}", json={meant: record[meant], sent: 1, "createdAt": 1, "colour": 1})
    assert (response.status_code, response.headers["X-Ignored-Fields"]) == (200, f"{sent}, createdAt, colour")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"operations": [create()], "Atomic": True}, '"Atomic" is not a field of a batch: did you mean atomic?'),
        ({"Operations": [create()]}, '"Operations" is not a field of a batch: did you mean operations?'),
    ],
)
def test_a_mistyped_field_of_a_batch_is_rejected(alice: Client, body: dict[str, Any], message: str) -> None:
    assert get_invalid_request(alice.post("/batch", json=body)) == message
    assert get_ids(alice.get()) == []


def test_a_mistyped_condition_of_an_operation_fails_it(alice: Client) -> None:
    listing = alice.create()
    (result,) = run(alice, {**delete(listing), "ifMatch": '"v9.0"'})
    assert result["body"] == {"error": '"ifMatch" is not a field of this operation: did you mean if_match?'}
    assert get_ids(alice.get()) == [listing]


def test_a_mistyped_field_of_a_revert_is_rejected(alice: Client) -> None:
    alice.create()
    body = {"key": "self", "since": "2020-01-01", "Until": "2020-01-02"}
    error = get_invalid_request(alice.post("/../changes/revert", json=body))
    assert error == '"Until" is not a field of this revert: did you mean until?'


@pytest.mark.decision("G17")
@pytest.mark.parametrize(
    ("path", "query", "hint"),
    [
        ("", "updatedSince=2020-01-01", "did you mean updated_since?"),
        ("", "limit=5&Limit=1", "did you mean limit?"),
        ("", "externalId=1", "did you mean external_id?"),
        ("", "page=2", "the next page begins at cursor"),
        ("", "offset=1", "the next page begins at cursor"),
        ("", "Page=99999999999999999999", "the next page begins at cursor"),
        ("/../changes", "After=3", "did you mean after?"),
        ("/../changes", "page=2", "the next page begins at after"),
        ("/../changes/groups", "page=2", "the next page begins at before"),
        ("/{id}", "Include=all", "did you mean include?"),
        ("/{id}/changes", "LIMIT=1", "did you mean limit?"),
    ],
)
def test_a_mistyped_parameter_of_a_read_is_rejected(alice: Client, path: str, query: str, hint: str) -> None:
    path = path.replace("{id}", str(alice.create()))
    name = query.rpartition("&")[2].partition("=")[0]
    for headers in ({}, STRICT):
        error = get_invalid_request(alice.get(f"{path}?{query}", headers=headers))
        assert error == f'"{name}" is not a known parameter: {hint}'


def test_the_first_page_by_number_is_the_first_page(alice: Client) -> None:
    listing = alice.create()
    response = alice.get("?page=1&offset=0&limit=5")
    assert get_ids(response) == [listing]
    assert response.headers["X-Ignored-Parameters"] == "page, offset"


@pytest.mark.decision("G17")
@pytest.mark.parametrize("value", ["true", "True", "TRUE", "1", "false", "False", "0"])
def test_booleans_are_read_as_clients_write_them(alice: Client, value: str) -> None:
    is_dry = value.lower() in {"true", "1"}
    assert alice.post(f"?dry_run={value}", json=LAMP).status_code == (200 if is_dry else 201)
    assert ("X-Total-Count" in alice.get(f"?count={value}").headers) is is_dry
