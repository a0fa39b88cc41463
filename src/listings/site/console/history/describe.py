"""Changes and conflicts as texts for the seller. Pure functions."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from listings.domain.changes import Change, get_name
from listings.domain.fields import FIELDS
from listings.domain.model import Value
from listings.domain.reverts import ConflictReason, RevertConflict
from listings.site.console.listings.form import describe_value
from listings.site.presentation import format_dollars

_MAX_FIELDS = 6  # changed ones that a page shows
_MAX_LENGTH = 320  # characters of a text, of which a page shows 80: `summarize` needs four times as many
_STATES = {"deleted", "paused", "resumed"}  # outcomes that say whether the listing is on the market
_REASONS: Mapping[ConflictReason, str] = {
    "changed_later": "Changed later",
    "external_id_taken": f"Another listing now has this “{FIELDS['external_id'].label}”",
    "account_full": "Your account has no room for it",
    "too_many_changes": "Changed too often since then",
}


class ChangedField(NamedTuple):
    """The label of a field, and its values as texts."""

    label: str
    before: str
    after: str


class ChangedListing(NamedTuple):
    """The outcome of a change of a listing, such as "deleted" or "paused", and the first changed fields.

    `more` is the number of further fields, and `is_active` the new state, or None if it is the same as before.
    """

    listing_id: int
    title: str
    outcome: str
    fields: Sequence[ChangedField]
    more: int
    is_active: Value = None


class KeptListing(NamedTuple):
    """A conflict: the fields that stay as they are, the reason, and the listing that has the external ID, if any."""

    listing_id: int
    title: str
    fields: str
    reason: str
    holder: int | None


def describe_change(
    change: Change, titles: Mapping[int, str] = MappingProxyType({}), max_fields: int | None = _MAX_FIELDS
) -> ChangedListing:
    """Return a change as texts, with its first fields, or all if `max_fields` is None.

    A listing without a title in `titles` gets the one that the change gave it. Long texts are cut, so that the change
    need not be held.
    """
    title = titles.get(change.listing_id) or str(change.after.get("title", ""))
    before = change.before or {}
    outcome = _find_outcome(change)
    names = [name for name in change.after if name in before and get_name(name) in FIELDS]
    if outcome in _STATES:
        names = [name for name in names if name != "is_active"]
    fields = [describe_attribute(name, before[name], change.after[name]) for name in names[:max_fields]]
    is_active = change.after.get("is_active")
    return ChangedListing(change.listing_id, title, outcome, fields, len(names) - len(fields), is_active)


def describe_conflict(conflict: RevertConflict, titles: Mapping[int, str]) -> KeptListing:
    """Return a conflict as texts."""
    is_whole = "deleted_at" in conflict.fields or not conflict.fields
    labels = "The whole listing" if is_whole else ", ".join(get_label(name) for name in conflict.fields)
    holder = conflict.subject if conflict.reason == "external_id_taken" else None
    title = titles.get(conflict.listing_id, "")
    return KeptListing(conflict.listing_id, title, labels, _REASONS[conflict.reason], holder)


def get_label(attribute: str) -> str:
    """Return the label that an attribute of a listing has in forms."""
    return FIELDS[get_name(attribute)].label


def _find_outcome(change: Change) -> str:
    if change.before is None:
        return "created"
    if "deleted_at" in change.before:
        return "restored" if change.after["deleted_at"] is None else "deleted"
    if change.after.keys() - {"updated_at"} == {"is_active"}:
        return "resumed" if change.after["is_active"] else "paused"
    return "updated"


def describe_attribute(attribute: str, before: Value, after: Value) -> ChangedField:
    """Return the old and the new value of an attribute as texts."""
    if attribute == "deleted_at":
        return ChangedField("Deleted", *("no" if value is None else "yes" for value in (before, after)))
    texts = []
    for value in (before, after):
        if attribute == "price_cents" and isinstance(value, int):
            texts.append(format_dollars(value) if value else "")
        else:
            texts.append(describe_value(get_name(attribute), value)[:_MAX_LENGTH])
    return ChangedField(get_label(attribute), *texts)
