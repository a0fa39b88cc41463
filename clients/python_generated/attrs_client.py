"""One life cycle with the client that openapi-python-client makes."""

import json
import os
import sys
from pathlib import Path
from typing import Any, TypeVar

from generated import AuthenticatedClient
from generated.api.listings import (
    create_listing,
    delete_listing,
    get_listing,
    list_listings,
    restore_listing,
    run_batch,
    update_listing,
)
from generated.models import (
    Batch,
    BatchResults,
    ChangeSets,
    Confirmation,
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
    SortOrder,
    UpdateOperation,
)
from generated.models.created import Created
from generated.types import UNSET, Response, Unset

T = TypeVar("T")


def connect(key: str) -> AuthenticatedClient:
    """Return a client that sends this key."""
    return AuthenticatedClient(os.environ["LISTINGS_URL"], key, prefix="", auth_header_name="X-API-Key")


alice = connect(os.environ["ALICE_KEY"])


def expect(kind: type[T], response: Response[Any]) -> T:
    """Return the body of a success."""
    assert isinstance(response.parsed, kind), response
    return response.parsed


def expect_error(response: Response[Any], status: int, code: ErrorCode) -> None:
    """Check that a call failed with this status and code."""
    assert isinstance(response.parsed, ErrorBody), response
    assert response.status_code == status
    assert response.headers["X-Error-Code"] == code


def create(title: str, price: float) -> int:
    """Create a listing, and return its id."""
    listing = ListingCreate(title, "Solid heart rimu.", price=price, price_type=PriceType.NEGOTIABLE)
    return expect(Created, create_listing.sync_detailed(client=alice, body=listing)).id


def read(number: int) -> Listing:
    """Return one of alice's listings."""
    return expect(Listing, get_listing.sync_detailed(number, client=alice))


def list_by_pages() -> None:
    """Create two more listings, and read all three in pages of two."""
    create("Road bike", 950)
    create("Guitar", 300)
    found: set[int] = set()
    cursor: str | Unset = UNSET
    while True:
        page = list_listings.sync_detailed(client=alice, limit=2, sort=SortOrder.ID, cursor=cursor)
        found.update(listing.id for listing in expect(Listings, page).listings)
        if "X-Next-Cursor" not in page.headers:
            break
        cursor = page.headers["X-Next-Cursor"]
    assert len(found) == 3


def update_one_field(number: int) -> None:
    """Change the price, see that nothing else moved, and be rejected with the old tag."""
    response = get_listing.sync_detailed(number, client=alice)
    before, tag = expect(Listing, response).to_dict(), response.headers["ETag"]
    change = ListingUpdate(price=1100.5)
    expect(Confirmation, update_listing.sync_detailed(number, client=alice, body=change, if_match=tag))
    after = read(number).to_dict()
    assert after == before | {"price": 1100.5, "updated_at": after["updated_at"]}
    again = update_listing.sync_detailed(number, client=alice, body=change, if_match=tag)
    expect_error(again, 412, ErrorCode.PRECONDITION_FAILED)


def replay() -> None:
    """Send the same create twice: it runs once."""
    first, second = (
        create_listing.sync_detailed(client=alice, body=ListingCreate("Lamp", "Brass."), idempotency_key="lamp-1")
        for _ in range(2)
    )
    assert expect(Created, first).id == expect(Created, second).id
    assert second.headers["Idempotent-Replayed"] == "true"


def run_mixed_batch(number: int) -> None:
    """Run a batch of which one operation fails."""
    batch = Batch(
        [
            CreateOperation("create", ListingCreate("Chair", "Oak."), ref="chair"),
            UpdateOperation("update", ListingUpdate(region="Otago"), id=number),
            DeleteOperation("delete", id=1),
            *[PutOperation("put", ListingPut("stool", title="Stool", content="Oak."))] * 2,
        ]
    )
    response = run_batch.sync_detailed(client=alice, body=batch)
    made, changed, failed, first, second = expect(BatchResults, response).results
    assert (made.status, made.ref, changed.body.message) == (201, "chair", "listing updated")
    assert (failed.code, failed.body.error) == (ErrorCode.LISTING_NOT_FOUND, "Listing not found")
    assert (first.op, second.op, second.id) == ("create", "update", first.body.id)
    planned = expect(BatchResults, run_batch.sync_detailed(client=alice, body=batch, dry_run=True))
    assert planned.results[0].body.message == "listing would be created"
    shelf = ListingCreate("Shelf", "Oak.")
    whole = create_listing.sync_detailed(client=alice, body=shelf, prefer="return=representation")
    assert expect(Created, whole)["title"] == "Shelf"


def decode_unknown_values() -> None:
    """Read codes, actors and kinds that a later version of the service may add."""
    known = json.loads(Path(os.environ["UNKNOWN_VALUES"]).read_bytes())
    assert BatchResults.from_dict(known["batch"]).results[0].code == "teapot"
    assert ChangeSets.from_dict(known["changes"]).change_sets[0].actor.type_ == "agent"


def delete_and_restore(number: int) -> None:
    """Delete a listing and restore it: it is inactive."""
    expect(Confirmation, delete_listing.sync_detailed(number, client=alice))
    expect_error(get_listing.sync_detailed(number, client=alice), 404, ErrorCode.LISTING_NOT_FOUND)
    expect(Confirmation, restore_listing.sync_detailed(number, client=alice))
    assert not read(number).is_active


def read_errors(number: int) -> None:
    """Be rejected in every way that a key can be."""
    bob, charlie = connect(os.environ["BOB_KEY"]), connect(os.environ["CHARLIE_KEY"])
    expect_error(get_listing.sync_detailed(number, client=connect("wrong")), 401, ErrorCode.INVALID_API_KEY)
    expect_error(get_listing.sync_detailed(number, client=charlie), 403, ErrorCode.PLAN_EXPIRED)
    expect_error(get_listing.sync_detailed(number, client=bob), 403, ErrorCode.NOT_OWNER)
    for _ in range(100):
        last = list_listings.sync_detailed(client=bob)
        if isinstance(last.parsed, ErrorBody):
            break
    expect_error(last, 429, ErrorCode.RATE_LIMITED)


table = create("Rimu table", 249999.99)
assert (read(table).price, read(table).price_type) == (249999.99, PriceType.NEGOTIABLE)
list_by_pages()
update_one_field(table)
replay()
run_mixed_batch(table)
delete_and_restore(table)
read_errors(table)
decode_unknown_values()
sys.stdout.write("openapi-python-client: the life cycle is complete\n")
