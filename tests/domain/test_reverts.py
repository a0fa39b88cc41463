"""The plan of a revert: cases that are rare in the tests of stores (decision G46)."""

from typing import Any

import pytest
from msgspec.structs import replace

from listings.domain.model import Listing
from listings.domain.reverts import CREATION_FIELDS, Edit, plan_revert

LISTING = Listing(
    *(1025, 1, 3, "Lamp", "Brass.", "product", "", "[]", 500, "fixed", "", "", "", None, None, True, None, 0),
    *("2026-11-20 10:00:00", "2026-11-20 11:00:00", None),
)
NOW = 1_795_255_200.0


def edit(number: int, *names: str, reverted: bool = False, is_revert: bool = False) -> Edit:
    return Edit(number, 0, names, reverted, is_revert)


def creation(number: int, *, reverted: bool) -> Edit:
    return Edit(number, 0, CREATION_FIELDS, reverted, is_creation=True)


def plan(edits: list[Edit], before: dict[int, dict[str, Any]], *, overwrite: bool = False, **now: Any) -> Any:
    """Return the changes without the time, and the fields that are kept."""
    values = {(number, 0): names for number, names in before.items()}
    changes, conflicts = plan_revert(replace(LISTING, **now), edits, values, NOW, overwrite=overwrite)
    return {name: value for name, value in changes.items() if name != "updated_at"}, [
        (list(one.fields), one.subject) for one in conflicts
    ]


BY_OTHERS = edit(3, "price_cents")
OURS = edit(2, "price_cents", reverted=True)


@pytest.mark.decision("G46")
def test_a_later_edit_that_was_undone_is_no_conflict() -> None:
    undone = [edit(4, "price_cents", is_revert=True), BY_OTHERS, OURS]
    assert plan(undone, {2: {"price_cents": 100}, 3: {"price_cents": 500}}) == ({"price_cents": 100}, [])
    assert plan(undone, {2: {"price_cents": 100}, 3: {"price_cents": 400}}) == ({}, [(["price_cents"], 4)])
    set_back = [edit(4, "price_cents"), BY_OTHERS, OURS]
    assert plan(set_back, {2: {"price_cents": 100}}) == ({}, [(["price_cents"], 4)])


def test_a_created_listing_is_deleted_if_all_later_edits_were_undone() -> None:
    edits = [edit(4, "price_cents", is_revert=True), BY_OTHERS, creation(2, reverted=True)]
    deleted = {"deleted_at": int(NOW), "is_active": False}
    assert plan(edits, {3: {"price_cents": 500}}) == (deleted, [])
    assert plan(edits[1:], {}) == ({}, [(["deleted_at"], 3)])
    assert plan(edits[1:], {}, overwrite=True) == (deleted, [])


def test_a_created_listing_changed_between_two_reverted_edits_is_left() -> None:
    edits = [edit(4, "price_cents", reverted=True), BY_OTHERS, creation(2, reverted=True)]
    assert plan(edits, {4: {"price_cents": 400}}) == ({}, [(["deleted_at"], 3)])
    assert plan(edits, {4: {"price_cents": 400}}, overwrite=True)[1] == []


def test_a_listing_that_somebody_deleted_later_stays_deleted_and_inactive() -> None:
    edits = [edit(3, "deleted_at"), edit(2, "is_active", "title", reverted=True)]
    before = {2: {"is_active": True, "title": "Before"}}
    assert plan(edits, before, deleted_at=5, is_active=False) == ({"title": "Before"}, [])


def test_the_revert_of_a_restore_of_a_listing_changed_later_is_a_conflict() -> None:
    edits = [edit(3, "title"), edit(2, "deleted_at", "is_active", reverted=True), edit(1, "deleted_at", "is_active")]
    before = {2: {"deleted_at": 5, "is_active": False}}
    assert plan(edits, before) == ({}, [(["deleted_at"], 3)])
    assert plan(edits[1:], before) == ({"deleted_at": 5, "is_active": False}, [])


def test_a_field_that_already_has_its_earlier_value_is_left() -> None:
    assert plan([BY_OTHERS, OURS], {2: {"price_cents": 500}}) == ({}, [])
    assert plan([creation(1, reverted=True)], {}, deleted_at=5, is_active=False) == ({}, [])
