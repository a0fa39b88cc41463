"""The store's contract for members of the console: passwords, sessions, attempts, devices and invitations."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from listings.contract.history import Actor
from listings.contract.mail import NewMail
from listings.domain.model import Account


class NewSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session to be stored.

    `digest` is the SHA-256 of the session token. `handle` is the public id with which the owner can end the session.
    `agent` describes the browser.
    """

    digest: bytes
    handle: str
    csrf_secret: str
    created_at: int
    agent: str


class Session(msgspec.Struct, frozen=True):
    """A stored session. Times are Unix times in seconds.

    `seen_at` may lag by a minute. `confirmed_at` is the last time that the owner entered the password.
    """

    account_id: int
    handle: str
    csrf_secret: str
    created_at: int
    seen_at: int
    confirmed_at: int
    agent: str


class SessionCutoffs(NamedTuple):
    """A session has expired if it was last seen, or created, before these Unix times in seconds."""

    seen_at: int
    created_at: int


class AttemptLimit(NamedTuple):
    """At most `max_attempts` in `seconds`. `subject` is the SHA-256 hash of what is limited, such as a network."""

    subject: bytes
    max_attempts: int
    seconds: int


class AttemptStore(Protocol):
    """Counts attempts, such as sign-ins, to limit them, with the guarantees of `contract.store.Store`."""

    async def count_attempt(self, limits: Sequence[AttemptLimit], moment: int) -> int | None:
        """Count one attempt for each subject in turn, until one is beyond its limit.

        Return the Unix time at which the exceeded limit ends, or None if none was exceeded. A period begins with the
        first attempt that is counted; the count restarts at 1 after it, or if its start lies in the future. Always
        pass the kinds of subjects in the same order, because concurrent attempts could otherwise deadlock.
        """

    async def decrement_attempts(self, subjects: Sequence[bytes]) -> None:
        """Lower the count of each subject by one. Pass the subjects in the order of `count_attempt`."""

    async def purge_attempts(self, oldest: int, now: int) -> None:
        """Delete subjects whose first attempt was before `oldest` or lies after `now`."""


class MemberStore(Protocol):
    """Stores members, their sessions and invitations, with the guarantees of `contract.store.Store`."""

    async def add_member(
        self, name: str, email: str, password_hash: str, created_at: int, mail: NewMail | None = None
    ) -> Account | None:
        """Store an account without a plan, together with its password hash, and queue the mail.

        Return None and store nothing if the email address is taken.
        """

    async def get_password(self, account_id: int) -> str | None:
        """Return the account's password hash, or None if it has no password."""

    async def set_password(  # noqa: PLR0913 - the last two are optional
        self,
        account_id: int,
        old: str,
        new: str,
        actor: Actor,
        keep: str | None = None,
        *,
        notice: NewMail | None = None,
    ) -> bool:
        """Replace the password hash `old` with `new`, and queue the notice.

        Delete what someone who knew the old password could still use: sessions, devices, invitations, and changes of
        the email address that are not confirmed, with their queued mail. The session with the handle `keep` stays.
        Return False and store nothing if the current hash is not `old`.
        """

    async def update_password_hash(self, account_id: int, old: str, new: str) -> bool:
        """Store a new hash of the same password. Return False and store nothing if the current hash is not `old`."""

    async def add_session(
        self, account_id: int, new: NewSession, password_hash: str, mail: NewMail | None = None
    ) -> bool:
        """Store a session of an existing account that signed in with the password of this hash, and queue the mail.

        Return False and store nothing if the hash has changed or the account is disabled.
        """

    async def find_session(self, digest: bytes) -> tuple[Session, Account] | None:
        """Return the session with this digest and its account, even if it has expired."""

    async def list_sessions(self, account_id: int) -> list[Session]:
        """Return the account's sessions, latest first."""

    async def touch_session(self, account_id: int, handle: str, seen_at: int) -> None:
        """Record when a session was last seen. An earlier time than the stored one changes nothing."""

    async def confirm_session(self, account_id: int, handle: str, digest: bytes, confirmed_at: int) -> None:
        """Record when the owner entered the password, and replace the session's digest."""

    async def end_session(self, account_id: int, handle: str, actor: Actor | None = None) -> bool:
        """Delete a session. Return False if the account has no session with this handle.

        An audit event is written only if `actor` is given.
        """

    async def end_sessions(self, account_id: int, keep: str | None = None) -> int:
        """Delete all sessions of the account except the one with the handle `keep`. Return how many were deleted."""

    async def purge_sessions(self, oldest: SessionCutoffs) -> None:
        """Delete the expired sessions."""

    async def set_device(self, account_id: int, digest: bytes, used_at: int, max_devices: int) -> None:
        """Store a browser in which an existing account has signed in, or update its time of last use.

        Only the `max_devices` browsers that were used last stay. `set_password` and `accept_invitation` delete all.
        """

    async def is_known_device(self, email: str, digest: bytes) -> bool:
        """Return whether this browser is stored as one of the account with this email address."""

    async def add_invitation(
        self, account_id: int, digest: bytes, created_at: int, expires_at: int, *, email: str | None = None
    ) -> bool:
        """Store an invitation for an existing account. Return whether it was stored.

        Without `email`, it is stored, and replaces all earlier ones. With `email`, it replaces none, and is not stored
        if the account is disabled or has another address.
        """

    async def find_invitation(self, digest: bytes, now: int) -> Account | None:
        """Return the account of an invitation, or None if there is no such invitation or it has expired."""

    async def accept_invitation(
        self, digest: bytes, password_hash: str, now: int, notice: NewMail | None = None
    ) -> Account | None:
        """Set the password hash of the invited account, as `set_password` does, and delete the invitation.

        Return None and write nothing if there is no such invitation or it has expired. Raises
        Problem("account_disabled") if the account is erased.
        """

    async def erase_rows(self, account_id: int, count: int, disabled_at: int) -> None:
        """Erase most of what `erase_account` erases, in transactions of `count` rows.

        Fewer than `count` rows of each large table remain. Stop if the account was enabled after `disabled_at`, even if
        it was disabled again.
        """

    async def erase_account(self, account_id: int, name: str, email: str, now: int, disabled_at: int) -> bool:
        """Erase the personal data of a disabled account, and the external ids of its listings.

        Return False and write nothing if the account was enabled after `disabled_at`.

        The account and its keys get the given name, and the account the email address. Its keys are revoked.
        Its plan, public contact, password, sessions, devices, invitations, email tokens, confirmed address, mails, plan
        request, reminder, activity, change sets, reverts, usage, rejected requests and idempotency records are deleted.
        """
