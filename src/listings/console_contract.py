"""What the console asks of a store: members and their sessions, the account's usage, and who did what."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from listings.model import Account

OPERATOR = 0
CONSOLE = -1
"""Authors that are no API key, whose ids begin at 1: the operator by commands, the account's member by the console."""


class Author(NamedTuple):
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


class EventPlace(NamedTuple):
    """A place in an account's activity, behind which it goes on."""

    revision: int
    number: int
    listing_id: int


LATEST = EventPlace(2**62, 0, 2**62)
"""Before the newest event."""


class Event(msgspec.Struct, frozen=True):
    """Something that was done to an account. `moment` is in seconds since 1970, `author` as in `Author`.

    `revision` is the account's after it; an edit of listings has the number 0, what is none has one from 1 on.
    `subject` is the id of the listing or the key, 0 where there is none. `detail` is JSON: the names of the changed
    fields; the ids that a batch has made, changed and deleted; how many listings an import has made and changed; the
    new values of an account's fields; the id of the key that a new one replaces.
    """

    revision: int
    number: int
    moment: int
    author: int
    kind: EventKind
    subject: int
    detail: str


class Made(NamedTuple):
    """A listing as its row tells of its making; `author` and `revision` are None where that is no event of its own."""

    listing_id: int
    author: int | None
    revision: int | None
    created_at: str


class NewSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session to be stored: SHA-256 of its token, the name by which its owner may end it, the secret of its forms."""

    digest: bytes
    handle: str
    csrf_secret: str
    created_at: int
    agent: str


class Session(msgspec.Struct, frozen=True):
    """A session as it is stored. Times are seconds since 1970; `seen_at` may be a minute behind.

    `confirmed_at`: when its owner last gave the password.
    """

    account_id: int
    handle: str
    csrf_secret: str
    created_at: int
    seen_at: int
    confirmed_at: int
    agent: str


class Ages(NamedTuple):
    """Moments before which a session is over, by when it was last seen and by when it began."""

    seen_at: int
    created_at: int


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


class Refusal(msgspec.Struct, frozen=True):
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


class MemberStore(Protocol):
    """Where the console's members, sessions and invitations are kept, with what `listings.contract.Store` promises."""

    async def add_member(self, name: str, email: str, password: str, created_at: int) -> Account | None:
        """Store an account without a plan and its password's hash.

        None, and nothing stored, when the e-mail address is taken.
        """

    async def get_password(self, account_id: int) -> str | None:
        """The hash of the account's password; None when it has none."""

    async def set_password(self, account_id: int, old: str, new: str, author: Author, keep: str | None = None) -> bool:
        """Store a password's hash, end all sessions but the one of the handle `keep`, and all invitations.

        False, and nothing stored, when the hash is no more the old one.
        """

    async def replace_password(self, account_id: int, old: str, new: str) -> None:
        """Store another hash of the same password, unless the hash is no more the old one."""

    async def add_session(self, account_id: int, new: NewSession, password: str) -> bool:
        """Store a session of an existing account, which has given the password of a hash.

        False, and nothing stored, when that is no more its hash, or the account is disabled.
        """

    async def find_session(self, digest: bytes) -> tuple[Session, Account] | None:
        """The session of this digest with its account, however old."""

    async def list_sessions(self, account_id: int) -> list[Session]:
        """The account's sessions, the latest first."""

    async def note_session(self, account_id: int, handle: str, seen_at: int) -> None:
        """Keep when a session was last seen; an earlier time changes nothing."""

    async def confirm_session(self, account_id: int, handle: str, digest: bytes, confirmed_at: int) -> None:
        """Keep when the password was last given; from now on the session is found by another digest."""

    async def end_session(self, account_id: int, handle: str, author: Author | None = None) -> bool:
        """End one session; False when there is none of this handle. Without an author it leaves no event."""

    async def end_sessions(self, account_id: int, keep: str | None = None) -> int:
        """End all of an account's sessions but the one of the handle `keep`; returns how many."""

    async def forget_sessions(self, oldest: Ages) -> None:
        """Remove the sessions that are over."""

    async def count_attempt(self, subjects: Sequence[bytes], moment: int, oldest: int) -> list[int]:
        """Count one attempt of each subject (32 bytes); returns how many there were since its first one.

        One whose first attempt was at `oldest` or before, or is still to come, begins anew, with this as its first.
        """

    async def forgive_attempt(self, forgotten: bytes, lessened: bytes) -> None:
        """Forget a subject's attempts, and one of another's."""

    async def forget_attempts(self, oldest: int, now: int) -> None:
        """Remove the subjects whose first attempt was before a moment, or is still to come."""

    async def add_invitation(self, account_id: int, digest: bytes, created_at: int, expires_at: int) -> None:
        """Store an invitation of an existing account, in the place of all earlier ones."""

    async def find_invitation(self, digest: bytes, now: int) -> Account | None:
        """The account of an invitation that has not expired."""

    async def take_invitation(self, digest: bytes, password: str, now: int) -> Account | None:
        """Set the password of the account that an invitation is for, as `set_password` does, and remove it.

        None, and nothing written, when there is no such invitation or it has expired.
        """

    async def erase_account(self, account_id: int, name: str, email: str, now: int) -> None:
        """Take everything personal from an account but its listings, and disable it.

        It gets another name and address, loses plan, password, sessions, invitations, activity, usage and what was
        kept for its Idempotency-Keys; its keys are revoked, and get that name.
        """


class HistoryStore(Protocol):
    """Where an account's usage and activity are kept, and what was paid."""

    async def page_events(self, bucket: int, account_id: int, before: EventPlace, count: int) -> list[Event]:
        """The account's next older events that are no creates of single listings, `count` at most, the newest first."""

    async def page_made(self, bucket: int, account_id: int, before_id: int, count: int) -> list[Made]:
        """The account's next listings with lower ids, `count` at most, ids descending; deleted ones included."""

    async def add_usage(self, counts: Mapping[UsageKey, int], refusals: Sequence[Refusal], most: int) -> None:
        """Add to the counts, and keep the refusals; of these the latest `most` of each account stay."""

    async def usage_by_hour(self, bucket: int, account_id: int, since: int) -> list[UsageCount]:
        """The account's counts from an hour on, in the order of hours."""

    async def usage_by_day(self, bucket: int, account_id: int, since: int) -> list[UsageCount]:
        """The account's counts from an hour on, summed over days, in the order of days."""

    async def list_refusals(self, bucket: int, account_id: int, count: int) -> list[Refusal]:
        """The account's latest refusals, the latest first."""

    async def forget_history(self, buckets: Sequence[int], oldest: History, most: int) -> int:
        """Remove what is older from some buckets, of each at most so many rows of a kind; returns how many."""

    async def add_payment(self, payment: Payment, decide: Callable[[Account], int], moment: int) -> Account | None:
        """Let a plan that is paid end when a pure function of its account tells; None when there is no such account.

        A payment that was stored before changes nothing: the account is returned as it is.
        """
