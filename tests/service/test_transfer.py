"""What a row of an imported file makes of a listing, and with what sentence it is refused."""

from typing import Any

import msgspec
import pytest

from listings.domain import timestamps
from listings.domain.errors import Problem
from listings.domain.model import Listing
from listings.service.transfer.importer import listing_change, new_listing
from tests.harness import START

NOW = timestamps.text_of(START)
EARLIER, EARLIEST, LATER = (timestamps.text_of(START + seconds) for seconds in (-100, -200, 1))
WRONG_VIEWS = "view_count must be a whole number from 0 to 9007199254740991"
WRONG_DELETION = f"deleted_at must be a time like {NOW}, got an object"
NEW = {"title": "Bicycle", "content": "Two wheels."}
LISTING = Listing(
    id=1025,
    account_id=1,
    version=1,
    title="Bicycle",
    content="Two wheels.",
    type="product",
    category="Sport",
    images="[]",
    price_cents=5,
    price_type="fixed",
    location="",
    region="",
    district="",
    latitude=None,
    longitude=None,
    is_active=True,
    view_count=3,
    created_at=EARLIEST,
    updated_at=EARLIER,
    deleted_at=None,
)
DELETED = msgspec.structs.replace(LISTING, is_active=False, deleted_at=START - 50)


def made(**row: Any) -> list[Any]:
    listing = new_listing(NEW | row, START)
    return [listing.view_count, listing.created_at, listing.updated_at, listing.deleted_at, listing.new.is_active]


def test_without_a_past_a_new_listing_begins_now() -> None:
    assert made() == [0, NOW, NOW, None, True]
    assert made(view_count=None, created_at=None, updated_at=None, deleted_at=None) == [0, NOW, NOW, None, True]


def test_a_new_listing_keeps_its_past() -> None:
    assert made(view_count=7, created_at=EARLIEST, updated_at=EARLIER, is_active=False) == [
        *(7, EARLIEST, EARLIER, None, False)
    ]
    assert made(deleted_at=EARLIER) == [0, NOW, NOW, START - 100, False]
    assert made(deleted_at=NOW, is_active=None) == [0, NOW, NOW, START, False]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"title": None}, "title is required"),
        ({"price": "abc"}, 'price must be a number, got "abc"'),
        ({"view_count": -1}, f"{WRONG_VIEWS}, got -1"),
        ({"view_count": True}, f"{WRONG_VIEWS}, got true"),
        ({"view_count": 1.0}, f"{WRONG_VIEWS}, got 1.0"),
        ({"view_count": 2**53}, f"{WRONG_VIEWS}, got 9007199254740992"),
        ({"created_at": 5}, f"created_at must be a time like {NOW}, got 5"),
        ({"created_at": "2026-01-01"}, f'created_at must be a time like {NOW}, got "2026-01-01"'),
        ({"created_at": "2026-02-30 00:00:00"}, f'created_at must be a time like {NOW}, got "2026-02-30 00:00:00"'),
        ({"updated_at": LATER}, f"updated_at must not be in the future, got {LATER}"),
        ({"deleted_at": LATER}, f"deleted_at must not be in the future, got {LATER}"),
        (
            {"updated_at": EARLIER},
            f"updated_at must not be before created_at, which is {NOW}, got {EARLIER}",
        ),
        ({"deleted_at": NOW, "is_active": True}, "is_active must be false for a deleted listing, got true"),
        (
            {"type": "boat", "view_count": "x", "deleted_at": {}},
            f'type must be one of product, service, rental, job, got "boat"; {WRONG_VIEWS}, got "x"; {WRONG_DELETION}',
        ),
    ],
)
def test_a_new_row_at_fault_is_refused_by_all_its_faults(row: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Problem) as caught:
        new_listing(NEW | row, START)
    assert caught.value.message == sentence


def test_a_row_changes_the_fields_that_it_holds() -> None:
    assert listing_change({"id": 1025, "price": 7}, LISTING, START) == {"price_cents": 700, "updated_at": NOW}
    assert listing_change({"category": None}, LISTING, START) == {"category": "", "updated_at": NOW}


def test_the_past_of_a_listing_that_is_there_stays() -> None:
    assert listing_change({"view_count": -9, "created_at": "x", "updated_at": LATER}, LISTING, START) == {}


def test_nothing_differs_changes_nothing() -> None:
    assert listing_change(NEW | {"is_active": True, "deleted_at": None, "price": 0.05}, LISTING, START) == {}


def test_a_deletion_time_closes_and_its_absence_restores() -> None:
    closing: dict[str, Any] = {"is_active": False, "deleted_at": START - 50, "updated_at": NOW}
    assert listing_change({"deleted_at": timestamps.text_of(START - 50)}, LISTING, START) == closing
    assert listing_change({"deleted_at": None}, DELETED, START) == {"deleted_at": None, "updated_at": NOW}
    assert listing_change({"deleted_at": None, "is_active": True}, DELETED, START) == {
        "deleted_at": None,
        "is_active": True,
        "updated_at": NOW,
    }


def test_without_the_column_a_deleted_listing_stays_deleted() -> None:
    assert listing_change({"title": "Bike"}, DELETED, START) == {"title": "Bike", "updated_at": NOW}
    with pytest.raises(Problem, match="is_active must be false for a deleted listing"):
        listing_change({"is_active": True}, DELETED, START)


def test_an_update_never_goes_back() -> None:
    ahead = msgspec.structs.replace(LISTING, updated_at=LATER)
    assert listing_change({"title": "Bike"}, ahead, START) == {"title": "Bike", "updated_at": LATER}


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"title": None}, "title must be text, got null"),
        ({"price": -1, "deleted_at": LATER}, f"deleted_at must not be in the future, got {LATER}"),
        ({"deleted_at": EARLIER, "is_active": True}, "is_active must be false for a deleted listing, got true"),
    ],
)
def test_a_change_at_fault_is_refused(row: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Problem) as caught:
        listing_change(row, LISTING, START)
    assert caught.value.message.endswith(sentence)
