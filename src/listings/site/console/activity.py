"""Activity page, with the events of the account as sentences, and the history of a listing."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.domain.fields import parse_id
from listings.domain.history import CONSOLE, OPERATOR, ActivityCursor, Event, EventKind
from listings.domain.model import MAX_ID, ApiKey
from listings.domain.number_text import format_count
from listings.domain.reverts import RevertKind
from listings.domain.timestamps import format_date
from listings.service import Services
from listings.service.history.activity import ACTIVITY_DAYS, ActivityPage
from listings.service.members.sessions import Member
from listings.site import presentation
from listings.site.console.costly import costly
from listings.site.console.guards import ACTIVITY_PATH, LISTINGS_PATH, UNDO_PATH, console_page
from listings.site.console.history.describe import ChangedListing, describe_change, get_label
from listings.site.console.listings.actions import name_action
from listings.site.console.listings.edit import get_own_listing
from listings.site.console.paging import turn_pages
from listings.site.context import site_of

_CURSOR = re.compile(r"([0-9]{1,19})-([0-9]{1,9})-([0-9]{1,19})")
_MAX_CURSOR_VALUE = 2**62
_PAGE_SIZE, _HISTORY_PAGE_SIZE = 50, 20
_SHOWN_LISTINGS = 3  # for each event
_CHANGING = {"created", "updated", "deleted", "restored", "reverted"}  # outcomes in the details of an event


class ActivityEntry(NamedTuple):
    """An event as a sentence: `who`, `what`, the listing, `rest`."""

    moment: int
    who: str
    what: str
    listing_id: int  # 0 unless the event is about one listing
    rest: str = ""
    title: str = ""  # the present one
    changes: Sequence[ChangedListing] = ()  # the first ones of the change set
    more: int = 0  # the number of further changed listings
    undo_url: str = ""  # "" if the event can't be undone
    undo_id: int = 0  # the revert that this event reports, or 0
    is_undone: bool = False

    @property
    def listing(self) -> str:
        """The listing by its title, or by its id if it has been removed."""
        return f"“{self.title}”" if self.title else f"listing {self.listing_id}"


class _HistoryEntry(NamedTuple):
    id: int
    moment: int
    who: str
    is_undo: bool
    change: ChangedListing


@costly("pages of changes")
async def _show_activity(request: Request, member: Member) -> Response:
    services = site_of(request).services
    found = _CURSOR.fullmatch(request.query_params.get("before", ""))
    before = ActivityCursor(*(min(int(part), _MAX_CURSOR_VALUE) for part in found.groups())) if found else None
    page = await services.activity.list_page(member.account, before, _PAGE_SIZE)
    cursor = page.next_cursor
    return console_page(
        request,
        "activity.html",
        events=await describe_events(services, member, page),
        days=ACTIVITY_DAYS,
        change_days=services.changes.days,
        turns=turn_pages(request, "before", "-".join(map(str, cursor or ()))),
    )


@costly("pages of changes")
async def _show_history(request: Request, member: Member) -> Response:
    services, listing = site_of(request).services, await get_own_listing(request, member)
    before = parse_id(request.query_params.get("before", "")) or MAX_ID
    page = await services.changes.read_of_listing(listing.id, before, _HISTORY_PAGE_SIZE)
    keys = {key.id: key for key in await services.keys.list_of(member.account)}
    entries = []
    for one in page.changes:
        change, is_undo = describe_change(one, {}, max_fields=None), one.kind == "reverted"
        who = describe_actor(one.actor, keys)
        entries.append(_HistoryEntry(one.edit_revision, one.moment, who, is_undo, change))
    return console_page(
        request,
        "listing_history.html",
        listing=listing,
        change_sets=[(number, list(group)) for number, group in groupby(entries, lambda entry: entry.id)],
        is_first=before == MAX_ID,
        days=services.changes.days,
        turns=turn_pages(request, "before", str(entries[-1].id) if page.more and entries else ""),
    )


ROUTES = [Route(ACTIVITY_PATH, _show_activity), Route(f"{LISTINGS_PATH}/{{id}}/history", _show_history)]


async def describe_events(services: Services, member: Member, page: ActivityPage) -> list[ActivityEntry]:
    """Return the events of a page as sentences, with what each changed."""
    keys = {key.id: key for key in await services.keys.list_of(member.account)}
    entries = [_describe(event, keys) for event in page.events]
    numbers = [event.change for event in page.events]
    shown = await services.changes.convert_first(member.account.id, numbers, _SHOWN_LISTINGS, describe_change)
    ids = [change.listing_id for changes in shown.values() for change in changes]
    ids += [entry.listing_id for entry in entries if entry.listing_id]
    titles = await services.listings.find_titles(member.caller, ids)
    entries = [entry._replace(title=titles.get(entry.listing_id, "")) for entry in entries]
    undone = await services.reverts.list_undone(member.account.id)
    return [
        _add_undo(_add_changes(entry, event, shown[event.change], titles), event, undone)
        if event.change in shown
        else entry
        for event, entry in zip(page.events, entries, strict=True)
    ]


def _add_undo(entry: ActivityEntry, event: Event, undone: Collection[tuple[RevertKind, int]]) -> ActivityEntry:
    kinds: Mapping[str, RevertKind] = {"import": "import", "reverted": "revert", "bulk": "group"}
    kind = kinds.get(event.kind, "change")
    undo_id = event.subject if kind == "revert" else 0
    if (kind, event.change) in undone:
        return entry._replace(is_undone=True, undo_id=undo_id)
    subject = f"%23{event.change}" if kind == "group" else undo_id or event.change
    return entry._replace(undo_url=f"{UNDO_PATH}?{kind}={subject}", undo_id=undo_id)


def _add_changes(
    entry: ActivityEntry, event: Event, first: Sequence[ChangedListing], titles: Mapping[int, str]
) -> ActivityEntry:
    if first and first[0].is_active is not None:
        state = "resumed" if first[0].is_active else "paused"
        what, rest = (text.replace(_PAUSED_OR_RESUMED, state) for text in (entry.what, entry.rest))
        entry = entry._replace(what=what, rest=rest)
    changes = [change._replace(title=titles.get(change.listing_id) or change.title) for change in first]
    total = 1
    if event.detail.startswith("{"):
        detail: dict[str, Any] = msgspec.json.decode(event.detail)
        counts = {"updated": int(detail["listings"])} if event.kind == "bulk" else _counts(detail)
        total = sum(count for outcome, count in counts.items() if outcome in _CHANGING)
    if not entry.listing_id or any(change.fields for change in changes):
        entry = entry._replace(changes=changes, more=max(0, total - len(changes)))
    return entry


def describe_actor(key_id: int, keys: Mapping[int, ApiKey]) -> str:
    """Return the name of who made a change, given the `key_id` of an `Actor`."""
    return {CONSOLE: "You", OPERATOR: "The operator"}.get(key_id) or _key_name(key_id, keys)


def _describe(event: Event, keys: Mapping[int, ApiKey]) -> ActivityEntry:
    who = describe_actor(event.actor, keys)
    text, rest = _TEXTS[event.kind], ""
    if isinstance(text, str):
        what = text.format(key=_key_name(event.subject, keys))
    else:
        detail = msgspec.json.decode(event.detail) or {} if event.detail else {}
        what, _, rest = text(detail).partition(_LISTING)
    is_listing = event.kind in {"created", "updated", "deleted", "restored", "listing_taken_down", "listing_lifted"}
    return ActivityEntry(event.moment, who, what, event.subject if is_listing else 0, rest)


def _key_name(key_id: int, keys: Mapping[int, ApiKey]) -> str:
    key = keys.get(key_id)
    return f"Key {key_id}" if key is None else presentation.describe_key(key)


def _describe_update(detail: Sequence[str]) -> str:
    names = {name for name in detail if name != "updated_at"}
    labels = sorted(label[0].lower() + label[1:] for label in map(get_label, names - {_IS_ACTIVE}))
    if not names:
        return "updated"
    if not labels:
        return _PAUSED_OR_RESUMED
    rest = f"{_LISTING} and {_PAUSED_OR_RESUMED} it" if _IS_ACTIVE in names else ""
    return f"updated {_join(labels)} of{rest}"


def _describe_batch(detail: Mapping[str, Any]) -> str:
    counts = _counts(detail)
    if not counts:
        return "sent a batch that changed nothing"
    unit = "listing" if sum(counts.values()) == 1 else "listings"
    return f"{_join([f'{outcome} {count:,}' for outcome, count in counts.items()])} {unit}"


def _describe_import(detail: Mapping[str, Any]) -> str:
    counts = [f"{count:,} {outcome}" for outcome, count in _counts(detail).items()]
    return f"imported a file: {', '.join(counts) or 'nothing changed'}"


def _describe_revert(detail: Mapping[str, Any]) -> str:
    text = f"undid changes to {format_count(detail.get('reverted', 0), 'listing')}"
    conflicts = detail.get("conflicts", 0)
    return f"{text}, with {format_count(conflicts, 'conflict')}" if conflicts else text


def _counts(detail: Mapping[str, Any]) -> dict[str, int]:
    # The details of a batch have lists of IDs, those of an import counts.
    counts = {outcome: len(value) if isinstance(value, list) else int(value) for outcome, value in detail.items()}
    return {outcome: count for outcome, count in counts.items() if count}


def _join(texts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(texts[:-1]), *texts[-1:])))


def _describe_account_change(changes: Mapping[str, Any]) -> str:
    if "plan_expires_at" in changes:
        end = changes["plan_expires_at"]
        return f"set the plan to end on {format_date(end)}" if end is not None else "removed the plan"
    if "disabled_at" in changes:
        return "enabled the account" if changes["disabled_at"] is None else "disabled the account"
    if "public_contact" in changes:
        return "changed the public contact"
    if "about" in changes:
        return "changed the description of the shop"
    if "messages_off_at" in changes:
        return f"turned messages from buyers {'on' if changes['messages_off_at'] is None else 'off'}"
    return "changed the email of the account" if "email" in changes else "updated the account"


_IS_ACTIVE = "is_active"
_LISTING = "{listing}"  # is replaced by the event's listing, which otherwise comes last
_PAUSED_OR_RESUMED = "paused or resumed"  # until the change set says which of the two
_TEXTS: Mapping[EventKind, str | Callable[[Any], str]] = {
    "created": "created",
    "updated": _describe_update,
    "deleted": "deleted",
    "restored": "restored",
    "batch": _describe_batch,
    "bulk": name_action,
    "import": _describe_import,
    "reverted": _describe_revert,
    "account_opened": "created the account",
    "account_changed": _describe_account_change,
    "key_added": "created the key {key}",
    "key_rotated": "created the key {key} to replace an older one",
    "key_revoked": "revoked the key {key}",
    "signed_in": "signed in",
    "signed_out": "signed out",
    "password_changed": "changed the password",
    "plan_paid": lambda detail: f"paid for {format_count(detail.get('months', 1), 'month')} of the Business plan",
    "plan_declined": lambda detail: ": ".join(
        filter(None, ("declined the request for the Business plan", detail.get("reason")))
    ),
    "listing_taken_down": lambda detail: f"took down{_LISTING}: {detail['reason']}",
    "listing_lifted": "lifted the takedown of",
}
"""Texts by kind of event, or functions of the event's details."""
