"""`MemberStore` and `HistoryStore`, implemented with scripts that every engine can run."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from listings.contract.history import (
    ActivityCursor,
    Actor,
    Creation,
    Event,
    HistoryCutoffs,
    Payment,
    RejectedRequest,
    UsageCount,
    UsageKey,
)
from listings.contract.mail import NewMail
from listings.contract.members import AttemptLimit, NewSession, Session, SessionCutoffs
from listings.domain.model import Account
from listings.store import member_sql
from listings.store.scripts import members, usage
from listings.store.scripts.script import ScriptedStore, run_query

T = TypeVar("T")


class ScriptedMemberStore(ScriptedStore):
    """Implements `MemberStore`."""

    async def add_member(
        self, name: str, email: str, password_hash: str, created_at: int, mail: NewMail | None = None
    ) -> Account | None:
        return await self._run_script(lambda: members.add(name, email, password_hash, created_at, mail))

    async def get_password(self, account_id: int) -> str | None:
        rows = await self._fetch(member_sql.GET_PASSWORD, account_id)
        return str(rows[0][0]) if rows else None

    async def set_password(  # noqa: PLR0913 - see the contract
        self,
        account_id: int,
        old: str,
        new: str,
        actor: Actor,
        keep: str | None = None,
        *,
        notice: NewMail | None = None,
    ) -> bool:
        return await self._run_script(lambda: members.change_password(account_id, old, new, actor, keep, notice=notice))

    async def replace_password(self, account_id: int, old: str, new: str) -> None:
        await self._run_script(lambda: run_query(member_sql.REPLACE_PASSWORD, account_id, old, new))

    async def add_session(
        self, account_id: int, new: NewSession, password_hash: str, mail: NewMail | None = None
    ) -> bool:
        return await self._run_script(lambda: members.add_session(account_id, new, password_hash, mail))

    async def find_session(self, digest: bytes) -> tuple[Session, Account] | None:
        rows = await self._fetch(member_sql.FIND_SESSION, digest)
        return members.parse_session(rows[0]) if rows else None

    async def list_sessions(self, account_id: int) -> list[Session]:
        return [Session(*row) for row in await self._fetch(member_sql.LIST_SESSIONS, account_id)]

    async def touch_session(self, account_id: int, handle: str, seen_at: int) -> None:
        await self._run_script(lambda: run_query(member_sql.TOUCH_SESSION, account_id, handle, seen_at))

    async def confirm_session(self, account_id: int, handle: str, digest: bytes, confirmed_at: int) -> None:
        await self._run_script(lambda: run_query(member_sql.CONFIRM_SESSION, account_id, handle, digest, confirmed_at))

    async def end_session(self, account_id: int, handle: str, actor: Actor | None = None) -> bool:
        return await self._run_script(lambda: members.end_session(account_id, handle, actor))

    async def end_sessions(self, account_id: int, keep: str | None = None) -> int:
        return await self._run_script(lambda: members.end_sessions(account_id, keep))

    async def purge_sessions(self, oldest: SessionCutoffs) -> None:
        await self._run_script(lambda: members.purge_sessions(oldest))

    async def count_attempt(self, limits: Sequence[AttemptLimit], moment: int) -> int | None:
        return await self._run_script(lambda: members.count_attempt(limits, moment))

    async def uncount_attempt(self, subjects: Sequence[bytes]) -> None:
        await self._run_script(lambda: members.uncount_attempt(subjects))

    async def set_device(self, account_id: int, digest: bytes, used_at: int, max_devices: int) -> None:
        await self._run_script(lambda: members.set_device(account_id, digest, used_at, max_devices))

    async def is_device(self, email: str, digest: bytes) -> bool:
        return bool(await self._fetch(member_sql.IS_DEVICE, email, digest))

    async def purge_attempts(self, oldest: int, now: int) -> None:
        await self._run_script(lambda: members.purge_attempts(oldest, now))

    async def add_invitation(
        self, account_id: int, digest: bytes, created_at: int, expires_at: int, *, replaces: bool = True
    ) -> None:
        add = partial(members.add_invitation, account_id, digest, created_at, expires_at, replaces=replaces)
        await self._run_script(add)

    async def find_invitation(self, digest: bytes, now: int) -> Account | None:
        rows = await self._fetch(member_sql.FIND_INVITATION, digest, now)
        return Account(*rows[0]) if rows else None

    async def accept_invitation(
        self, digest: bytes, password_hash: str, now: int, notice: NewMail | None = None
    ) -> Account | None:
        return await self._run_script(lambda: members.accept_invitation(digest, password_hash, now, notice))

    async def erase_account(self, account_id: int, name: str, email: str, now: int) -> None:
        await self._run_script(lambda: members.erase(account_id, name, email, now), changes_callers=True)


class ScriptedHistoryStore(ScriptedStore):
    """Implements `HistoryStore`."""

    page_creations_statement = member_sql.PAGE_CREATIONS
    page_events_statement = member_sql.PAGE_EVENTS

    async def page_events(self, bucket: int, account_id: int, before: ActivityCursor, count: int) -> list[Event]:
        position = (before.revision, before.number)
        rows = await self._fetch(self.page_events_statement, bucket, account_id, *position, count)
        return [Event(*row) for row in rows]

    async def page_creations(self, bucket: int, account_id: int, before_id: int, count: int) -> list[Creation]:
        return [
            Creation(*row)
            for row in await self._fetch(self.page_creations_statement, bucket, account_id, before_id, count)
        ]

    async def add_usage(
        self, counts: Mapping[UsageKey, int], rejections: Sequence[RejectedRequest], max_rejections: int
    ) -> None:
        await self._run_script(lambda: usage.add(counts, rejections, max_rejections))

    async def list_usage_by_hour(self, bucket: int, account_id: int, since: int) -> list[UsageCount]:
        return [UsageCount(*row) for row in await self._fetch(member_sql.LIST_USAGE_BY_HOUR, bucket, account_id, since)]

    async def list_usage_by_day(self, bucket: int, account_id: int, since: int) -> list[UsageCount]:
        return [UsageCount(*row) for row in await self._fetch(member_sql.LIST_USAGE_BY_DAY, bucket, account_id, since)]

    async def list_rejected_requests(self, bucket: int, account_id: int, count: int) -> list[RejectedRequest]:
        return [
            RejectedRequest(*row)
            for row in await self._fetch(member_sql.LIST_REJECTED_REQUESTS, bucket, account_id, count)
        ]

    async def purge_history(self, buckets: Sequence[int], oldest: HistoryCutoffs, max_rows: int) -> int:
        return await self._run_script(lambda: usage.purge(buckets, oldest, max_rows))

    async def add_payment(self, payment: Payment, decide: Callable[[Account], int], moment: int) -> Account | None:
        return await self._run_script(lambda: usage.add_payment(payment, decide, moment), changes_callers=True)
