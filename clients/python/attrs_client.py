"""One life cycle with the client that openapi-python-client makes."""

import os
import sys
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
    ApiError,
    Batch,
    BatchResults,
    ChangeResult,
    Confirmation,
    CreateOperation,
    CreateResult,
    DeleteOperation,
    ErrorCode,
    FailedResult,
    Listing,
    ListingCreate,
    ListingPut,
    Listings,
    ListingUpdate,
    PriceType,
    PutOperation,
    PutOutcome,
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
    assert isinstance(response.parsed, ApiError), response
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
            UpdateOperation("update", number, ListingUpdate(region="Otago")),
            DeleteOperation("delete", 1),
            *[PutOperation("put", ListingPut("stool", title="Stool", content="Oak."))] * 2,
        ]
    )
    response = run_batch.sync_detailed(client=alice, body=batch)
    made, changed, failed, *puts = expect(BatchResults, response).results
    assert isinstance(made, CreateResult)
    assert isinstance(changed, ChangeResult)
    assert isinstance(failed, FailedResult)
    assert (made.ref, made.body.id > 0, failed.body.error) == ("chair", True, "Listing not found")
    outcomes = [(type(result), result.op) for result in puts if not isinstance(result, FailedResult)]
    assert outcomes == [(CreateResult, PutOutcome.CREATE), (ChangeResult, PutOutcome.UPDATE)]


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
        if isinstance(last.parsed, ApiError):
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
sys.stdout.write("openapi-python-client: the life cycle is complete\n")
