"""A plain model of reverts: every edit of a field with its value, and which edits each revert has undone."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from listings.domain.changes import Change
from listings.domain.fields import FIELDS

NAMES = (*(field.attribute for field in FIELDS.values()), "deleted_at")
DELETED = object()  # the value from before a create

State = dict[int, dict[str, Any]]
InScope = Callable[[Change], bool]


class Entry(msgspec.Struct, eq=False):
    """An edit of a field, and the edits of the field that it has undone, if a revert wrote it."""

    change: Change
    before: Any
    after: Any
    undid: list["Entry"] = []
    is_creation: bool = False

    @property
    def key(self) -> tuple[int, int]:
        return self.change.edit_revision, self.change.number


class Field(NamedTuple):
    """What a revert finds in a field: what it undoes, the value from before, and the later edits by others."""

    undone: list[Entry]
    start: Entry
    value: Any
    later: list[Entry]
    others: list[Entry]


class Outcome(NamedTuple):
    """The listings that a revert restored completely, left unchanged, and did not restore completely."""

    reverted: set[int]
    unchanged: set[int]
    conflicts: set[int]


class Model:
    """The listings of an account, and all edits of their fields, oldest first."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.state: State = {}
        self.log: dict[tuple[int, str], list[Entry]] = {}

    def write(self, changes: Iterable[Change], undid: Mapping[tuple[int, str], list[Entry]] | None = None) -> None:
        """Apply changes. `undid`: what those of a revert undid in each field."""
        for change in changes:
            if change.before is None:
                self.state[change.listing_id] = {name: change.after.get(name) for name in NAMES}
                for name, value in (("deleted_at", None), ("is_active", change.after["is_active"])):
                    self._add(change, name, Entry(change, DELETED, value, is_creation=True))
                continue
            for name, value in change.after.items():
                found = (undid or {}).get((change.listing_id, name), [])
                self._add(change, name, Entry(change, change.before[name], value, list(found)))
                self.state[change.listing_id][name] = value

    def _add(self, change: Change, name: str, entry: Entry) -> None:
        self.log.setdefault((change.listing_id, name), []).append(entry)

    def plan(
        self, in_scope: InScope, *, overwrite: bool, only: Callable[[int], bool] = lambda _: True
    ) -> tuple[State, Outcome, dict[tuple[int, str], list[Entry]]]:
        """Return the state after a revert, its outcome, and what it undoes in each field."""
        touched = {key[0] for key, log in self.log.items() if any(in_scope(one.change) for one in log)}
        plans: dict[int, dict[str, Any]] = {}
        kept: set[int] = set()
        undid: dict[tuple[int, str], list[Entry]] = {}
        for listing_id in sorted(filter(only, touched)):
            fields = {name: self._read(listing_id, name, in_scope) for name in NAMES}
            plans[listing_id], is_kept = self._plan_listing(listing_id, fields, overwrite=overwrite)
            kept |= {listing_id} if is_kept else set()
            for name, field in fields.items():
                if field is not None:
                    undid[listing_id, name] = field.undone + (field.later if overwrite else [])
        newest = {one: self._find_newest(one, in_scope) for one in plans}
        kept |= self._leave_external_ids(plans, newest)
        state = {one: values | plans.get(one, {}) for one, values in self.state.items()}
        changed = {one for one, plan in plans.items() if plan}
        return state, Outcome(changed - kept, plans.keys() - changed - kept, kept), undid

    def _read(self, listing_id: int, name: str, in_scope: InScope) -> Field | None:
        log = self.log.get((listing_id, name), [])
        undone: list[Entry] = []

        def counts(entry: Entry) -> bool:
            return entry not in undone and not any(entry in one.undid and counts(one) for one in log)

        while found := [one for one in log if in_scope(one.change) and counts(one)]:
            undone.append(found[-1])
        others = [one for one in log if counts(one) and not one.undid]
        if not undone:
            return Field([], log[-1], None, [], others) if others else None
        base = [one for one in others if one.key < undone[0].key]
        start = [one for one in undone if not base or one.key > base[-1].key][-1]
        value = base[-1].after if base else log[0].before
        if value is DELETED and not start.is_creation:
            value = start.before  # the time of the deletion
        return Field(undone, start, value, [one for one in others if one.key > undone[0].key], others)

    def _plan_listing(
        self, listing_id: int, fields: Mapping[str, Field | None], *, overwrite: bool
    ) -> tuple[dict[str, Any], bool]:
        listing, plan, kept = self.state[listing_id], dict[str, Any](), set[str]()
        for name, field in fields.items():
            if field is None or not field.undone:
                continue
            value = ({"deleted_at": self.now}.get(name, False)) if field.value is DELETED else field.value
            is_same = listing[name] == value or (name == "deleted_at" and field.value is DELETED and listing[name])
            if is_same:
                continue
            later: Sequence[Entry] = field.later
            if name == "deleted_at" and value is not None:
                later = [one for other in fields.values() if other for one in other.others if one.key > field.start.key]
            if later and not overwrite:
                kept.add(name)
            else:
                plan[name] = value
        deletion = fields["deleted_at"]
        if "deleted_at" in kept:
            if deletion is not None and any(one.is_creation for one in deletion.undone):
                plan.clear()
            plan.pop("is_active", None)
        return self._complete(listing, plan), bool(kept)

    @staticmethod
    def _complete(listing: Mapping[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
        if plan.get("deleted_at", listing["deleted_at"]) is not None:
            plan.pop("is_active", None)
            if listing["is_active"]:
                plan["is_active"] = False
        return plan

    def _find_newest(self, listing_id: int, in_scope: InScope) -> tuple[int, int]:
        return max(one.key for name in NAMES for one in self.log.get((listing_id, name), []) if in_scope(one.change))

    def _leave_external_ids(self, plans: dict[int, dict[str, Any]], newest: Mapping[int, tuple[int, int]]) -> set[int]:
        """Leave out external ids that two listings would have. Return the listings that do not get theirs.

        If none of the two has it already, the one with the newest change in the scope gets it.
        """
        left: set[int] = set()
        while True:
            after = {one: values | plans.get(one, {}) for one, values in self.state.items()}
            holders: dict[str, list[int]] = {}
            for one, values in after.items():
                if values["external_id"] is not None and values["deleted_at"] is None:
                    holders.setdefault(values["external_id"], []).append(one)
            taken = set[int]()
            for ids in holders.values():
                claiming = sorted((one for one in ids if self._claims(one, plans)), key=lambda one: newest[one])
                taken |= set(claiming[: len(ids) - 1])
            if not taken:
                return left
            for one in taken:
                plan, listing = plans[one], self.state[one]
                plan.pop("external_id", None)
                if listing["deleted_at"] is not None and plan.get("deleted_at", 1) is None:
                    del plan["deleted_at"]
                plans[one] = self._complete(listing, plan)
            left |= taken

    def _claims(self, listing_id: int, plans: Mapping[int, Mapping[str, Any]]) -> bool:
        plan = plans.get(listing_id, {})
        return "external_id" in plan or plan.get("deleted_at", 1) is None
