"""Activity: who did what, when, and with which key."""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.contract.history import CONSOLE, OPERATOR, ActivityCursor, Event, EventKind
from listings.domain.model import Account, ApiKey
from listings.service import ActivityPage, Member, Service
from listings.site import presentation
from listings.site.console.guards import console_page, for_member
from listings.site.context import site_of

_PLACE = re.compile(r"([0-9]{1,19})-([0-9]{1,9})-([0-9]{1,19})")
_LARGEST = 2**62
_COUNT = 50


class Told(NamedTuple):
    """An event in words; `listing_id` is 0 where it is about none."""

    moment: int
    who: str
    what: str
    listing_id: int


@for_member
async def show_activity(request: Request, member: Member) -> Response:
    """What was done in the last 90 days, the latest first."""
    service = site_of(request).service
    before = _place(request.query_params.get("before", ""))
    page = await service.list_activity(member.account, before, _COUNT)
    place = page.next_cursor
    return console_page(
        request,
        "activity.html",
        events=await told(service, member.account, page),
        is_first=before is None,
        next_address=f"/console/activity?before={'-'.join(map(str, place))}" if place is not None else "",
    )


ROUTES = [Route("/console/activity", show_activity)]


async def told(service: Service, account: Account, page: ActivityPage) -> list[Told]:
    """Events in words."""
    keys = {key.id: key for key in await service.list_keys(account)}
    return [_told(event, keys) for event in page.events]


def _told(event: Event, keys: dict[int, ApiKey]) -> Told:
    detail = msgspec.json.decode(event.detail) if event.detail else None
    who = {CONSOLE: "You", OPERATOR: "The operator"}.get(event.actor) or _key_name(event.actor, keys)
    is_listing = event.kind in {"created", "updated", "deleted", "restored"}
    what = _WORDS[event.kind](_Subject(event.subject, detail, keys))
    return Told(event.moment, who, what, event.subject if is_listing else 0)


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


def _fields(subject: _Subject) -> str:
    names = {name for name in subject.detail or [] if name != "updated_at"}
    others = ", ".join(sorted(_FIELDS.get(name, name) for name in names - {_SHOWN}))
    if not names:
        return "changed"
    if not others:
        return _PAUSED
    return f"changed {others} of, and {_PAUSED}," if _SHOWN in names else f"changed {others} of"


def _counts(subject: _Subject) -> str:
    """Such as "3 created, 2 changed", of the ids or numbers of a batch or an import."""
    counts = {
        name: len(value) if isinstance(value, list) else int(value) for name, value in (subject.detail or {}).items()
    }
    said = [f"{count:,} {_PAST.get(name, name)}" for name, count in counts.items() if count]
    return ", ".join(said) or "nothing changed"


def _account_change(subject: _Subject) -> str:
    changes = subject.detail or {}
    if "plan_expires_at" in changes:
        end = changes["plan_expires_at"]
        return f"set the plan to end on {presentation.date_of(end)}" if end is not None else "took the plan away"
    if "disabled_at" in changes:
        return "enabled the account" if changes["disabled_at"] is None else "disabled the account"
    return "changed the account"


def _months(subject: _Subject) -> str:
    return presentation.count_of((subject.detail or {}).get("months", 1), "month")


_SHOWN = "is_active"
_PAUSED = "paused or resumed"  # which of them, is not stored
_FIELDS = {
    "content": "description",
    "images": "pictures",
    "price_cents": "price",
    "price_type": "how the price is meant",
}
_PAST = {"updated": "changed", "deleted": "closed"}
_WORDS: Mapping[EventKind, Callable[[_Subject], str]] = {
    "created": lambda _: "created",
    "updated": _fields,
    "deleted": lambda _: "closed",
    "restored": lambda _: "restored",
    "batch": lambda subject: f"changed many listings at once: {_counts(subject)}",
    "import": lambda subject: f"imported a file: {_counts(subject)}",
    "account_opened": lambda _: "opened the account",
    "account_changed": _account_change,
    "key_added": lambda subject: f"made the key {subject.key}",
    "key_rotated": lambda subject: f"made the key {subject.key} in place of an older one",
    "key_revoked": lambda subject: f"revoked the key {subject.key}",
    "signed_in": lambda _: "signed in",
    "signed_out": lambda _: "signed out",
    "password_changed": lambda _: "changed the password",
    "plan_paid": lambda subject: f"paid for {_months(subject)} of the Business plan",
}


def _place(text: str) -> ActivityCursor | None:
    match = _PLACE.fullmatch(text)
    if match is None:
        return None
    return ActivityCursor(*(min(int(part), _LARGEST) for part in match.groups()))
