"""What the console asks of a store, in scripts that every engine runs in its own way."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from listings.contract.history import (
    ActivityCursor,
    Actor,
    Creation,
    Event,
    History,
    Payment,
    RejectedRequest,
    UsageCount,
    UsageKey,
)
from listings.contract.members import Ages, NewSession, Session
from listings.domain.model import Account
from listings.store import member_sql as console
from listings.store.scripts import members, usage
from listings.store.scripts.script import Script, query

T = TypeVar("T")


class Console(ABC):
    """`listings.contract.members` over whatever runs statements and scripts."""

    page_made_statement = console.PAGE_MADE

    @abstractmethod
    async def _ask(self, statement: str, *values: object) -> list[Any]:
        """All rows of a statement that only reads."""

    @abstractmethod
    async def _perform(self, make: Callable[[], Script[T]], *, of_callers: bool = False) -> T:
        """Run a script in a transaction, whatever becomes of who waits for it.

        `of_callers`: it changes what decides over an account's callers.
        """

    # Members

    async def add_member(self, name: str, email: str, password: str, created_at: int) -> Account | None:
        """Account and password in one transaction."""
        return await self._perform(lambda: members.add(name, email, password, created_at))

    async def get_password(self, account_id: int) -> str | None:
        """Its hash."""
        rows = await self._ask(console.GET_PASSWORD, account_id)
        return str(rows[0][0]) if rows else None

    async def set_password(self, account_id: int, old: str, new: str, actor: Actor, keep: str | None = None) -> bool:
        """And the end of what the old one has opened."""
        return await self._perform(lambda: members.change_password(account_id, old, new, actor, keep))

    async def replace_password(self, account_id: int, old: str, new: str) -> None:
        """Another hash of it."""
        await self._perform(lambda: query(console.REPLACE_PASSWORD, account_id, old, new))

    async def add_session(self, account_id: int, new: NewSession, password: str) -> bool:
        """Its token's digest alone is kept."""
        return await self._perform(lambda: members.add_session(account_id, new, password))

    async def find_session(self, digest: bytes) -> tuple[Session, Account] | None:
        """With its account, in one read."""
        rows = await self._ask(console.FIND_SESSION, digest)
        return members.session_of(rows[0]) if rows else None

    async def list_sessions(self, account_id: int) -> list[Session]:
        """The latest first."""
        return [Session(*row) for row in await self._ask(console.LIST_SESSIONS, account_id)]

    async def touch_session(self, account_id: int, handle: str, seen_at: int) -> None:
        """Unless a later time is kept."""
        await self._perform(lambda: query(console.NOTE_SESSION, account_id, handle, seen_at))

    async def confirm_session(self, account_id: int, handle: str, digest: bytes, confirmed_at: int) -> None:
        """The password was given, and the token is another."""
        await self._perform(lambda: query(console.CONFIRM_SESSION, account_id, handle, digest, confirmed_at))

    async def end_session(self, account_id: int, handle: str, actor: Actor | None = None) -> bool:
        """One of the account's own."""
        return await self._perform(lambda: members.end_session(account_id, handle, actor))

    async def end_sessions(self, account_id: int, keep: str | None = None) -> int:
        """All but one."""
        return await self._perform(lambda: members.end_sessions(account_id, keep))

    async def purge_sessions(self, oldest: Ages) -> None:
        """By their ages."""
        await self._perform(lambda: members.purge_sessions(oldest))

    async def count_attempt(self, subjects: Sequence[bytes], moment: int, oldest: int) -> list[int]:
        """Counted and told in one statement each."""
        return await self._perform(lambda: members.count_attempt(subjects, moment, oldest))

    async def forgive_attempt(self, forgotten: bytes, lessened: bytes) -> None:
        """After a right password."""
        await self._perform(lambda: members.forgive_attempt(forgotten, lessened))

    async def purge_attempts(self, oldest: int, now: int) -> None:
        """By their first one."""
        await self._perform(lambda: members.purge_attempts(oldest, now))

    async def add_invitation(self, account_id: int, digest: bytes, created_at: int, expires_at: int) -> None:
        """In the place of all earlier ones."""
        await self._perform(lambda: members.add_invitation(account_id, digest, created_at, expires_at))

    async def find_invitation(self, digest: bytes, now: int) -> Account | None:
        """Whose it is."""
        rows = await self._ask(console.FIND_INVITATION, digest, now)
        return Account(*rows[0]) if rows else None

    async def take_invitation(self, digest: bytes, password: str, now: int) -> Account | None:
        """Used up and the password set in one transaction."""
        return await self._perform(lambda: members.take_invitation(digest, password, now))

    async def erase_account(self, account_id: int, name: str, email: str, now: int) -> None:
        """In one transaction."""
        await self._perform(lambda: members.erase(account_id, name, email, now), of_callers=True)

    # History

    async def page_events(self, bucket: int, account_id: int, before: ActivityCursor, count: int) -> list[Event]:
        """By their numbers."""
        rows = await self._ask(console.PAGE_EVENTS, bucket, account_id, before.revision, before.number, count)
        return [Event(*row) for row in rows]

    async def page_made(self, bucket: int, account_id: int, before_id: int, count: int) -> list[Creation]:
        """By the two indexes that together hold all listings."""
        return [
            Creation(*row) for row in await self._ask(self.page_made_statement, bucket, account_id, before_id, count)
        ]

    async def add_usage(self, counts: Mapping[UsageKey, int], refusals: Sequence[RejectedRequest], most: int) -> None:
        """All in one transaction."""
        await self._perform(lambda: usage.add(counts, refusals, most))

    async def usage_by_hour(self, bucket: int, account_id: int, since: int) -> list[UsageCount]:
        """As they are kept."""
        return [UsageCount(*row) for row in await self._ask(console.USAGE_BY_HOUR, bucket, account_id, since)]

    async def usage_by_day(self, bucket: int, account_id: int, since: int) -> list[UsageCount]:
        """Summed by the engine."""
        return [UsageCount(*row) for row in await self._ask(console.USAGE_BY_DAY, bucket, account_id, since)]

    async def list_rejected_requests(self, bucket: int, account_id: int, count: int) -> list[RejectedRequest]:
        """The latest first."""
        return [RejectedRequest(*row) for row in await self._ask(console.LIST_REFUSALS, bucket, account_id, count)]

    async def purge_history(self, buckets: Sequence[int], oldest: History, most: int) -> int:
        """By its age, bucket by bucket."""
        return await self._perform(lambda: usage.forget(buckets, oldest, most))

    async def add_payment(self, payment: Payment, decide: Callable[[Account], int], moment: int) -> Account | None:
        """Once for each event of a provider."""
        return await self._perform(lambda: usage.add_payment(payment, decide, moment), of_callers=True)
