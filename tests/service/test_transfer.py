"""How the rows of an import create and change listings, and the errors of invalid rows."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from listings.domain import timestamps
from listings.domain.errors import Problem
from listings.domain.model import Listing, ListingChange
from listings.service.transfer.row_changes import build_imported_listing, build_listing_change
from tests.examples import build_listing
from tests.harness import START

NOW = timestamps.format_timestamp(START)
EARLIER, EARLIEST, LATER = (timestamps.format_timestamp(START + seconds) for seconds in (-100, -200, 1))
INVALID_TYPE = 'type must be one of product, service, rental, job, got "boat"'
INVALID_VIEWS = "view_count must be an integer from 0 to 9007199254740991"
INVALID_DELETION = f"deleted_at must be a time like {NOW}, got an object"
NEW = {"title": "Bicycle", "content": "Two wheels."}
LISTING = build_listing(category="Sport", price_cents=5, view_count=3, created_at=EARLIEST, updated_at=EARLIER)
DELETED = msgspec.structs.replace(LISTING, is_active=False, deleted_at=START - 50)


def find_change(row: Mapping[str, object], listing: Listing) -> ListingChange:
    return build_listing_change(row, listing, START, {}, may_restore=True)


def import_row(**row: Any) -> list[Any]:
    listing = build_imported_listing(NEW | row, START, {})
    return [listing.view_count, listing.created_at, listing.updated_at, listing.deleted_at, listing.new.is_active]


def test_a_new_listing_has_the_current_time_by_default() -> None:
    assert import_row() == [0, NOW, NOW, None, True]
    assert import_row(view_count=None, created_at=None, updated_at=None, deleted_at=None) == [0, NOW, NOW, None, True]


def test_a_new_listing_keeps_its_creation_and_views_and_is_updated_now() -> None:
    assert import_row(view_count=7, created_at=EARLIEST, updated_at=EARLIER, is_active=False) == [
        *(7, EARLIEST, NOW, None, False)
    ]
    assert import_row(deleted_at=EARLIER) == [0, NOW, NOW, START - 100, False]
    assert import_row(deleted_at=NOW, is_active=None) == [0, NOW, NOW, START, False]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"title": None}, "title is required"),
        ({"price": "abc"}, 'price must be a number, got "abc"'),
        ({"view_count": -1}, f"{INVALID_VIEWS}, got -1"),
        ({"view_count": True}, f"{INVALID_VIEWS}, got true"),
        ({"view_count": 1.0}, f"{INVALID_VIEWS}, got 1.0"),
        ({"view_count": 2**53}, f"{INVALID_VIEWS}, got 9007199254740992"),
        ({"created_at": 5}, f"created_at must be a time like {NOW}, got 5"),
        ({"created_at": "2026-01-01"}, f'created_at must be a time like {NOW}, got "2026-01-01"'),
        ({"created_at": "2026-02-30 00:00:00"}, f'created_at must be a time like {NOW}, got "2026-02-30 00:00:00"'),
        ({"created_at": LATER}, f"created_at must not be in the future, got {LATER}"),
        ({"deleted_at": LATER}, f"deleted_at must not be in the future, got {LATER}"),
        ({"deleted_at": NOW, "is_active": True}, "is_active must be false for a deleted listing, got true"),
        (
            {"type": "boat", "view_count": "x", "deleted_at": {}},
            f'{INVALID_TYPE}; {INVALID_VIEWS}, got "x"; {INVALID_DELETION}',
        ),
    ],
)
def test_an_invalid_new_row_is_rejected_with_all_its_errors(row: dict[str, Any], message: str) -> None:
    with pytest.raises(Problem) as caught:
        build_imported_listing(NEW | row, START, {})
    assert caught.value.message == message


def test_a_row_changes_the_fields_that_it_has() -> None:
    assert find_change({"id": 1025, "price": 7}, LISTING) == {"price_cents": 700, "updated_at": NOW}
    assert find_change({"category": None}, LISTING) == {"category": "", "updated_at": NOW}


def test_an_existing_listing_keeps_its_timestamps_and_views() -> None:
    assert find_change({"view_count": -9, "created_at": "x", "updated_at": LATER}, LISTING) == {}


def test_a_row_without_differences_changes_nothing() -> None:
    assert find_change(NEW | {"is_active": True, "deleted_at": None, "price": 0.05}, LISTING) == {}


def test_a_deletion_time_closes_and_its_absence_restores() -> None:
    closing: dict[str, Any] = {"is_active": False, "deleted_at": START - 50, "updated_at": NOW}
    assert find_change({"deleted_at": timestamps.format_timestamp(START - 50)}, LISTING) == closing
    assert find_change({"deleted_at": None}, DELETED) == {"deleted_at": None, "updated_at": NOW}
    assert find_change({"deleted_at": None, "is_active": True}, DELETED) == {
        "deleted_at": None,
        "is_active": True,
        "updated_at": NOW,
    }


def test_a_row_without_deleted_at_does_not_restore_a_listing() -> None:
    assert find_change({"title": "Bike"}, DELETED) == {"title": "Bike", "updated_at": NOW}
    with pytest.raises(Problem, match="is_active must be false for a deleted listing"):
        find_change({"is_active": True}, DELETED)


def test_updated_at_never_decreases() -> None:
    ahead = msgspec.structs.replace(LISTING, updated_at=LATER)
    assert find_change({"title": "Bike"}, ahead) == {"title": "Bike", "updated_at": LATER}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"title": None}, "title must be a string, got null"),
        ({"price": -1, "deleted_at": LATER}, f"deleted_at must not be in the future, got {LATER}"),
        ({"deleted_at": EARLIER, "is_active": True}, "is_active must be false for a deleted listing, got true"),
    ],
)
def test_an_invalid_change_is_rejected(row: dict[str, Any], message: str) -> None:
    with pytest.raises(Problem) as caught:
        find_change(row, LISTING)
    assert caught.value.message.endswith(message)
