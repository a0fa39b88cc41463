"""The methods of the store for members, and for attempts to sign in."""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import astuple

from listings.domain.history import CONSOLE, Actor
from listings.domain.mail import NewMail
from listings.domain.members import AttemptLimit, NewSession, Session, SessionCutoffs
from listings.domain.model import Account, bucket_of
from listings.store import change_sql, mail_queue, member_sql, own_account, sql
from listings.store.mapping import AccountRow
from listings.store.member_sql import SessionRow
from listings.store.query import Query
from listings.store.reverts import sql as revert_sql
from listings.store.scripts import accounts
from listings.store.scripts.audit import record_event
from listings.store.scripts.script import ScriptedStore, Transaction, caller_transaction, transaction

_SESSION_COLUMNS: Final = 7  # of `SessionRow`; mypy compares the columns after a split at a literal
_NO_HANDLE = ""  # matches no session


class ScriptedMemberStore(ScriptedStore):
    """Stores members, their sessions and invitations, and counts attempts, such as sign-ins, to limit them."""

    @transaction
    async def add_member(
        self, tx: Transaction, name: str, email: str, password_hash: str, created_at: int, mail: NewMail | None = None
    ) -> Account | None:
        """Store an account without a plan, together with its password hash, and queue the mail.

        Return None and store nothing if the email address is taken.
        """
        account = await accounts.add(tx, name, email, None, created_at)
        if account is not None:
            await tx.fetch(member_sql.SET_PASSWORD, (account.id, password_hash, created_at))
            await record_event(tx, account.id, Actor(CONSOLE, created_at), "account_opened")
            await mail_queue.add(tx, mail)
        return account

    async def get_password(self, account_id: int) -> str | None:
        """Return the account's password hash, or None if it has no password."""
        return await self._find(str, member_sql.GET_PASSWORD, account_id)

    @transaction
    async def set_password(  # noqa: PLR0913 - the values of one transaction
        self,
        tx: Transaction,
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
        if not await own_account.is_password(tx, account_id, old):
            return False
        await _set_password(tx, account_id, new, actor, keep)
        await mail_queue.add(tx, notice)
        return True

    async def update_password_hash(self, account_id: int, old: str, new: str) -> bool:
        """Store a new hash of the same password. Return False and store nothing if the current hash is not `old`."""
        return bool(await self._write(member_sql.REPLACE_PASSWORD, account_id, old, new))

    @transaction
    async def add_session(
        self, tx: Transaction, account_id: int, new: NewSession, password_hash: str, mail: NewMail | None = None
    ) -> bool:
        """Store a session of an existing account that signed in with the password of this hash, and queue the mail.

        Return False and store nothing if the hash has changed or the account is disabled.
        """
        account = await tx.get(Account, sql.GET_ACCOUNT, (account_id,), locks=True)
        if account.disabled_at is not None or not await own_account.is_password(tx, account_id, password_hash):
            return False
        await tx.fetch(member_sql.ADD_SESSION, (account_id, *astuple(new)))
        await record_event(tx, account_id, Actor(CONSOLE, new.created_at), "signed_in")
        await mail_queue.add(tx, mail)
        return True

    async def find_session(self, digest: bytes) -> tuple[Session, Account] | None:
        """Return the session with this digest and its account, even if it has expired."""
        return await self._find(_build_session, member_sql.FIND_SESSION, digest)

    async def list_sessions(self, account_id: int) -> list[Session]:
        """Return the account's sessions, latest first."""
        return await self._list(Session, member_sql.LIST_SESSIONS, account_id)

    async def touch_session(self, account_id: int, handle: str, seen_at: int) -> None:
        """Record when a session was last seen. An earlier time than the stored one changes nothing."""
        await self._write(member_sql.TOUCH_SESSION, account_id, handle, seen_at)

    async def confirm_session(self, account_id: int, handle: str, digest: bytes, confirmed_at: int) -> None:
        """Record when the owner entered the password, and replace the session's digest."""
        await self._write(member_sql.CONFIRM_SESSION, account_id, handle, digest, confirmed_at)

    @transaction
    async def end_session(self, tx: Transaction, account_id: int, handle: str, actor: Actor | None = None) -> bool:
        """Delete a session. Return False if the account has no session with this handle.

        An audit event is written only if `actor` is given.
        """
        rows = await tx.fetch(member_sql.DELETE_SESSION, (account_id, handle))
        if rows and actor is not None:
            await record_event(tx, account_id, actor, "signed_out")
        return bool(rows)

    @transaction
    async def end_sessions(self, tx: Transaction, account_id: int, keep: str | None = None) -> int:
        """Delete all sessions of the account except the one with the handle `keep`. Return how many were deleted."""
        return len(await tx.fetch(member_sql.DELETE_SESSIONS, (account_id, keep or _NO_HANDLE)))

    @transaction
    async def purge_sessions(self, tx: Transaction, oldest: SessionCutoffs) -> None:
        """Delete the expired sessions."""
        await tx.fetch(member_sql.PURGE_IDLE_SESSIONS, (oldest.seen_at,))
        await tx.fetch(member_sql.PURGE_OLD_SESSIONS, (oldest.created_at,))

    @transaction
    async def set_device(self, tx: Transaction, account_id: int, digest: bytes, used_at: int, max_devices: int) -> None:
        """Store a browser in which an existing account has signed in, or update its time of last use.

        Only the `max_devices` browsers that were used last stay. `set_password` and `accept_invitation` delete all.
        """
        await tx.fetch(member_sql.SET_DEVICE, (account_id, digest, used_at))
        await tx.fetch(member_sql.TRIM_DEVICES, (account_id, max_devices))

    async def is_known_device(self, email: str, digest: bytes) -> bool:
        """Return whether this browser is stored as one of the account with this email address."""
        return bool(await self._fetch(member_sql.IS_DEVICE, email, digest))

    @transaction
    async def add_invitation(
        self,
        tx: Transaction,
        account_id: int,
        digest: bytes,
        created_at: int,
        expires_at: int,
        *,
        email: str | None = None,
    ) -> bool:
        """Store an invitation for an existing account. Return whether it was stored.

        Without `email`, it is stored, and replaces all earlier ones. With `email`, it replaces none, and is not stored
        if the account is disabled or has another address.
        """
        account = await tx.get(Account, sql.GET_ACCOUNT, (account_id,), locks=True)
        if email is not None and (account.disabled_at is not None or account.email != email):
            return False
        if email is None:
            await tx.fetch(member_sql.DELETE_INVITATIONS, (account_id,))
        else:
            await tx.fetch(member_sql.DELETE_EXPIRED_INVITATIONS, (account_id, created_at))
        await tx.fetch(member_sql.ADD_INVITATION, (account_id, digest, created_at, expires_at))
        return True

    async def find_invitation(self, digest: bytes, now: int) -> Account | None:
        """Return the account of an invitation, or None if there is no such invitation or it has expired."""
        return await self._find(Account, member_sql.FIND_INVITATION, digest, now)

    @caller_transaction
    async def accept_invitation(
        self,
        tx: Transaction,
        digest: bytes,
        password_hash: str,
        now: int,
        notice: NewMail | None = None,
        *,
        is_reset: bool = False,
    ) -> Account | None:
        """Set the password hash of the invited account, as `set_password` does, and delete the invitation.

        The account's address is confirmed. If it was not before, a reset also revokes the keys whose secrets members
        have seen, because somebody else may have signed up with the address.

        Return None and write nothing if there is no such invitation or it has expired. Raises
        Problem("account_disabled") if the account is erased.
        """
        found = await tx.find(Account, member_sql.FIND_INVITATION, (digest, now))
        if found is not None:
            await accounts.lock_not_erased(tx, found.id)
        account_id = await tx.find(int, member_sql.ACCEPT_INVITATION, (digest, now))
        if account_id is None:
            return None
        account, actor = await tx.get(Account, sql.GET_ACCOUNT, (account_id,)), Actor(CONSOLE, now)
        await _set_password(tx, account.id, password_hash, actor, None)
        await mail_queue.add(tx, notice)
        confirmed = await tx.find(str, own_account.GET_CONFIRMED_EMAIL, (account.id,))
        if is_reset and confirmed != account.email:
            for (key_id,) in await tx.fetch(member_sql.LIST_CONSOLE_KEYS, (bucket_of(account.id), account.id, now)):
                await tx.fetch(sql.REVOKE_KEY, (now, key_id))
                await record_event(tx, account.id, actor, "key_revoked", key_id)
        await tx.fetch(own_account.SET_CONFIRMED_EMAIL, (account.id, account.email, now))
        return account

    @transaction
    async def count_attempt(self, tx: Transaction, limits: Sequence[AttemptLimit], moment: int) -> int | None:
        """Count one attempt for each subject in turn, until one is beyond its limit.

        Return the Unix time at which the exceeded limit ends, or None if none was exceeded. A period begins with the
        first attempt that is counted; the count restarts at 1 after it, or if its start lies in the future. Always
        pass the kinds of subjects in the same order, because concurrent attempts could otherwise deadlock.
        """
        for limit in limits:
            counted = await tx.fetch(member_sql.COUNT_ATTEMPT, (limit.subject, moment, moment - limit.seconds))
            ((count, started_at),) = counted
            if count > limit.max_attempts:
                return started_at + limit.seconds
        return None

    @transaction
    async def decrement_attempts(self, tx: Transaction, subjects: Sequence[bytes]) -> None:
        """Lower the count of each subject by one. Pass the subjects in the order of `count_attempt`."""
        for subject in subjects:
            await tx.fetch(member_sql.DECREMENT_ATTEMPTS, (subject,))

    @transaction
    async def purge_attempts(self, tx: Transaction, oldest: int, now: int) -> None:
        """Delete subjects whose first attempt was before `oldest` or lies after `now`."""
        await tx.fetch(member_sql.PURGE_ATTEMPTS, (oldest,))
        await tx.fetch(member_sql.PURGE_FUTURE_ATTEMPTS, (now,))  # stored while a clock was ahead

    async def erase_rows(self, account_id: int, count: int, disabled_at: int) -> None:
        """Erase most of what `erase_account` erases, in transactions of `count` rows.

        Fewer than `count` rows of each large table remain. Stop if the account was enabled after `disabled_at`, even if
        it was disabled again.
        """
        for statement in member_sql.ERASE_ROWS:
            while await self._erase_first_rows(account_id, statement, count, disabled_at):
                pass

    @transaction
    async def _erase_first_rows(
        self, tx: Transaction, account_id: int, statement: Query[tuple[int]], count: int, disabled_at: int
    ) -> bool:
        # Returns False, with nothing written, if there are fewer rows or the account was enabled.
        if (await tx.get(Account, sql.GET_ACCOUNT, (account_id,), locks=True)).disabled_at != disabled_at:
            return False
        partition = (bucket_of(account_id), account_id)
        erased = await tx.fetch(statement, (*partition, count - 1))
        if erased:
            # Mark all as purged: a reader fails on a gap.
            await tx.fetch(change_sql.FORGET_CHANGES, (*partition, sum(size for (size,) in erased)))
        return bool(erased)

    @caller_transaction
    async def erase_account(
        self, tx: Transaction, account_id: int, name: str, email: str, now: int, disabled_at: int
    ) -> bool:
        """Erase the personal data of a disabled account, and the external ids of its listings.

        Return False and write nothing if the account was enabled after `disabled_at`.

        The account and its keys get the given name, and the account the email address. Its keys are revoked.
        Its plan, public contact, password, sessions, devices, invitations, email tokens, confirmed address, mails, plan
        request, reminder, messages, reports, takedowns, second factor of an operator, daily counts, activity, change
        sets, reverts, usage, rejected requests, idempotency records and the rows of its pictures are deleted.
        """
        if (await tx.get(Account, sql.GET_ACCOUNT, (account_id,), locks=True)).disabled_at != disabled_at:
            return False
        await tx.fetch(mail_queue.ERASE_MAILS, (account_id,))  # while the account still has its address
        await tx.fetch(member_sql.ERASE_ACCOUNT, (account_id, name, email, now))
        await tx.fetch(member_sql.ERASE_KEYS, (account_id, name, now))
        for statement in member_sql.ERASE_BY_ID:
            await tx.fetch(statement, (account_id,))
        await tx.fetch(member_sql.DELETE_SESSIONS, (account_id, _NO_HANDLE))
        partition = (bucket_of(account_id), account_id)
        erased = await tx.fetch(change_sql.ERASE_CHANGES, partition)
        erased += await tx.fetch(revert_sql.ERASE_CONFLICTS, partition)
        await tx.fetch(change_sql.FORGET_CHANGES, (*partition, sum(size for (size,) in erased)))
        for statement in (member_sql.ERASE_EXTERNAL_IDS, *member_sql.ERASE_BY_PARTITION):
            await tx.fetch(statement, partition)
        for statement in member_sql.ERASE_PICTURES:  # last, because a sweep of pictures locks the account's state first
            await tx.fetch(statement, (account_id,))
        return True


def _build_session(*columns: *tuple[*SessionRow, *AccountRow]) -> tuple[Session, Account]:
    return Session(*columns[:_SESSION_COLUMNS]), Account(*columns[_SESSION_COLUMNS:])


async def _set_password(tx: Transaction, account_id: int, password_hash: str, actor: Actor, keep: str | None) -> None:
    # What someone who knew the earlier password could still use is deleted.
    await tx.fetch(member_sql.SET_PASSWORD, (account_id, password_hash, actor.moment))
    for statement in (
        member_sql.DELETE_INVITATIONS,
        member_sql.DELETE_DEVICES,
        mail_queue.DELETE_CONFIRMATIONS,
        own_account.DELETE_TOKENS,
    ):
        await tx.fetch(statement, (account_id,))
    await tx.fetch(member_sql.DELETE_SESSIONS, (account_id, keep or _NO_HANDLE))
    await record_event(tx, account_id, actor, "password_changed")
