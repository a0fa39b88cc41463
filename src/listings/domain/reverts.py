"""Plan a revert: give fields of a listing the values from before some of its changes (decision G46)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from listings.domain import timestamps
from listings.domain.model import MAX_ID, Listing, ListingChange, Value

RevertKind: TypeAlias = Literal["change", "import", "revert", "key"]
ConflictReason: TypeAlias = Literal["changed_later", "external_id_taken", "account_full", "too_many_changes"]

CREATION_FIELDS = ("deleted_at", "is_active")
"""The fields by which the revert of a create deletes the listing."""


class RevertScope(msgspec.Struct, frozen=True):
    """The change sets that a revert undoes: a single one, or all of an import, of an earlier revert, or of a key.

    `subject` is the id of the change set, import, revert or key (a key's as in `Change.actor`). The ids of the change
    sets are from `first` to `last`, and those of a key were written from `since` to `until`, which are Unix times in
    seconds. All bounds are inclusive. With `overwrite`, later changes are overwritten.
    """

    kind: RevertKind
    subject: int
    first: int
    last: int
    since: int = 0
    until: int = MAX_ID
    overwrite: bool = False

    def includes(self, edit_revision: int, moment: int, actor: int, group_id: int | None) -> bool:
        """Return whether the revert undoes a change set. `group_id` is that of its import or revert, if it has one."""
        if not self.first <= edit_revision <= self.last:
            return False
        if self.kind == "change":
            return edit_revision == self.subject
        if self.kind == "key":
            return actor == self.subject and self.since <= moment <= self.until
        return group_id == self.subject


class Edit(NamedTuple):
    """A change of a listing without its values. A create has the `CREATION_FIELDS`, and the number 0.

    `is_reverted`: whether the revert undoes it. `is_revert`: whether an earlier revert wrote it.
    """

    edit_revision: int
    number: int
    fields: Sequence[str]
    is_reverted: bool
    is_revert: bool = False
    size: int = 0  # bytes of its values
    is_creation: bool = False

    @property
    def key(self) -> "EditKey":
        """The change set and the number, which identify it."""
        return self.edit_revision, self.number


EditKey: TypeAlias = tuple[int, int]


class FieldEdits(msgspec.Struct):
    """The edits of one field that decide how it is reverted.

    `origin` is the first edit of the last uninterrupted series of reverted edits: the value from before it is restored.
    `newest` and `oldest` are the newest and the oldest edit after this series. `previous` is the last edit before it.
    """

    origin: Edit | None = None
    newest: Edit | None = None
    oldest: Edit | None = None
    previous: Edit | None = None

    def add(self, edit: Edit) -> None:
        """Add the next older edit."""
        if self.previous is not None:
            return
        if edit.is_reverted:
            self.origin = edit
        elif self.origin is not None:
            self.previous = edit
        else:
            self.newest = self.newest or edit
            self.oldest = edit


class Conflict(NamedTuple):
    """Fields that a revert leaves as they are, and the reason.

    `subject` is the change set that changed them later, or the listing that has the external id.
    """

    reason: ConflictReason
    fields: Sequence[str]
    subject: int | None = None


class RevertPlan(NamedTuple):
    """The changes of one listing, which may be none, and the fields that it keeps."""

    changes: ListingChange
    conflicts: Sequence[Conflict] = ()


NOTHING = RevertPlan({})


def group_by_field(edits: Iterable[Edit]) -> dict[str, FieldEdits]:
    """Return the edits that matter for each field. `edits` are those of one listing, newest first."""
    found: dict[str, FieldEdits] = {}
    for edit in edits:
        for name in edit.fields:
            found.setdefault(name, FieldEdits()).add(edit)
    return found


def list_needed(edits: Sequence[Edit]) -> set[EditKey]:
    """Return the edits whose values `plan_revert` needs."""
    fields = group_by_field(edits).values()
    origins = {one.origin.key for one in fields if one.origin is not None and not one.origin.is_creation}
    undone = {one.oldest.key for one in fields if one.oldest is not None and one.newest and one.newest.is_revert}
    return origins | undone


def plan_revert(
    listing: Listing, edits: Sequence[Edit], values: Mapping[EditKey, ListingChange], now: float, *, overwrite: bool
) -> RevertPlan:
    """Return what to write to a listing.

    `edits` are its edits since the first one that is reverted, newest first, and `values` has the values from before
    each edit in `list_needed`. A field that another edit changed later is a conflict, unless `overwrite` is set or an
    earlier revert has undone that edit. If this revert would delete the listing, any later edit of any field is a
    conflict, with the same exceptions; here, an undone edit does count if a reverted edit of the same field follows it.
    """
    changes: dict[str, Value] = {}
    kept: dict[str, Edit] = {}
    fields = group_by_field(edits)
    for name, field in fields.items():
        if field.origin is None:
            continue
        value = _get_value(name, field.origin, values, now)
        if _is_same(listing, name, value, field.origin):
            continue
        later = field.newest if not _is_undone(listing, name, field, values) else None
        if name == "deleted_at" and value is not None:
            later = _find_later(listing, fields, field.origin, values)
        if later is None or overwrite:
            changes[name] = value
        else:
            kept[name] = later
    if "deleted_at" in kept:
        if any(edit.is_creation and edit.is_reverted for edit in edits):
            changes.clear()
            kept = {"deleted_at": kept["deleted_at"]}
        changes.pop("is_active", None)
    return RevertPlan(_complete(listing, changes, now), _build_conflicts(kept))


def leave_external_id(plan: RevertPlan, listing: Listing, holder: int, now: float) -> RevertPlan:
    """Return the plan without the external id, which another listing has, and without the restore that needs it."""
    left = ["external_id"] if "external_id" in plan.changes else []
    if plan.changes.get("deleted_at", listing.deleted_at) is None and listing.deleted_at is not None:
        left += [name for name in CREATION_FIELDS if name in plan.changes]
    changes = {name: value for name, value in plan.changes.items() if name not in {*left, "updated_at"}}
    conflict = Conflict("external_id_taken", left, holder)
    return RevertPlan(_complete(listing, changes, now), [*plan.conflicts, conflict])


def leave_all(plan: RevertPlan, reason: ConflictReason) -> RevertPlan:
    """Return a plan that changes nothing. The fields that `plan` would change become a conflict."""
    names = [name for name in plan.changes if name != "updated_at"]
    return RevertPlan({}, [*plan.conflicts, Conflict(reason, names)])


def _get_value(name: str, origin: Edit, values: Mapping[EditKey, ListingChange], now: float) -> Value:
    if origin.is_creation:
        return int(now) if name == "deleted_at" else False
    return values[origin.key][name]


def _is_same(listing: Listing, name: str, value: Value, origin: Edit) -> bool:
    if origin.is_creation and name == "deleted_at":
        return listing.deleted_at is not None
    return bool(getattr(listing, name) == value)


def _is_undone(listing: Listing, name: str, field: FieldEdits, values: Mapping[EditKey, ListingChange]) -> bool:
    """Return whether a revert has undone the edits after the series, so that the field is as before them."""
    if field.newest is None or field.oldest is None or not field.newest.is_revert:
        return False
    return field.oldest.is_creation is False and bool(values[field.oldest.key][name] == getattr(listing, name))


def _find_later(
    listing: Listing, fields: Mapping[str, FieldEdits], origin: Edit, values: Mapping[EditKey, ListingChange]
) -> Edit | None:
    """Return the last edit of any field after `origin` that is a conflict, as in `plan_revert`."""
    later = [
        field.newest
        for name, field in fields.items()
        if field.newest is not None and not _is_undone(listing, name, field, values)
    ]
    later += [field.previous for field in fields.values() if field.previous is not None]
    return max((edit for edit in later if edit.key > origin.key), key=lambda edit: edit.key, default=None)


def _complete(listing: Listing, changes: dict[str, Value], now: float) -> ListingChange:
    """Make a deleted listing inactive (decision G11), and add the time of the update."""
    if changes.get("deleted_at", listing.deleted_at) is not None:
        changes.pop("is_active", None)
        if listing.is_active:
            changes["is_active"] = False
    if changes:
        changes["updated_at"] = max(timestamps.format_timestamp(now), listing.updated_at)
    return changes


def _build_conflicts(kept: Mapping[str, Edit]) -> list[Conflict]:
    if not kept:
        return []
    last = max(edit.edit_revision for edit in kept.values())
    return [Conflict("changed_later", sorted(kept), last)]
