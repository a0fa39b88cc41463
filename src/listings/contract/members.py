"""What the console asks of a store: members and their sessions, the account's usage, and who did what."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from listings.contract.history import Actor
from listings.domain.model import Account


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


class MemberStore(Protocol):
    """Where the console's members, sessions and invitations are kept, with what `contract.store.Store` promises."""

    async def add_member(self, name: str, email: str, password: str, created_at: int) -> Account | None:
        """Store an account without a plan and its password's hash.

        None, and nothing stored, when the e-mail address is taken.
        """

    async def get_password(self, account_id: int) -> str | None:
        """The hash of the account's password; None when it has none."""

    async def set_password(self, account_id: int, old: str, new: str, actor: Actor, keep: str | None = None) -> bool:
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

    async def touch_session(self, account_id: int, handle: str, seen_at: int) -> None:
        """Keep when a session was last seen; an earlier time changes nothing."""

    async def confirm_session(self, account_id: int, handle: str, digest: bytes, confirmed_at: int) -> None:
        """Keep when the password was last given; from now on the session is found by another digest."""

    async def end_session(self, account_id: int, handle: str, actor: Actor | None = None) -> bool:
        """End one session; False when there is none of this handle. Without an author it leaves no event."""

    async def end_sessions(self, account_id: int, keep: str | None = None) -> int:
        """End all of an account's sessions but the one of the handle `keep`; returns how many."""

    async def purge_sessions(self, oldest: Ages) -> None:
        """Remove the sessions that are over."""

    async def count_attempt(self, subjects: Sequence[bytes], moment: int, oldest: int) -> list[int]:
        """Count one attempt of each subject (32 bytes); returns how many there were since its first one.

        One whose first attempt was at `oldest` or before, or is still to come, begins anew, with this as its first.
        """

    async def forgive_attempt(self, forgotten: bytes, lessened: bytes) -> None:
        """Forget a subject's attempts, and one of another's."""

    async def purge_attempts(self, oldest: int, now: int) -> None:
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
