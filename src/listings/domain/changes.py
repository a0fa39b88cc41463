"""Changes of listings, and their JSON (decision G45)."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from listings.domain import timestamps
from listings.domain.errors import Problem
from listings.domain.fields import FIELDS
from listings.domain.model import ListingChange, Value
from listings.domain.rules import Rule

CHANGES_BEGIN = b'{"change_sets":['

_NAMES: Mapping[str, str] = {field.attribute: name for name, field in FIELDS.items()}
_RULES: Mapping[str, Rule] = {field.attribute: field.rule for field in FIELDS.values()}


class Change(msgspec.Struct, frozen=True, gc=False):
    """A change of one listing: the values of the changed attributes before and after it.

    `before` is None if it created the listing; `after` is then the listing as it was created.
    The changes of a change set have ascending numbers; those that create a listing come first. `moment` (a Unix time),
    `actor` (a `key_id` as in `domain.history.Actor`), `kind` and `group_id` are those of the whole change set.
    `group_id` is the id of its import, or of its revert if `kind` is "reverted". `group` is the name that its writer
    gave to it and other change sets, or `#` and the id of the first one.
    """

    edit_revision: int
    number: int
    listing_id: int
    moment: int
    actor: int
    kind: str
    group_id: int | None
    group: str | None
    external_id: str | None  # at the time of reading
    before: ListingChange | None
    after: ListingChange


class ChangeActor(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who made a change set: a key with its name, masked text and id, a member, the operator, or an import."""

    type: str
    name: str | None = None
    hint: str | None = None
    id: int | None = None


class _Head(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    id: int
    time: str
    actor: ChangeActor
    kind: str
    revert: int | None = None  # the id of the revert that it belongs to
    group: str | None = None


class ChangeRecord(msgspec.Struct, frozen=True, gc=False):
    """A change of one listing as JSON."""

    id: int
    external_id: str | None
    before: Mapping[str, Any] | None
    after: Mapping[str, Any]


class GroupOfChanges(msgspec.Struct, frozen=True):
    """The change sets of an import, a revert, a bulk action of the console (`bulk`), or those with a name (`named`).

    `id` and `last_id` are its first and its last change set, and times are Unix times. `revert` is the id of a revert.
    """

    id: int
    kind: str
    name: str | None
    actor: int
    started_at: int
    ended_at: int
    last_id: int
    sets: int
    changes: int
    revert: int | None = None

    def build_undo(self, purged: int) -> dict[str, int | str] | None:
        """Return the body that undoes it, or None if its first change set is no longer stored."""
        if self.id <= purged or (self.kind == "reverted" and self.revert is None):
            return None
        if self.kind == "reverted":
            return {"revert": self.revert or 0}
        return {"import": self.id} if self.kind == "import" else {"group": self.shown_name}

    @property
    def shown_name(self) -> str:
        """The name that its writer gave it, or `#` and its id."""
        return self.name if self.kind == "named" and self.name is not None else f"#{self.id}"


def build_group_record(group: GroupOfChanges, actor: ChangeActor | None, purged: int) -> dict[str, Any]:
    """Return a group as it is in JSON. `purged` is the last change set that is no longer stored."""
    return {
        "id": group.id,
        "kind": {"named": "group", "reverted": "revert"}.get(group.kind, group.kind),
        "group": group.shown_name if group.kind in {"named", "bulk"} else None,
        "actor": actor or ChangeActor("key"),
        "since": timestamps.format_timestamp(group.started_at),
        "until": timestamps.format_timestamp(group.ended_at),
        "last": group.last_id,
        "change_sets": group.sets,
        "changes": group.changes,
        "undo": group.build_undo(purged),
    }


class ChangeEncoder:
    """Encodes changes, page by page, as the elements of a JSON array of change sets."""

    def __init__(self, actors: Mapping[int, ChangeActor]) -> None:
        """`actors`: those who made the changes, by `Change.actor`."""
        self._actors = actors
        self._open: int | None = None  # the change set that may get further changes

    def encode(self, changes: Iterable[Change]) -> bytes:
        """Return the next part of the array."""
        parts = []
        for edit_revision, group in groupby(changes, lambda change: change.edit_revision):
            members = list(group)
            if edit_revision == self._open:
                parts.append(b",")
            else:
                parts += [self.finish(), b"," if self._open is not None else b"", self._encode_head(members[0])]
                self._open = edit_revision
            parts.append(msgspec.json.encode([build_record(change) for change in members])[1:-1])
        return b"".join(parts)

    def finish(self) -> bytes:
        """Return the end of the last change set."""
        return b"]}" if self._open is not None else b""

    def _encode_head(self, change: Change) -> bytes:
        actor = self._actors.get(change.actor) or ChangeActor("key")
        revert = change.group_id if change.kind == "reverted" else None
        if change.kind == "import":
            actor = ChangeActor("import", id=change.group_id)
        time = timestamps.format_timestamp(change.moment)
        head = _Head(change.edit_revision, time, actor, change.kind, revert, change.group)
        return msgspec.json.encode(head)[:-1] + b',"changes":['


def build_record(change: Change) -> ChangeRecord:
    """Return a change of one listing as it is in JSON."""
    before = None if change.before is None else format_values(change.before)
    return ChangeRecord(change.listing_id, change.external_id, before, format_values(change.after))


def get_name(attribute: str) -> str:
    """Return the name that an attribute of a listing has in a record."""
    return _NAMES.get(attribute, attribute)


def format_values(values: ListingChange) -> dict[str, Any]:
    """Convert the values of `Listing` attributes to the names and the JSON values that a record has."""
    return {get_name(attribute): _format_value(attribute, value) for attribute, value in values.items()}


def format_pairs(values: Mapping[str, tuple[Value, Value]]) -> dict[str, tuple[Any, Any]]:
    """Convert pairs of an old and a new value as `format_values` does."""
    old, new = (format_values({name: pair[side] for name, pair in values.items()}) for side in (0, 1))
    return {name: (old[name], new[name]) for name in old}


def _format_value(attribute: str, value: Value) -> Any:  # noqa: ANN401 - JSON
    rule = _RULES.get(attribute)
    if rule is not None:
        return rule.to_json(value)
    return timestamps.format_timestamp(value) if attribute == "deleted_at" and isinstance(value, int) else value


END = 2**31 - 1
"""The `number` of a `ChangePosition` after a whole change set."""


class ChangePosition(NamedTuple):
    """A position between two changes of an account: after a change, or after a whole change set if `number` is END.

    `edit_revision` is the id of the change set.
    """

    edit_revision: int
    number: int = END


class EditState(NamedTuple):
    """The ids of an account's last change set, and of the last ones that were deleted, and lost by a restore (or 0)."""

    edit_revision: int
    purged_revision: int
    lost_revision: int = 0

    def require_retained(self, after: int) -> None:
        """Raise Problem("changes_gone") if a change set after `after` was deleted or lost, or there is no `after`."""
        first = max(self.purged_revision, self.lost_revision)
        if not first <= after <= self.edit_revision:
            problem = (
                f"Some changes after {after} are no longer stored" if after < first else f"There is no change {after}"
            )
            raise Problem(
                "changes_gone",
                f"{problem}. Start over: request limit=0 and store the last id, read all listings with status=all, "
                "then request the changes after that id",
            )


class ChangePage(NamedTuple):
    """Changes, oldest first. The next page starts at `end`.

    `end` is after a whole change set, unless that set is too large for one page.
    """

    changes: Sequence[Change]
    end: ChangePosition
    edit_revision: int  # the id of the account's last change set when the page was read


class GroupPage(NamedTuple):
    """Groups of change sets, newest first, whether there are older ones, and the last change set that was deleted."""

    groups: Sequence[GroupOfChanges]
    more: bool
    purged: int


class ListingChangePage(NamedTuple):
    """Changes of one listing, newest first, and whether there are older ones."""

    changes: Sequence[Change]
    more: bool
