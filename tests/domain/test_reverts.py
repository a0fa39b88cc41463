"""The plan of a revert: cases that are rare in the tests of stores (decision G46)."""

from typing import Any

import pytest
from msgspec.structs import replace

from listings.domain.model import Listing
from listings.domain.reverts import CREATION_FIELDS, ChangeSource, Edit, RevertScope, plan_revert, read_history

LISTING = Listing(
    *(1025, 1, 3, "Lamp", "Brass.", "product", "", "[]", 500, "fixed", "", "", "", None, None, True, None, 0),
    *("2026-11-20 10:00:00", "2026-11-20 11:00:00", None),
)
NOW = 1_795_255_200.0
OURS, OTHERS = 7, 8
SCOPE = RevertScope("key", OURS, 1, 99)


def edit(number: int, *names: str, by: int = OTHERS, undoes: int = 0, overwrite: bool = False) -> Edit:
    """Return an edit. `undoes`: the change set that it undoes, as a revert."""
    if not undoes:
        return Edit(ChangeSource(number, 1, by, "updated"), 0, names)
    scope = RevertScope("change", undoes, undoes, undoes, overwrite=overwrite)
    return Edit(ChangeSource(number, 1, by, "reverted", number), 0, names, undoes=scope)


def creation(number: int, *, by: int = OURS) -> Edit:
    return Edit(ChangeSource(number, 1, by, "created"), 0, CREATION_FIELDS, is_creation=True)


def plan(edits: list[Edit], before: dict[int, dict[str, Any]], *, overwrite: bool = False, **now: Any) -> Any:
    """Return the changes without the time, and the fields that are kept."""
    values = {(number, 0): names for number, names in before.items()}
    scope = replace(SCOPE, overwrite=overwrite)
    fields = read_history(edits, scope)
    found = plan_revert(replace(LISTING, **now), fields, values, NOW, overwrite=overwrite)
    return {name: value for name, value in found.changes.items() if name != "updated_at"}, [
        (list(one.fields), one.subject) for one in found.conflicts
    ]


BY_OTHERS = edit(3, "price_cents")
BY_US = edit(2, "price_cents", by=OURS)


@pytest.mark.decision("G46")
def test_a_later_edit_that_was_undone_is_no_conflict() -> None:
    before = {2: {"price_cents": 100}}
    assert plan([edit(4, "price_cents", undoes=3), BY_OTHERS, BY_US], before) == ({"price_cents": 100}, [])
    assert plan([edit(4, "price_cents"), BY_OTHERS, BY_US], before) == ({}, [(["price_cents"], 4)])
    undone = [edit(5, "price_cents", undoes=4), edit(4, "price_cents", undoes=3), BY_OTHERS, BY_US]
    assert plan(undone, before) == ({}, [(["price_cents"], 3)])


@pytest.mark.decision("G46")
def test_an_edit_that_was_undone_is_not_undone_again() -> None:
    edits = [edit(3, "price_cents", undoes=2), BY_US]
    assert plan(edits, {}) == ({}, [])
    edits = [edit(4, "price_cents", undoes=3), *edits]
    assert plan(edits, {2: {"price_cents": 100}}) == ({"price_cents": 100}, [])


def test_what_was_undone_between_two_edits_does_not_count() -> None:
    first, between, last = edit(1, "price_cents", by=OURS), BY_OTHERS, edit(4, "price_cents", by=OURS)
    edits = [edit(5, "price_cents", undoes=3, overwrite=True), last, between, first]
    assert plan(edits, {1: {"price_cents": 100}}) == ({"price_cents": 100}, [])
    assert plan(edits[1:], {4: {"price_cents": 300}}) == ({"price_cents": 300}, [])


def test_an_overwritten_edit_counts_again_once_the_overwriting_is_undone() -> None:
    scope = RevertScope("change", 4, 4, 4)
    overwriting = edit(4, "price_cents", undoes=2, overwrite=True)
    values = {(4, 0): {"price_cents": 300}}
    fields = read_history([overwriting, BY_OTHERS, BY_US], scope)
    assert plan_revert(LISTING, fields, values, NOW, overwrite=False).changes["price_cents"] == 300
    assert plan([edit(5, "price_cents", undoes=4), overwriting, BY_OTHERS, BY_US], {2: {"price_cents": 1}}) == (
        {},
        [(["price_cents"], 3)],
    )


def test_a_created_listing_is_deleted_if_all_later_edits_were_undone() -> None:
    edits = [edit(4, "price_cents", undoes=3), BY_OTHERS, creation(2)]
    deleted = {"deleted_at": int(NOW), "is_active": False}
    assert plan(edits, {}) == (deleted, [])
    assert plan(edits[1:], {}) == ({}, [(["deleted_at"], 3)])
    assert plan(edits[1:], {}, overwrite=True) == (deleted, [])


@pytest.mark.decision("G46")
def test_a_created_listing_is_deleted_if_a_part_was_undone_before() -> None:
    part = edit(3, "price_cents", undoes=2)
    assert plan([part, BY_US, creation(1)], {}) == ({"deleted_at": int(NOW), "is_active": False}, [])


def test_a_created_listing_changed_between_two_reverted_edits_is_left() -> None:
    edits = [edit(4, "price_cents", by=OURS), BY_OTHERS, creation(2)]
    assert plan(edits, {4: {"price_cents": 400}}) == ({}, [(["deleted_at"], 3)])
    assert plan(edits, {4: {"price_cents": 400}}, overwrite=True)[1] == []


def test_the_undo_of_a_restore_gives_the_time_of_the_deletion_back() -> None:
    undone = edit(3, "deleted_at", "is_active", undoes=2)
    edits = [edit(4, "deleted_at", by=OURS), undone, creation(2, by=OTHERS)]
    assert plan(edits, {4: {"deleted_at": 5}}, is_active=False) == ({"deleted_at": 5}, [])


def test_a_listing_that_somebody_deleted_later_stays_deleted_and_inactive() -> None:
    edits = [edit(3, "deleted_at"), edit(2, "is_active", "title", by=OURS)]
    before = {2: {"is_active": True, "title": "Before"}}
    assert plan(edits, before, deleted_at=5, is_active=False) == ({"title": "Before"}, [])


def test_the_revert_of_a_restore_of_a_listing_changed_later_is_a_conflict() -> None:
    edits = [edit(3, "title"), edit(2, "deleted_at", "is_active", by=OURS), edit(1, "deleted_at", "is_active")]
    before = {2: {"deleted_at": 5, "is_active": False}}
    assert plan(edits, before) == ({}, [(["deleted_at"], 3)])
    assert plan(edits[1:], before) == ({"deleted_at": 5, "is_active": False}, [])


def test_a_field_that_already_has_its_earlier_value_is_left() -> None:
    assert plan([BY_OTHERS, BY_US], {2: {"price_cents": 500}}) == ({}, [])
    assert plan([creation(1)], {}, deleted_at=5, is_active=False) == ({}, [])


@pytest.mark.parametrize(
    ("kind", "included"),
    [("import", ["import"]), ("revert", ["reverted"]), ("group", ["batch", "updated", "created"])],
)
def test_groups_with_the_same_number_are_told_apart_by_their_kind(kind: Any, included: list[str]) -> None:
    scope = RevertScope(kind, 3, 3, 9)
    kinds = ["import", "reverted", "batch", "updated", "created"]
    assert [one for one in kinds if scope.includes(ChangeSource(4, 1, 1, one, 3))] == included
    assert not scope.includes(ChangeSource(4, 1, 1, included[0]))
