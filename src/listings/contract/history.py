"""The store's contract for activity, usage, payments and the operator's report."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from listings.domain.model import Account

OPERATOR = 0  # the `key_id` of the command line; those of API keys start at 1
CONSOLE = -1  # the `key_id` of a member


class Actor(NamedTuple):
    """Who made a change (the id of an API key, OPERATOR or CONSOLE) and the Unix time of the change in seconds."""

    key_id: int
    moment: int


EventKind: TypeAlias = Literal[
    "created",
    "updated",
    "deleted",
    "restored",
    "batch",
    "import",
    "reverted",
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
    """A position in an account's activity. The next page starts after it."""

    revision: int
    number: int
    listing_id: int


LATEST = ActivityCursor(2**62, 0, 2**62)
"""The cursor of the first page, which starts with the newest event."""


class Event(msgspec.Struct, frozen=True):
    """An audit event of an account.

    The event of a single edit of a listing is read from its change set, that of a single create from the listing's row.

    - `revision` is the account's revision after the event. For an import or a revert, it is the one after its first
      edit.
    - `number` is 0 for edits of listings, including batches, imports and reverts. Other events do not raise the
      revision; those of one revision are numbered from 1.
    - `moment` is a Unix time in seconds, and `actor` is the `key_id` of an `Actor`.
    - `subject` is the id of the listing or key, the change set id of a batch, or the id of an import or a revert,
      which is that of its first change set. It is 0 if there is none.
    - `detail` is JSON, or an empty string. Its content depends on the kind:
      `updated`: the names of the fields. `batch`: the ids of the listings by kind of edit. `import`: the numbers of
      created and updated listings. `reverted`: the counts of the revert. `account_changed`: the new values.
      `key_rotated`: the id of the old key. `plan_paid`: the months, the new end of the plan, and the provider.
    - `change` is the id of the event's change set (of an import or a revert: the first one), or 0 if there is none.
    """

    revision: int
    number: int
    moment: int
    actor: int
    kind: EventKind
    subject: int
    detail: str
    change: int = 0


class Creation(NamedTuple):
    """When and by whom a listing was created.

    `actor` and `revision` are None if the creation is not an event of its own (a batch or an import, for example).
    `change` is the id of its change set, or None if none was stored for it.
    """

    listing_id: int
    actor: int | None
    revision: int | None
    created_at: str
    change: int | None


class UsageSlot(NamedTuple):
    """Identifies a count of responses: account, hour, API key and status. `hour` is in hours since 1970 (UTC)."""

    account_id: int
    hour: int
    key_id: int
    status: int


class UsageCount(NamedTuple):
    """The number of responses with one status that a key received in one hour or day.

    `period` is the hour or the day, counted from 1970 (UTC).
    """

    period: int
    key_id: int
    status: int
    responses: int


class RejectedRequest(msgspec.Struct, frozen=True):
    """A rejected request.

    `microseconds` is a Unix time in microseconds, unique in a process unless its clock was set back.
    """

    account_id: int
    microseconds: int
    key_id: int
    code: str
    status: int
    method: str
    path: str
    request_id: str


class HistoryCutoffs(NamedTuple):
    """The oldest times to retain, counted from 1970: events in seconds, usage in hours, rejections in microseconds."""

    events: int
    hours: int
    rejections: int


class Payment(NamedTuple):
    """A confirmed payment for a number of months. If the provider reports it again, it has the same `payment_id`."""

    provider: str
    payment_id: str
    account_id: int
    months: int


class AddedPayment(NamedTuple):
    """The account that a payment is for, and whether the payment was not stored before."""

    account: Account
    is_new: bool


class HistoryStore(Protocol):
    """Stores activity, usage, rejected requests and payments, with the guarantees of `contract.store.Store`."""

    async def page_events(self, bucket: int, account_id: int, before: ActivityCursor, count: int) -> list[Event]:
        """Return at most `count` events of the account that are older than the cursor, newest first.

        The creation of a single listing is not among them: use `page_creations`.
        """

    async def page_creations(self, bucket: int, account_id: int, before_id: int, count: int) -> list[Creation]:
        """Return the creations of the account's listings with ids below `before_id`, highest id first.

        At most `count` are returned. Deleted listings are included.
        """

    async def add_usage(
        self, counts: Mapping[UsageSlot, int], rejections: Sequence[RejectedRequest], max_rejections: int
    ) -> None:
        """Add to the usage counts and store rejected requests.

        Only the latest `max_rejections` rejected requests of an account are retained.
        """

    async def list_usage_by_hour(self, bucket: int, account_id: int, since: int) -> list[UsageCount]:
        """Return the account's usage from the hour `since` on, in order of the hours."""

    async def list_usage_by_day(self, bucket: int, account_id: int, since: int) -> list[UsageCount]:
        """Return the account's usage from the hour `since` on, summed by day, in order of the days."""

    async def list_rejected_requests(self, bucket: int, account_id: int, count: int) -> list[RejectedRequest]:
        """Return the account's `count` latest rejected requests, latest first."""

    async def purge_history(self, buckets: Sequence[int], oldest: HistoryCutoffs, max_rows: int) -> int:
        """Delete history before the cutoffs from some buckets and return the number of deleted rows.

        `key_rotated` events are stored for a year longer, because a key may be rotated only once.
        In each bucket, at most `max_rows` events, `max_rows` usage counts and `max_rows` rejected requests are deleted.
        """

    async def add_payment(self, payment: Payment, decide: Callable[[Account], int], moment: int) -> AddedPayment | None:
        """Store a payment received at the Unix time `moment` and extend the account's plan.

        `decide` is a pure function that receives the account and returns the new end of the plan as a Unix time.
        Return None if the account does not exist. If the payment is already stored, change nothing. Otherwise the
        account's request for the plan is deleted.
        """


class ReportTimes(NamedTuple):
    """Unix times: the start and the end of a report's period, and until when the end of a plan is "soon"."""

    since: int
    now: int
    soon: int


class Report(NamedTuple):
    """Numbers about all accounts. `new_…`, requests and rejections are those of the period of the report.

    - `accounts` and plans do not include disabled accounts. `plans_ending_soon` are active ones.
    - `requests` are those with a known key, including revoked and expired keys. `rejected_requests` are the ones with a
      status of 400 or more.
    - `rejections` are the stored rejected requests by error code, the most common one first.
    - `new_listings` and `market_listings` are those of the market. They are None if the service has no market.
    - `plan_requests` are open requests for the Business plan. `given_up_mails` are those of the last 30 days.
    - `database_bytes` is the size of the database. On Citus, it is that of the coordinator.
    """

    accounts: int
    new_accounts: int
    disabled_accounts: int
    active_plans: int
    plans_ending_soon: int
    expired_plans: int
    requests: int
    rejected_requests: int
    rejections: Mapping[str, int]
    new_listings: int | None
    market_listings: int | None
    plan_requests: int
    queued_mails: int
    given_up_mails: int
    database_bytes: int


class ReportStore(Protocol):
    """Reads the report, with the guarantees of `contract.store.Store`."""

    async def read_report(self, times: ReportTimes) -> Report:
        """Return the numbers of a period. Usage is stored by the hour, so `since` must be the start of an hour."""
