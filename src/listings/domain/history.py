"""The activity and usage of an account, and the operator's report."""

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from listings.domain.model import MAX_ID, Account, ListingChange

OPERATOR = 0  # the `key_id` of the command line; those of API keys start at 1
CONSOLE = -1  # the `key_id` of a member


class ChangeGroup(NamedTuple):
    """A group of change sets: all of an account with the same name.

    Those of a bulk action have one audit event, which has `detail`, a JSON object without its end. Its name begins with
    `#` and is not shown.
    """

    name: str
    detail: str = ""

    @property
    def is_bulk(self) -> bool:
        """Whether it is a bulk action."""
        return self.name.startswith("#")


class Actor(NamedTuple):
    """Who made a change (the id of an API key, OPERATOR or CONSOLE) and the Unix time of the change in seconds.

    `group` is that of the change set of listings, if it has one.
    """

    key_id: int
    moment: int
    group: ChangeGroup | None = None


EventKind: TypeAlias = Literal[
    "created",
    "updated",
    "deleted",
    "restored",
    "batch",
    "bulk",
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
    "plan_declined",
    "listing_taken_down",
    "listing_lifted",
]


def choose_kind(changes: ListingChange) -> Literal["updated", "restored", "deleted"]:
    """Return the kind of an edit of one listing."""
    if "deleted_at" not in changes:
        return "updated"
    return "restored" if changes["deleted_at"] is None else "deleted"


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
      `updated`: the names of the fields. `batch`: the ids of the listings by kind of edit. `bulk`: the action, and
      the number of `listings`. `import`: the numbers of created and updated listings. `reverted`: the counts of the
      revert. `account_changed`: the new values. `key_rotated`: the id of the old key. `plan_paid`: the months, the new
      end of the plan, and the provider.
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
    reason: str = ""  # such as "title: required", without the values of the request


class HistoryCutoffs(NamedTuple):
    """The oldest times to retain, counted from 1970: events in seconds, usage in hours, rejections in microseconds.

    `imports` is that of finished imports. Events after `latest` were stored with a wrong clock, and get this time.
    """

    events: int
    hours: int
    rejections: int
    imports: int = 0
    latest: int = MAX_ID


class Payment(NamedTuple):
    """A confirmed payment for a number of months. If the provider reports it again, it has the same `payment_id`."""

    provider: str
    payment_id: str
    account_id: int
    months: int
    invoice: str = ""  # the provider's id of the invoice


class AddedPayment(NamedTuple):
    """The account that a payment is for, and whether the payment was not stored before."""

    account: Account
    is_new: bool


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
    - `stored_bytes` are those of all accounts without pictures, whose files have `picture_bytes`. `largest_accounts`
      has the sum of both for the ten largest accounts by id.
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
    stored_bytes: int
    picture_bytes: int
    largest_accounts: Mapping[str, int]
    database_bytes: int
