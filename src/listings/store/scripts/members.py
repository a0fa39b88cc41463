"""`MemberStore`, implemented with scripts that every engine can run."""

from msgspec.structs import astuple

from listings.contract.history import CONSOLE, Actor
from listings.contract.mail import NewMail
from listings.contract.members import NewSession, Session, SessionCutoffs
from listings.domain.model import Account, bucket_of
from listings.store import change_sql, mail_queue, member_sql, own_account, sql
from listings.store.reverts import sql as revert_sql
from listings.store.scripts import accounts
from listings.store.scripts.audit import record_event
from listings.store.scripts.script import Query, Script, ScriptedStore, caller_transaction, transaction

_SESSION_COLUMNS = len(Session.__struct_fields__)
_NO_HANDLE = ""  # matches no session


class ScriptedMemberStore(ScriptedStore):
    """Implements `MemberStore`."""

    @transaction
    def add_member(
        self, name: str, email: str, password_hash: str, created_at: int, mail: NewMail | None = None
    ) -> Script[Account | None]:
        account = yield from accounts.add(name, email, None, created_at)
        if account is not None:
            yield Query(member_sql.SET_PASSWORD, (account.id, password_hash, created_at))
            yield from record_event(account.id, Actor(CONSOLE, created_at), "account_opened")
            yield from mail_queue.add(mail)
        return account

    async def get_password(self, account_id: int) -> str | None:
        return await self._find(str, member_sql.GET_PASSWORD, account_id)

    @transaction
    def set_password(  # noqa: PLR0913 - see the contract
        self,
        account_id: int,
        old: str,
        new: str,
        actor: Actor,
        keep: str | None = None,
        *,
        notice: NewMail | None = None,
    ) -> Script[bool]:
        if not (yield from own_account.is_password(account_id, old)):
            return False
        yield from _set_password(account_id, new, actor, keep)
        yield from mail_queue.add(notice)
        return True

    async def update_password_hash(self, account_id: int, old: str, new: str) -> bool:
        return bool(await self._write(member_sql.REPLACE_PASSWORD, account_id, old, new))

    @transaction
    def add_session(
        self, account_id: int, new: NewSession, password_hash: str, mail: NewMail | None = None
    ) -> Script[bool]:
        rows = yield Query(sql.GET_ACCOUNT, (account_id,), locks=True)
        if Account(*rows[0]).disabled_at is not None or not (
            yield from own_account.is_password(account_id, password_hash)
        ):
            return False
        yield Query(member_sql.ADD_SESSION, (account_id, *astuple(new)))
        yield from record_event(account_id, Actor(CONSOLE, new.created_at), "signed_in")
        yield from mail_queue.add(mail)
        return True

    async def find_session(self, digest: bytes) -> tuple[Session, Account] | None:
        rows = await self._fetch(member_sql.FIND_SESSION, digest)
        if not rows:
            return None
        values = tuple(rows[0])
        return Session(*values[:_SESSION_COLUMNS]), Account(*values[_SESSION_COLUMNS:])

    async def list_sessions(self, account_id: int) -> list[Session]:
        return [Session(*row) for row in await self._fetch(member_sql.LIST_SESSIONS, account_id)]

    async def touch_session(self, account_id: int, handle: str, seen_at: int) -> None:
        await self._write(member_sql.TOUCH_SESSION, account_id, handle, seen_at)

    async def confirm_session(self, account_id: int, handle: str, digest: bytes, confirmed_at: int) -> None:
        await self._write(member_sql.CONFIRM_SESSION, account_id, handle, digest, confirmed_at)

    @transaction
    def end_session(self, account_id: int, handle: str, actor: Actor | None = None) -> Script[bool]:
        rows = yield Query(member_sql.DELETE_SESSION, (account_id, handle))
        if rows and actor is not None:
            yield from record_event(account_id, actor, "signed_out")
        return bool(rows)

    @transaction
    def end_sessions(self, account_id: int, keep: str | None = None) -> Script[int]:
        return len((yield Query(member_sql.DELETE_SESSIONS, (account_id, keep or _NO_HANDLE))))

    @transaction
    def purge_sessions(self, oldest: SessionCutoffs) -> Script[None]:
        yield Query(member_sql.PURGE_IDLE_SESSIONS, (oldest.seen_at,))
        yield Query(member_sql.PURGE_OLD_SESSIONS, (oldest.created_at,))

    @transaction
    def set_device(self, account_id: int, digest: bytes, used_at: int, max_devices: int) -> Script[None]:
        yield Query(member_sql.SET_DEVICE, (account_id, digest, used_at))
        yield Query(member_sql.TRIM_DEVICES, (account_id, max_devices))

    async def is_known_device(self, email: str, digest: bytes) -> bool:
        return bool(await self._fetch(member_sql.IS_DEVICE, email, digest))

    @transaction
    def add_invitation(
        self, account_id: int, digest: bytes, created_at: int, expires_at: int, *, email: str | None = None
    ) -> Script[bool]:
        rows = yield Query(sql.GET_ACCOUNT, (account_id,), locks=True)
        account = Account(*rows[0])
        if email is not None and (account.disabled_at is not None or account.email != email):
            return False
        if email is None:
            yield Query(member_sql.DELETE_INVITATIONS, (account_id,))
        else:
            yield Query(member_sql.DELETE_EXPIRED_INVITATIONS, (account_id, created_at))
        yield Query(member_sql.ADD_INVITATION, (account_id, digest, created_at, expires_at))
        return True

    async def find_invitation(self, digest: bytes, now: int) -> Account | None:
        return await self._find(Account, member_sql.FIND_INVITATION, digest, now)

    @transaction
    def accept_invitation(
        self, digest: bytes, password_hash: str, now: int, notice: NewMail | None = None
    ) -> Script[Account | None]:
        found = yield Query(member_sql.FIND_INVITATION, (digest, now))
        if found:
            yield from accounts.lock_not_erased(Account(*found[0]).id)
        rows = yield Query(member_sql.ACCEPT_INVITATION, (digest, now))
        if not rows:
            return None
        account_id = int(rows[0][0])
        yield from _set_password(account_id, password_hash, Actor(CONSOLE, now), None)
        yield from mail_queue.add(notice)
        rows = yield Query(sql.GET_ACCOUNT, (account_id,))
        return Account(*rows[0])

    async def erase_rows(self, account_id: int, count: int, disabled_at: int) -> None:
        for statement in member_sql.ERASE_ROWS:
            while await self._erase_first_rows(account_id, statement, count, disabled_at):
                pass

    @transaction
    def _erase_first_rows(self, account_id: int, statement: str, count: int, disabled_at: int) -> Script[bool]:
        """Erase the first `count` rows.

        Return False, with nothing written, if there are fewer or the account was enabled.
        """
        rows = yield Query(sql.GET_ACCOUNT, (account_id,), locks=True)
        if Account(*rows[0]).disabled_at != disabled_at:
            return False
        partition = (bucket_of(account_id), account_id)
        erased = yield Query(statement, (*partition, count - 1))
        if erased:
            yield Query(change_sql.FORGET_CHANGES, partition)  # mark all as purged: a reader fails on a gap
        return bool(erased)

    @caller_transaction
    def erase_account(self, account_id: int, name: str, email: str, now: int, disabled_at: int) -> Script[bool]:
        rows = yield Query(sql.GET_ACCOUNT, (account_id,), locks=True)
        if Account(*rows[0]).disabled_at != disabled_at:
            return False
        yield Query(mail_queue.ERASE_MAILS, (account_id,))  # while the account still has its address
        yield Query(member_sql.ERASE_ACCOUNT, (account_id, name, email, now))
        yield Query(member_sql.ERASE_KEYS, (account_id, name, now))
        for statement in (
            member_sql.DELETE_MEMBER,
            member_sql.DELETE_INVITATIONS,
            member_sql.DELETE_DEVICES,
            member_sql.DELETE_PLAN_REQUEST,
            mail_queue.DELETE_PLAN_REMINDER,
            *own_account.ERASE,
        ):
            yield Query(statement, (account_id,))
        yield Query(member_sql.DELETE_SESSIONS, (account_id, _NO_HANDLE))
        partition = (bucket_of(account_id), account_id)
        for statement in (
            member_sql.ERASE_EXTERNAL_IDS,
            member_sql.DELETE_IDEMPOTENCY_RECORDS,
            member_sql.DELETE_ACTIVITY,
            change_sql.ERASE_CHANGES,
            change_sql.FORGET_CHANGES,
            revert_sql.ERASE_CONFLICTS,
            revert_sql.ERASE_REVERTS,
            member_sql.DELETE_USAGE,
            member_sql.DELETE_REJECTED_REQUESTS,
        ):
            yield Query(statement, partition)
        return True


def _set_password(account_id: int, password_hash: str, actor: Actor, keep: str | None) -> Script[None]:
    """Store a password hash, and delete all that someone who knew the earlier password could still use."""
    yield Query(member_sql.SET_PASSWORD, (account_id, password_hash, actor.moment))
    for statement in (
        member_sql.DELETE_INVITATIONS,
        member_sql.DELETE_DEVICES,
        mail_queue.DELETE_CONFIRMATIONS,
        own_account.DELETE_TOKENS,
    ):
        yield Query(statement, (account_id,))
    yield Query(member_sql.DELETE_SESSIONS, (account_id, keep or _NO_HANDLE))
    yield from record_event(account_id, actor, "password_changed")
