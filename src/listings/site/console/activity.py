"""Activity page: the events of the account as sentences."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.contract.history import CONSOLE, OPERATOR, ActivityCursor, Event, EventKind
from listings.domain.model import Account, ApiKey
from listings.service import Services
from listings.service.activity import ActivityPage
from listings.service.sessions import Member
from listings.site import presentation
from listings.site.console.guards import console_page, for_member
from listings.site.context import site_of

_CURSOR = re.compile(r"([0-9]{1,19})-([0-9]{1,9})-([0-9]{1,19})")
_MAX_CURSOR_VALUE = 2**62
_PAGE_SIZE = 50


class ActivityEntry(NamedTuple):
    """An event as a sentence; `listing_id` is 0 unless the event is about one listing."""

    moment: int
    who: str
    what: str
    listing_id: int


@for_member
async def show_activity(request: Request, member: Member) -> Response:
    """Show the events of the last 90 days, newest first."""
    services = site_of(request).services
    before = _parse_cursor(request.query_params.get("before", ""))
    page = await services.activity.list_page(member.account, before, _PAGE_SIZE)
    cursor = page.next_cursor
    return console_page(
        request,
        "activity.html",
        events=await describe_events(services, member.account, page),
        is_first=before is None,
        next_url=f"/console/activity?before={'-'.join(map(str, cursor))}" if cursor is not None else "",
    )


ROUTES = [Route("/console/activity", show_activity)]


async def describe_events(services: Services, account: Account, page: ActivityPage) -> list[ActivityEntry]:
    """Return the events of a page as sentences."""
    keys = {key.id: key for key in await services.keys.list_of(account)}
    return [_describe(event, keys) for event in page.events]


def _describe(event: Event, keys: dict[int, ApiKey]) -> ActivityEntry:
    detail = msgspec.json.decode(event.detail) if event.detail else None
    who = {CONSOLE: "You", OPERATOR: "The operator"}.get(event.actor) or _key_name(event.actor, keys)
    is_listing = event.kind in {"created", "updated", "deleted", "restored"}
    what = _DESCRIPTIONS[event.kind](_Subject(event.subject, detail, keys))
    return ActivityEntry(event.moment, who, what, event.subject if is_listing else 0)


def _key_name(key_id: int, keys: Mapping[int, ApiKey]) -> str:
    key = keys.get(key_id)
    return f"{key.name} ({key.hint})" if key is not None else f"Key {key_id}"


class _Subject(NamedTuple):
    number: int
    detail: Any
    keys: Mapping[int, ApiKey]

    @property
    def key(self) -> str:
        return _key_name(self.number, self.keys)


def _describe_update(subject: _Subject) -> str:
    names = {name for name in subject.detail or [] if name != "updated_at"}
    labels = _join(sorted(_FIELD_LABELS.get(name, name) for name in names - {_IS_ACTIVE}))
    if not names:
        return "updated"
    if not labels:
        return _PAUSED_OR_RESUMED
    return f"updated {labels} of, and {_PAUSED_OR_RESUMED}," if _IS_ACTIVE in names else f"updated {labels} of"


def _describe_batch(subject: _Subject) -> str:
    """Return a text such as "created 3 and updated 2 listings"."""
    counts = _counts(subject)
    if not counts:
        return "sent a batch that changed nothing"
    unit = "listing" if sum(counts.values()) == 1 else "listings"
    return f"{_join([f'{outcome} {count:,}' for outcome, count in counts.items()])} {unit}"


def _describe_import(subject: _Subject) -> str:
    """Return a text such as "imported a file: 3 created, 2 updated"."""
    counts = [f"{count:,} {outcome}" for outcome, count in _counts(subject).items()]
    return f"imported a file: {', '.join(counts) or 'nothing changed'}"


def _counts(subject: _Subject) -> dict[str, int]:
    """Return the number of listings by outcome. The details of a batch have lists of IDs, those of an import counts."""
    counts = {
        outcome: len(value) if isinstance(value, list) else int(value)
        for outcome, value in (subject.detail or {}).items()
    }
    return {outcome: count for outcome, count in counts.items() if count}


def _join(texts: Sequence[str]) -> str:
    """Return a list such as "a, b and c"."""
    return " and ".join(filter(None, (", ".join(texts[:-1]), *texts[-1:])))


def _describe_account_change(subject: _Subject) -> str:
    changes = subject.detail or {}
    if "plan_expires_at" in changes:
        end = changes["plan_expires_at"]
        return f"set the plan to end on {presentation.format_date(end)}" if end is not None else "removed the plan"
    if "disabled_at" in changes:
        return "enabled the account" if changes["disabled_at"] is None else "disabled the account"
    return "updated the account"


def _months(subject: _Subject) -> str:
    return presentation.format_count((subject.detail or {}).get("months", 1), "month")


_IS_ACTIVE = "is_active"
_PAUSED_OR_RESUMED = "paused or resumed"  # the event does not store which of the two
_FIELD_LABELS = {"content": "description", "price_cents": "price", "price_type": "price type"}
_DESCRIPTIONS: Mapping[EventKind, Callable[[_Subject], str]] = {
    "created": lambda _: "created",
    "updated": _describe_update,
    "deleted": lambda _: "deleted",
    "restored": lambda _: "restored",
    "batch": _describe_batch,
    "import": _describe_import,
    "account_opened": lambda _: "created the account",
    "account_changed": _describe_account_change,
    "key_added": lambda subject: f"created the key {subject.key}",
    "key_rotated": lambda subject: f"created the key {subject.key} to replace an older one",
    "key_revoked": lambda subject: f"revoked the key {subject.key}",
    "signed_in": lambda _: "signed in",
    "signed_out": lambda _: "signed out",
    "password_changed": lambda _: "changed the password",
    "plan_paid": lambda subject: f"paid for {_months(subject)} of the Business plan",
}


def _parse_cursor(text: str) -> ActivityCursor | None:
    match = _CURSOR.fullmatch(text)
    if match is None:
        return None
    return ActivityCursor(*(min(int(part), _MAX_CURSOR_VALUE) for part in match.groups()))
