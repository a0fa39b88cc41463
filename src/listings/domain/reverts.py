"""Plan a revert: give fields of a listing the values from before some of its changes (decision G46).

An edit and the revert that undid it cancel each other, field by field. If that revert was undone, the edit counts.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from listings.domain import timestamps
from listings.domain.account_limits import NO_GROWTH, AccountSize
from listings.domain.changes import Change
from listings.domain.external_ids import find_claimed
from listings.domain.model import MAX_ID, Listing, ListingChange, Value

EditKey: TypeAlias = tuple[int, int]
RevertKind: TypeAlias = Literal["change", "import", "revert", "group", "key"]
ConflictReason: TypeAlias = Literal["changed_later", "external_id_taken", "account_full", "too_many_changes"]

CREATION_FIELDS = ("deleted_at", "is_active")
"""The fields by which the revert of a create deletes the listing."""

MAX_FIRST_LISTINGS = 200
"""Maximum number of listings in a revert's first transaction, the same as in a batch of an import."""

MAX_STEP_LISTINGS = 300  # on PostgreSQL, a revert of 100,000 takes 9 s, and 15 s in steps of 100
"""Maximum number of listings in each further transaction, and of those that pass on external ids in any."""

_MAX_SHOWN = 100  # changes and conflicts of a preview
_MAX_SHOWN_CHARACTERS = 256 * 1024  # of the values of these changes

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
        if self.kind == "key":
            return source.actor == self.subject and self.since <= source.moment <= self.until
        is_of_group = source.group_id == self.subject and _GROUPED_KINDS.get(source.kind, "group") == self.kind
        return is_of_group or self.kind == "change"


class Edit(NamedTuple):
    """A change of a listing. A create has the `CREATION_FIELDS`, and the number 0.

    `undoes`: what the earlier revert undoes that wrote it, if a revert did.
    """

    source: ChangeSource
    number: int
    fields: Sequence[str]
    size: int = 0  # bytes of its values
    is_creation: bool = False
    undoes: RevertScope | None = None

    @property
    def key(self) -> EditKey:
        """The change set and the number, which identify it."""
        return self.source.edit_revision, self.number


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
    """The changes of one listing, which may be none, and the fields that it keeps.

    `size` is that of the listing's texts and its edits in memory. If `is_ahead`, it is not its turn, and the plan only
    frees its external id. `was_ahead`: this was done before.
    """

    listing: Listing
    changes: ListingChange
    conflicts: Sequence[Conflict] = ()
    size: int = 0
    was_ahead: bool = False
    is_ahead: bool = False

    @property
    def claimed(self) -> str | None:
        """The external id that the changes take."""
        return find_claimed(self.listing, self.changes)

    @property
    def held(self) -> str | None:
        """The external id that the listing has, unless it is deleted."""
        return None if self.listing.deleted_at is not None else self.listing.external_id

    @property
    def frees(self) -> bool:
        """Whether the changes free that external id."""
        return self.changes.get("deleted_at") is not None or self.changes.get("external_id", self.held) != self.held

    def leave_external_id(self, holder: int, now: float) -> "RevertPlan":
        """Return the plan without the external id, which another listing has, and without the restore that needs it."""
        left = ["external_id"] if "external_id" in self.changes else []
        was_deleted = self.listing.deleted_at
        if self.changes.get("deleted_at", was_deleted) is None and was_deleted is not None:
            left += [name for name in CREATION_FIELDS if name in self.changes]
        changes = {name: value for name, value in self.changes.items() if name not in {*left, "updated_at"}}
        conflict = Conflict("external_id_taken", left, holder)
        return self._replace(changes=_complete(self.listing, changes, now), conflicts=[*self.conflicts, conflict])

    def leave_all(self, reason: ConflictReason) -> "RevertPlan":
        """Return a plan that changes nothing. The fields that this one would change become a conflict."""
        names = [name for name in self.changes if name != "updated_at"]
        return self._replace(changes={}, conflicts=[*self.conflicts, Conflict(reason, names)])

    def free_external_id(self, now: float) -> "RevertPlan":
        """Return a plan that only takes the external id from the listing, ahead of its turn."""
        changes = _complete(self.listing, {"external_id": None}, now)
        return self._replace(changes=changes, conflicts=(), is_ahead=True)


def read_history(edits: Sequence[Edit], scope: RevertScope) -> dict[str, FieldHistory]:
    """Return what a revert finds in each field. `edits` are those of one listing, newest first."""
    by_field: dict[str, list[Edit]] = {}
    for edit in edits:
        for name in edit.fields:
            by_field.setdefault(name, []).append(edit)
    has_reverts = any(edit.undoes for edit in edits)
    return {
        name: _read_field(found, scope, _find_undone(found) if has_reverts else {}) for name, found in by_field.items()
    }


def _find_undone(edits: Sequence[Edit]) -> Mapping[EditKey, frozenset[EditKey]]:
    # The edits that each earlier revert of a field undid: at its time, all that counted.
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
    # `origin` is the oldest edit after the last one that counts and comes before those that are undone. The restore of
    # a listing whose create was undone is its own origin: the value from before the create would have the wrong time.
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

    `fields` is from `read_history`, and `values` from before each edit in `list_needed`. Without `overwrite`, a field
    with a later edit is a conflict, and so is a later edit of any field if this revert would delete the listing.
    """
    changes: dict[str, Value] = {}
    kept: dict[str, Edit] = {}
    for name, field in fields.items():
        if field.origin is None:
            continue
        value: Value = int(now) if name == "deleted_at" else False
        if not field.origin.is_creation:
            value = values[field.origin.key][name]
        is_deleted = field.origin.is_creation and name == "deleted_at" and listing.deleted_at is not None
        if is_deleted or getattr(listing, name) == value:
            continue
        later = field.later[0] if field.later else None
        if name == "deleted_at" and value is not None:
            start = (field.start or field.origin).key
            newest = [one.newest for one in fields.values() if one.newest is not None and one.newest.key > start]
            later = max(newest, key=lambda edit: edit.key, default=None)
        if later is None or overwrite:
            changes[name] = value
        else:
            kept[name] = later
    if "deleted_at" in kept:
        if any(edit.is_creation for edit in fields["deleted_at"].undone):
            changes, kept = {}, {"deleted_at": kept["deleted_at"]}
        changes.pop("is_active", None)
    last = max((edit.source.edit_revision for edit in kept.values()), default=0)
    conflicts = [Conflict("changed_later", sorted(kept), last)] if kept else []
    return RevertPlan(listing, _complete(listing, changes, now), conflicts)


def _complete(listing: Listing, changes: dict[str, Value], now: float) -> ListingChange:
    if changes.get("deleted_at", listing.deleted_at) is not None:  # a deleted listing is inactive (decision G11)
        changes.pop("is_active", None)
        if listing.is_active:
            changes["is_active"] = False
    if changes:
        changes["updated_at"] = max(timestamps.format_timestamp(now), listing.updated_at)
    return changes


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


class RevertPosition(NamedTuple):
    """How far a revert has come: it continues with the changes of a change set that have lower numbers.

    It goes from the newest change to the oldest, so what remains is less than the position.
    """

    edit_revision: int
    number: int = MAX_ID


class Candidate(NamedTuple):
    """A listing that a revert may change. Its position is that of the newest change of it that is undone.

    The number of a create is the negative id of the listing.
    """

    position: RevertPosition
    listing_id: int


class RevertStep(NamedTuple):
    """Listings to revert from one position to another, those with the newest changes first."""

    start: RevertPosition
    candidates: Sequence[Candidate]
    end: RevertPosition
    is_last: bool

    def cut(self, start: RevertPosition, count: int) -> "RevertStep":
        """Return the part of the step from a position on, with at most `count` listings."""
        first = bisect_left(self.candidates, 1, key=lambda one: one.position < start)
        step = self._replace(start=start, candidates=self.candidates[first : first + count])
        if first + count >= len(self.candidates):
            return step
        return step._replace(end=step.candidates[-1].position, is_last=False)

    def find_end(self, done: int) -> tuple[RevertPosition, bool]:
        """Return the position after the first `done` listings, and whether the revert ends there."""
        if done == len(self.candidates):
            return self.end, self.is_last
        return self.candidates[done - 1].position, False


class RevertCounts(msgspec.Struct, frozen=True):
    """The number of listings that were reverted completely, the number that needed no change, and that of conflicts.

    Every other listing of the revert has a conflict.
    """

    reverted: int = 0
    unchanged: int = 0
    conflicts: int = 0

    def add(self, plans: Iterable[RevertPlan]) -> "RevertCounts":
        """Return the counts with those of further plans."""
        own = [one for one in plans if not one.is_ahead]
        reverted = sum(bool(one.changes) for one in own if not one.conflicts)
        unchanged = sum(not (one.changes or one.conflicts) for one in own)
        conflicts = sum(len(one.conflicts) for one in own)
        return RevertCounts(self.reverted + reverted, self.unchanged + unchanged, self.conflicts + conflicts)


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


class RevertPreview(msgspec.Struct):
    """The effect of a revert, added up part by part: its first changes and conflicts, and the numbers of all.

    `times` are those of the first and the last change set to revert, if they are a group (Unix times in seconds). The
    parts so far have planned the listings `handled`, take external ids (`taken`: the listing by id) from others
    (`freed`), and enlarge the account by `growth`.
    """

    times: tuple[int, int] | None = None
    changes: list[Change] = []
    conflicts: list[RevertConflict] = []
    counts: RevertCounts = RevertCounts()
    characters: int = 0  # of `changes`; once they are too many, all later changes are left out
    handled: set[int] = set()
    taken: dict[str, int] = {}
    freed: set[int] = set()
    growth: AccountSize = NO_GROWTH

    def add(self, plans: Sequence[RevertPlan], growth: AccountSize, now: int) -> None:
        """Add a part, and its growth of the account."""
        self.counts = self.counts.add(plans)
        self.growth = self.growth.add(growth)
        for plan in plans:
            listing, claimed = plan.listing, plan.claimed
            if plan.frees:
                self.freed.add(listing.id)
            if claimed is not None:
                self.taken[claimed] = listing.id
            if plan.is_ahead:
                continue
            self.handled.add(listing.id)
            after = {name: value for name, value in plan.changes.items() if name != "updated_at"}
            if after and len(self.changes) < _MAX_SHOWN:
                before = {name: getattr(listing, name) for name in after}
                self.characters += sum(len(str(value)) for values in (before, after) for value in values.values())
                if self.characters <= _MAX_SHOWN_CHARACTERS:
                    source = (now, 0, "reverted", None, None)
                    self.changes.append(Change(0, 0, listing.id, *source, listing.external_id, before, after))
            for conflict in plan.conflicts[: _MAX_SHOWN - len(self.conflicts)]:
                number = len(self.conflicts) + 1
                self.conflicts.append(RevertConflict(number, listing.id, listing.external_id, *conflict))
