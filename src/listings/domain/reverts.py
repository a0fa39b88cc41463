"""Plan a revert: give fields of a listing the values from before some of its changes (decision G46).

An edit and the revert that undid it cancel each other, field by field. If that revert was undone, the edit counts.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from listings.domain import timestamps
from listings.domain.account_limits import NO_GROWTH, AccountSize
from listings.domain.changes import Change
from listings.domain.model import MAX_ID, Listing, ListingChange, Value

RevertKind: TypeAlias = Literal["change", "import", "revert", "group", "key"]
ConflictReason: TypeAlias = Literal["changed_later", "external_id_taken", "account_full", "too_many_changes"]

CREATION_FIELDS = ("deleted_at", "is_active")
"""The fields by which the revert of a create deletes the listing."""

_GROUPED_KINDS: Mapping[str, RevertKind] = {"import": "import", "reverted": "revert"}  # others have the kind "group"


class ChangeSource(NamedTuple):
    """Where a change comes from: its change set, when and by whom (an `Actor`) it was written, its kind and group."""

    edit_revision: int
    moment: int
    actor: int
    kind: str
    group_id: int | None = None


class RevertScope(msgspec.Struct, frozen=True):
    """The change sets that a revert undoes: a single one, or all of an import, an earlier revert, a group, or a key.

    `subject` is the id of the change set, the group or the key (a key's as in `Change.actor`). The id of a group, an
    import or a revert is that of its first change set. The ids of the change sets are from `first` to `last`, and those
    of a key were written from `since` to `until`, which are Unix times in seconds. All bounds are inclusive. With
    `overwrite`, later changes are overwritten.
    """

    kind: RevertKind
    subject: int
    first: int
    last: int
    since: int = 0
    until: int = MAX_ID
    overwrite: bool = False

    def includes(self, source: ChangeSource) -> bool:
        """Return whether the revert undoes a change set."""
        if not self.first <= source.edit_revision <= self.last:
            return False
        if self.kind == "change":
            return source.edit_revision == self.subject
        if self.kind == "key":
            return source.actor == self.subject and self.since <= source.moment <= self.until
        return source.group_id == self.subject and _GROUPED_KINDS.get(source.kind, "group") == self.kind


class Edit(NamedTuple):
    """A change of a listing without its values. A create has the `CREATION_FIELDS`, and the number 0.

    `undoes`: what the earlier revert undoes that wrote it, if a revert did.
    """

    source: ChangeSource
    number: int
    fields: Sequence[str]
    size: int = 0  # bytes of its values
    is_creation: bool = False
    undoes: RevertScope | None = None

    @property
    def key(self) -> "EditKey":
        """The change set and the number, which identify it."""
        return self.source.edit_revision, self.number


EditKey: TypeAlias = tuple[int, int]


class FieldHistory(msgspec.Struct):
    """What a revert finds in the edits of one field.

    `undone` are the edits that it undoes, of which `start` is the first one since the last other edit that counts. The
    value from before `origin` is restored. `newest` is the newest other edit that counts, and `later` are those after
    all that are undone.
    """

    undone: list[Edit] = []
    start: Edit | None = None
    origin: Edit | None = None
    newest: Edit | None = None
    later: list[Edit] = []


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


def read_history(edits: Sequence[Edit], scope: RevertScope) -> dict[str, FieldHistory]:
    """Return what a revert finds in each field. `edits` are those of one listing, newest first."""
    by_field: dict[str, list[Edit]] = {}
    for edit in edits:
        for name in edit.fields:
            by_field.setdefault(name, []).append(edit)
    if not any(edit.undoes for edit in edits):
        return {name: _read_field(found, scope, {}) for name, found in by_field.items()}
    return {name: _read_field(found, scope, _find_undone(found)) for name, found in by_field.items()}


def _find_undone(edits: Sequence[Edit]) -> Mapping[EditKey, frozenset[EditKey]]:
    """Return, for each earlier revert of a field, the edits that it undid: at its time, all that counted."""
    undone: dict[EditKey, frozenset[EditKey]] = {}
    for position in reversed(range(len(edits))):
        edit = edits[position]
        if edit.undoes is None:
            continue
        older = [
            one
            for one in edits[position + 1 :]
            if one.source.edit_revision >= edit.undoes.first
            and not (one.undoes and one.source.group_id == edit.source.group_id)
        ]
        found = _read_field(older, edit.undoes, undone)
        overwritten = found.later if edit.undoes.overwrite and found.undone else []
        undone[edit.key] = frozenset(one.key for one in [*found.undone, *overwritten])
    return undone


def _read_field(
    edits: Iterable[Edit], scope: RevertScope, undone: Mapping[EditKey, frozenset[EditKey]]
) -> FieldHistory:
    """Return what a revert finds in the edits of one field, newest first.

    `origin` is the oldest edit after the last one that counts and comes before those that are undone. The restore of a
    listing whose create was undone is its own origin: the value from before the create would have the wrong time.
    """
    found = FieldHistory()
    hidden: set[EditKey] = set()
    ends = False
    for edit in edits:
        if edit.key in hidden:
            if edit.is_creation and found.undone and not ends:
                found.origin, ends = found.start, True
        elif scope.includes(edit.source):
            found.undone.append(edit)
            found.start = found.start if ends else edit
        elif undone.get(edit.key):
            hidden |= undone[edit.key]
        else:
            found.newest = found.newest or edit
            if not found.undone:
                found.later.append(edit)
            ends = ends or bool(found.undone)
        if found.undone and not ends:
            found.origin = edit
    return found


def list_needed(fields: Mapping[str, FieldHistory]) -> set[EditKey]:
    """Return the edits whose values `plan_revert` needs."""
    origins = [one.origin for one in fields.values()]
    return {one.key for one in origins if one is not None and not one.is_creation}


def plan_revert(
    listing: Listing,
    fields: Mapping[str, FieldHistory],
    values: Mapping[EditKey, ListingChange],
    now: float,
    *,
    overwrite: bool,
) -> RevertPlan:
    """Return what to write to a listing.

    `fields` is what `read_history` returns for its edits since the first one that is reverted, and `values` has the
    values from before each edit in `list_needed`. A field that another edit changed later is a conflict, unless
    `overwrite` is set. If this revert would delete the listing, any later edit of any field is a conflict, with the
    same exception.
    """
    changes: dict[str, Value] = {}
    kept: dict[str, Edit] = {}
    for name, field in fields.items():
        if field.origin is None:
            continue
        value = _get_value(name, field.origin, values, now)
        if _is_same(listing, name, value, field.origin):
            continue
        later = field.later[0] if field.later else None
        if name == "deleted_at" and value is not None:
            later = _find_later(fields.values(), field.start or field.origin)
        if later is None or overwrite:
            changes[name] = value
        else:
            kept[name] = later
    if "deleted_at" in kept:
        if any(edit.is_creation for edit in fields["deleted_at"].undone):
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


def free_external_id(listing: Listing, now: float) -> RevertPlan:
    """Return a plan that only takes the external id from a listing."""
    return RevertPlan(_complete(listing, {"external_id": None}, now))


def _get_value(name: str, origin: Edit, values: Mapping[EditKey, ListingChange], now: float) -> Value:
    if origin.is_creation:
        return int(now) if name == "deleted_at" else False
    return values[origin.key][name]


def _is_same(listing: Listing, name: str, value: Value, origin: Edit) -> bool:
    if origin.is_creation and name == "deleted_at":
        return listing.deleted_at is not None
    return bool(getattr(listing, name) == value)


def _find_later(fields: Iterable[FieldHistory], start: Edit) -> Edit | None:
    """Return the last edit of any field after `start` that counts and that the revert does not undo."""
    newest = [field.newest for field in fields if field.newest is not None and field.newest.key > start.key]
    return max(newest, key=lambda edit: edit.key, default=None)


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
    last = max(edit.source.edit_revision for edit in kept.values())
    return [Conflict("changed_later", sorted(kept), last)]


MAX_FIRST_LISTINGS = 200
"""Maximum number of listings in a revert's first transaction, the same as in a batch of an import."""

MAX_STEP_LISTINGS = 300
"""Maximum number of listings in each further transaction, and of those that pass on external ids in any.

On PostgreSQL, a revert of 100,000 listings takes 9 s (15 s in steps of 100).
"""


FoundScope: TypeAlias = tuple[RevertScope, tuple[int, int] | None]
"""The change sets to revert, and the times of the first and the last one if they are a group."""


class RevertRequest(NamedTuple):
    """What to revert: `subject` is the id of a change set, an import or an earlier revert, a group, or an actor.

    A group is its name, or `#` and its id. An actor is the `key_id` of an `Actor`; `since` and `until` limit its
    changes (Unix times in seconds).
    """

    kind: RevertKind
    subject: int | str
    since: int = 0
    until: int | None = None  # None: now
    overwrite: bool = False  # also revert fields that were changed later


class RevertKey(NamedTuple):
    """Identifies a revert. An account numbers its reverts."""

    bucket: int
    account_id: int
    id: int


class Candidate(NamedTuple):
    """A listing that a revert may change, and the newest change of it that is undone: its change set and number.

    The number of a create is the negative id of the listing.
    """

    edit_revision: int
    number: int
    listing_id: int


class RevertPosition(NamedTuple):
    """How far a revert has come: it continues with the changes of a change set that have lower numbers."""

    edit_revision: int
    number: int = MAX_ID

    def has_passed(self, edit_revision: int, number: int) -> bool:
        """Return whether a change comes before this position, which goes from the newest change to the oldest."""
        return (edit_revision, number) >= self


class RevertStep(NamedTuple):
    """Listings to revert from one position to another, those with the newest changes first."""

    start: RevertPosition
    candidates: Sequence[Candidate]
    end: RevertPosition
    is_last: bool


class RevertCounts(msgspec.Struct, frozen=True):
    """The number of listings that were reverted completely, the number that needed no change, and that of conflicts.

    Every other listing of the revert has a conflict.
    """

    reverted: int = 0
    unchanged: int = 0
    conflicts: int = 0


class RevertConflict(msgspec.Struct, frozen=True):
    """A conflict; see `listings.domain.reverts.Conflict`. Those of a revert are numbered from 1."""

    number: int
    listing_id: int
    external_id: str | None
    reason: ConflictReason
    fields: Sequence[str]
    subject: int | None


class Revert(msgspec.Struct, frozen=True):
    """A revert, and how far it has come. `actor` is the `key_id` of an `Actor`; times are in seconds since 1970.

    `group_id` is the id of its first change set, or None if it has changed nothing.
    """

    key: RevertKey
    scope: RevertScope
    actor: int
    started_at: int
    position: RevertPosition
    counts: RevertCounts
    finished_at: int | None
    group_id: int | None = None

    @property
    def progress(self) -> float:
        """The progress from 0 to 1."""
        if self.finished_at is not None:
            return 1.0
        first, last = self.scope.first, self.scope.last
        edit_revision, number = self.position
        return round((last - edit_revision + (number < MAX_ID)) / (last + 1 - first), 3)


class RevertOverlay(msgspec.Struct):
    """What the parts of a preview before this one would have done.

    They plan the listings `handled`, take external ids (`taken`: the listing by id) from others (`freed`), and make the
    account larger.
    """

    handled: set[int] = set()
    taken: dict[str, int] = {}
    freed: set[int] = set()
    growth: AccountSize = NO_GROWTH


class RevertPreview(NamedTuple):
    """What a revert would do to some candidates: its changes and conflicts. `done`: how many candidates were read."""

    changes: Sequence[Change]
    conflicts: Sequence[RevertConflict]
    counts: RevertCounts
    done: int
