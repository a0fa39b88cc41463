"""Transactions on members, their sessions, sign-in attempts and invitations, and the erasure of an account."""

from collections.abc import Sequence

from msgspec.structs import astuple

from listings.contract.history import CONSOLE, Actor
from listings.contract.mail import NewMail
from listings.contract.members import AttemptLimit, NewSession, Session, SessionCutoffs
from listings.domain.model import Account, bucket_of
from listings.store import change_sql, mail_queue, member_sql, own_account, sql
from listings.store.mapping import Row
from listings.store.reverts import sql as revert_sql
from listings.store.scripts import accounts
from listings.store.scripts.audit import record_event
from listings.store.scripts.script import Query, Script

_SESSION_COLUMNS = len(Session.__struct_fields__)
_NO_HANDLE = ""  # matches no session


def add(name: str, email: str, password_hash: str, created_at: int, mail: NewMail | None) -> Script[Account | None]:
    """Store an account and its password hash. Return None if the email address is taken."""
    account = yield from accounts.add(name, email, None, created_at)
    if account is not None:
        yield Query(member_sql.SET_PASSWORD, (account.id, password_hash, created_at))
        yield from record_event(account.id, Actor(CONSOLE, created_at), "account_opened")
        yield from mail_queue.add(mail)
    return account


def change_password(  # noqa: PLR0913 - see the contract
    account_id: int, old: str, new: str, actor: Actor, keep: str | None, *, notice: NewMail | None
) -> Script[bool]:
    """Replace the password hash, unless it is no longer `old`."""
    if not (yield from _is_password(account_id, old)):
        return False
    yield from _set_password(account_id, new, actor, keep)
    yield from mail_queue.add(notice)
    return True


def _set_password(account_id: int, password_hash: str, actor: Actor, keep: str | None) -> Script[None]:
    """Store a password hash and delete the sessions, devices and invitations from before it."""
    yield Query(member_sql.SET_PASSWORD, (account_id, password_hash, actor.moment))
    yield Query(member_sql.DELETE_INVITATIONS, (account_id,))
    yield Query(member_sql.DELETE_SESSIONS, (account_id, keep or _NO_HANDLE))
    yield Query(member_sql.DELETE_DEVICES, (account_id,))
    yield from record_event(account_id, actor, "password_changed")


def add_session(account_id: int, new: NewSession, password_hash: str, mail: NewMail | None) -> Script[bool]:
    """Store a session, unless the account was disabled or the password changed in the meantime."""
    rows = yield Query(sql.GET_ACCOUNT, (account_id,), locks=True)
    if Account(*rows[0]).disabled_at is not None or not (yield from _is_password(account_id, password_hash)):
        return False
    yield Query(member_sql.ADD_SESSION, (account_id, *astuple(new)))
    yield from record_event(account_id, Actor(CONSOLE, new.created_at), "signed_in")
    yield from mail_queue.add(mail)
    return True


def _is_password(account_id: int, password_hash: str) -> Script[bool]:
    """Return whether this is the stored hash, and lock it until the transaction ends."""
    rows = yield Query(member_sql.GET_PASSWORD, (account_id,), locks=True)
    return bool(rows) and rows[0][0] == password_hash


def parse_session(row: Row) -> tuple[Session, Account]:
    """Return the session and the account in a row of FIND_SESSION."""
    values = tuple(row)
    return Session(*values[:_SESSION_COLUMNS]), Account(*values[_SESSION_COLUMNS:])


def end_session(account_id: int, handle: str, actor: Actor | None) -> Script[bool]:
    """Delete a session. Return False if there is none with this handle."""
    rows = yield Query(member_sql.DELETE_SESSION, (account_id, handle))
    if rows and actor is not None:
        yield from record_event(account_id, actor, "signed_out")
    return bool(rows)


def end_sessions(account_id: int, keep: str | None) -> Script[int]:
    """Delete all sessions except one, and return how many were deleted."""
    return len((yield Query(member_sql.DELETE_SESSIONS, (account_id, keep or _NO_HANDLE))))


def purge_sessions(oldest: SessionCutoffs) -> Script[None]:
    """Delete sessions that were idle for too long or created too long ago."""
    yield Query(member_sql.PURGE_IDLE_SESSIONS, (oldest.seen_at,))
    yield Query(member_sql.PURGE_OLD_SESSIONS, (oldest.created_at,))


def count_attempt(limits: Sequence[AttemptLimit], moment: int) -> Script[int | None]:
    """Count an attempt for each subject, until one is beyond its limit."""
    for limit in limits:
        rows = yield Query(member_sql.COUNT_ATTEMPT, (limit.subject, moment, moment - limit.seconds))
        count, started_at = rows[0]
        if count > limit.max_attempts:
            return int(started_at) + limit.seconds
    return None


def uncount_attempt(subjects: Sequence[bytes]) -> Script[None]:
    """Lower the count of each subject by one."""
    for subject in subjects:
        yield Query(member_sql.DECREMENT_ATTEMPTS, (subject,))


def set_device(account_id: int, digest: bytes, used_at: int, max_devices: int) -> Script[None]:
    """Store a browser, and delete all but the last used ones."""
    yield Query(member_sql.SET_DEVICE, (account_id, digest, used_at))
    yield Query(member_sql.TRIM_DEVICES, (account_id, max_devices))


def purge_attempts(oldest: int, now: int) -> Script[None]:
    """Delete expired attempts, and those from the future, which a fast clock leaves behind."""
    yield Query(member_sql.PURGE_ATTEMPTS, (oldest,))
    yield Query(member_sql.PURGE_FUTURE_ATTEMPTS, (now,))


def add_invitation(account_id: int, digest: bytes, created_at: int, expires_at: int, *, replaces: bool) -> Script[None]:
    """Store an invitation and delete the account's expired ones, or if `replaces`, all earlier ones."""
    if replaces:
        yield Query(member_sql.DELETE_INVITATIONS, (account_id,))
    else:
        yield Query(member_sql.DELETE_EXPIRED_INVITATIONS, (account_id, created_at))
    yield Query(member_sql.ADD_INVITATION, (account_id, digest, created_at, expires_at))


def accept_invitation(digest: bytes, password_hash: str, now: int, notice: NewMail | None) -> Script[Account | None]:
    """Delete an invitation and set the password hash. Return None if there is no valid invitation."""
    rows = yield Query(member_sql.ACCEPT_INVITATION, (digest, now))
    if not rows:
        return None
    account_id = int(rows[0][0])
    yield from _set_password(account_id, password_hash, Actor(CONSOLE, now), None)
    yield from mail_queue.add(notice)
    rows = yield Query(sql.GET_ACCOUNT, (account_id,))
    return Account(*rows[0])


def erase(account_id: int, name: str, email: str, now: int) -> Script[None]:
    """Delete an account's personal data, disable it and revoke its keys."""
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
