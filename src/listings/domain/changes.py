"""Changes of listings, and their JSON (decision G45)."""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

import msgspec

from listings.domain import timestamps
from listings.domain.fields import FIELDS
from listings.domain.model import ListingChange, Value

CHANGES_BEGIN = b'{"change_sets":['

_NAMES: Mapping[str, str] = {field.attribute: name for name, field in FIELDS.items()}


class Change(msgspec.Struct, frozen=True, gc=False):
    """A change of one listing: the values of the changed attributes before and after it.

    `before` is None if it created the listing; `after` is then the listing as it is at the time of reading.
    The changes of a change set have ascending numbers; those that create a listing come first. `moment` (a Unix time),
    `actor` (a `key_id` as in `contract.history.Actor`), `kind` and `group_id` are those of the whole change set.
    `group_id` is the id of its import, or of its revert if `kind` is "reverted".
    """

    edit_revision: int
    number: int
    listing_id: int
    moment: int
    actor: int
    kind: str
    group_id: int | None
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
    """The part of a change set in front of its changes."""

    id: int
    time: str
    actor: ChangeActor
    kind: str
    revert: int | None = None  # the id of the revert that it belongs to


class ChangeRecord(msgspec.Struct, frozen=True, gc=False):
    """A change of one listing as JSON."""

    id: int
    external_id: str | None
    before: Mapping[str, Any] | None
    after: Mapping[str, Any]


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
        if change.group_id is not None and revert is None:
            actor = ChangeActor("import", id=change.group_id)
        head = _Head(change.edit_revision, timestamps.format_timestamp(change.moment), actor, change.kind, revert)
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


def _format_value(attribute: str, value: Value) -> Any:  # noqa: ANN401 - JSON
    if attribute == "price_cents" and isinstance(value, int):
        return value / 100
    if attribute == "images" and isinstance(value, str):
        return msgspec.Raw(value.encode())
    if attribute == "deleted_at" and isinstance(value, int):
        return timestamps.format_timestamp(value)
    return value
