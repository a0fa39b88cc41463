"""One life cycle with httpx and the models that datamodel-code-generator makes."""

import json
import os
import sys
from pathlib import Path
from typing import TypeVar

import httpx
from models import (
    Batch,
    BatchOperation,
    BatchResults,
    ChangeSets,
    Created,
    CreateOperation,
    DeleteOperation,
    ErrorBody,
    ErrorCode,
    Listing,
    ListingCreate,
    ListingPut,
    Listings,
    ListingUpdate,
    PriceType,
    PutOperation,
    UpdateOperation,
)
from pydantic import BaseModel

Model = TypeVar("Model", bound=BaseModel)
LISTINGS = "/api/v1/listings"


def connect(key: str) -> httpx.Client:
    """Return a client that sends this key."""
    return httpx.Client(base_url=os.environ["LISTINGS_URL"], headers={"X-API-Key": key})


alice = connect(os.environ["ALICE_KEY"])


def encode(body: BaseModel) -> dict[str, object]:
    """Return the JSON of the fields that were set."""
    return body.model_dump(mode="json", exclude_unset=True)


def expect(kind: type[Model], response: httpx.Response) -> Model:
    """Return the body of a success."""
    assert response.is_success, response.text
    return kind.model_validate_json(response.content)


def expect_error(response: httpx.Response, status: int, code: ErrorCode) -> None:
    """Check that a request failed with this status and code."""
    assert ErrorBody.model_validate_json(response.content).error
    assert (response.status_code, ErrorCode(response.headers["X-Error-Code"])) == (status, code)


def create(title: str, price: float) -> int:
    """Create a listing, and return its id."""
    listing = ListingCreate(title=title, content="Solid heart rimu.", price=price, price_type=PriceType.negotiable)
    return expect(Created, alice.post(LISTINGS, json=encode(listing))).id


def read(number: int) -> Listing:
    """Return one of alice's listings."""
    return expect(Listing, alice.get(f"{LISTINGS}/{number}"))


def list_by_pages() -> None:
    """Create two more listings, and read all three in pages of two."""
    create("Road bike", 950)
    create("Guitar", 300)
    found: set[int] = set()
    query: dict[str, str | int] | None = {"limit": 2, "sort": "id"}
    while query is not None:
        page = alice.get(LISTINGS, params=query)
        found.update(listing.id for listing in expect(Listings, page).listings)
        cursor = page.headers.get("X-Next-Cursor")
        query = query | {"cursor": cursor} if cursor else None
    assert len(found) == 3


def update_one_field(number: int) -> None:
    """Change the price, see that nothing else moved, and be rejected with the old tag."""
    before, path = alice.get(f"{LISTINGS}/{number}"), f"{LISTINGS}/{number}"
    change, tag = encode(ListingUpdate(price=1100.5)), {"If-Match": before.headers["ETag"]}
    assert change == {"price": 1100.5}
    assert alice.patch(path, json=change, headers=tag).is_success
    after = read(number)
    assert after.price == 1100.5
    unmoved = {"price", "updated_at"}
    assert after.model_dump(exclude=unmoved) == expect(Listing, before).model_dump(exclude=unmoved)
    expect_error(alice.patch(path, json=change, headers=tag), 412, ErrorCode.precondition_failed)


def replay() -> None:
    """Send the same create twice: it runs once."""
    body = encode(ListingCreate(title="Lamp", content="Brass."))
    first, second = (alice.post(LISTINGS, json=body, headers={"Idempotency-Key": "lamp-1"}) for _ in range(2))
    assert expect(Created, first).id == expect(Created, second).id
    assert second.headers["Idempotent-Replayed"] == "true"


def run_mixed_batch(number: int) -> None:
    """Run a batch of which one operation fails."""
    chair = ListingCreate(title="Chair", content="Oak.")
    stool = ListingPut(external_id="stool", title="Stool", content="Oak.")
    operations: list[CreateOperation | UpdateOperation | DeleteOperation | PutOperation] = [
        CreateOperation(op="create", ref="chair", listing=chair),
        UpdateOperation(op="update", id=number, changes=ListingUpdate(region="Otago")),
        DeleteOperation(op="delete", id=1),
        *[PutOperation(op="put", listing=stool)] * 2,
    ]
    batch = Batch(operations=[BatchOperation(operation) for operation in operations])
    answer = expect(BatchResults, alice.post(f"{LISTINGS}/batch", json=encode(batch)))
    made, changed, failed, first, second = answer.results
    assert (made.status, made.ref, changed.body.message) == (201, "chair", "listing updated")
    assert (failed.code, failed.body.error) == ("listing_not_found", "Listing not found")
    assert (first.op, second.op, second.id) == ("create", "update", first.body.id)
    planned = expect(BatchResults, alice.post(f"{LISTINGS}/batch", json=encode(batch), params={"dry_run": True}))
    assert planned.results[0].body.message == "listing would be created"
    whole = alice.post(LISTINGS, json=encode(chair), headers={"Prefer": "return=representation"})
    assert expect(Created, whole).model_dump()["title"] == "Chair"


def decode_unknown_values() -> None:
    """Read codes, actors and kinds that a later version of the service may add."""
    known = json.loads(Path(os.environ["UNKNOWN_VALUES"]).read_bytes())
    assert BatchResults.model_validate(known["batch"]).results[0].code == "teapot"
    assert ChangeSets.model_validate(known["changes"]).change_sets[0].actor.type == "agent"


def delete_and_restore(number: int) -> None:
    """Delete a listing and restore it: it is inactive."""
    path = f"{LISTINGS}/{number}"
    assert alice.delete(path).is_success
    expect_error(alice.get(path), 404, ErrorCode.listing_not_found)
    assert alice.post(f"{path}/restore").is_success
    assert not read(number).is_active


def read_errors(number: int) -> None:
    """Be rejected in every way that a key can be."""
    path, bob = f"{LISTINGS}/{number}", connect(os.environ["BOB_KEY"])
    expect_error(connect("wrong").get(path), 401, ErrorCode.invalid_api_key)
    expect_error(connect(os.environ["CHARLIE_KEY"]).get(path), 403, ErrorCode.plan_expired)
    expect_error(bob.get(path), 403, ErrorCode.not_owner)
    for _ in range(100):
        last = bob.get(LISTINGS)
        if last.is_error:
            break
    expect_error(last, 429, ErrorCode.rate_limited)


table = create("Rimu table", 249999.99)
assert (read(table).price, read(table).price_type) == (249999.99, PriceType.negotiable)
list_by_pages()
update_one_field(table)
replay()
run_mixed_batch(table)
delete_and_restore(table)
read_errors(table)
decode_unknown_values()
sys.stdout.write("datamodel-code-generator: the life cycle is complete\n")
