"""The store's contract for activity, usage and payments."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from listings.domain.model import Account

OPERATOR = 0


CONSOLE = -1
"""Authors that are no API key, whose ids begin at 1: the operator by commands, the account's member by the console."""


class Actor(NamedTuple):
    """Who brings something about, and when in seconds since 1970: an API key by its id, OPERATOR or CONSOLE."""

    key_id: int
    moment: int


EventKind: TypeAlias = Literal[
    "created",
    "updated",
    "deleted",
    "restored",
    "batch",
    "import",
    "account_opened",
    "account_changed",
    "key_added",
    "key_rotated",
    "key_revoked",
    "signed_in",
    "signed_out",
    "password_changed",
    "plan_paid",
]


class ActivityCursor(NamedTuple):
    """A place in an account's activity, behind which it goes on."""

    revision: int
    number: int
    listing_id: int


LATEST = ActivityCursor(2**62, 0, 2**62)
"""Before the newest event."""


class Event(msgspec.Struct, frozen=True):
    """Something that was done to an account. `moment` is in seconds since 1970, `actor` as in `Actor`.

    `revision` is the account's after it; an edit of listings has the number 0, what is none has one from 1 on.
    `subject` is the id of the listing or the key, 0 where there is none. `detail` is JSON: the names of the changed
    fields; the ids that a batch has made, changed and deleted; how many listings an import has made and changed; the
    new values of an account's fields; the id of the key that a new one replaces.
    """

    revision: int
    number: int
    moment: int
    actor: int
    kind: EventKind
    subject: int
    detail: str


class Creation(NamedTuple):
    """A listing as its row tells of its making; `actor` and `revision` are None where that is no event of its own."""

    listing_id: int
    actor: int | None
    revision: int | None
    created_at: str


class UsageKey(NamedTuple):
    """What requests are counted by; `hour` is in hours since 1970."""

    account_id: int
    hour: int
    key_id: int
    status: int


class UsageCount(NamedTuple):
    """How many answers of a status a key got in an hour, or on a day, since 1970 (UTC)."""

    period: int
    key_id: int
    status: int
    answers: int


class RejectedRequest(msgspec.Struct, frozen=True):
    """A request that was refused. `moment` is in microseconds since 1970, different for all of one process."""

    account_id: int
    moment: int
    key_id: int
    code: str
    status: int
    method: str
    path: str
    request_id: str


class History(NamedTuple):
    """From when on history is kept: events in seconds, usage in hours, refusals in microseconds since 1970."""

    events: int
    hours: int
    refusals: int


class Payment(NamedTuple):
    """A payment as its provider tells of it; `payment_id` is what the provider calls it, each time."""

    provider: str
    payment_id: str
    account_id: int
    months: int


class HistoryStore(Protocol):
    """Where an account's usage and activity are kept, and what was paid."""

    async def page_events(self, bucket: int, account_id: int, before: ActivityCursor, count: int) -> list[Event]:
        """The account's next older events that are no creates of single listings, `count` at most, the newest first."""

    async def page_made(self, bucket: int, account_id: int, before_id: int, count: int) -> list[Creation]:
        """The account's next listings with lower ids, `count` at most, ids descending; deleted ones included."""

    async def add_usage(self, counts: Mapping[UsageKey, int], refusals: Sequence[RejectedRequest], most: int) -> None:
        """Add to the counts, and keep the refusals; of these the latest `most` of each account stay."""

    async def usage_by_hour(self, bucket: int, account_id: int, since: int) -> list[UsageCount]:
        """The account's counts from an hour on, in the order of hours."""

    async def usage_by_day(self, bucket: int, account_id: int, since: int) -> list[UsageCount]:
        """The account's counts from an hour on, summed over days, in the order of days."""

    async def list_rejected_requests(self, bucket: int, account_id: int, count: int) -> list[RejectedRequest]:
        """The account's latest refusals, the latest first."""

    async def purge_history(self, buckets: Sequence[int], oldest: History, most: int) -> int:
        """Remove what is older from some buckets, of each at most so many rows of a kind; returns how many."""

    async def add_payment(self, payment: Payment, decide: Callable[[Account], int], moment: int) -> Account | None:
        """Let a plan that is paid end when a pure function of its account tells; None when there is no such account.

        A payment that was stored before changes nothing: the account is returned as it is.
        """
