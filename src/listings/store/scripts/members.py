"""Members, their sessions and invitations, and what is left of an account that is erased: one script a transaction."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import astuple

from listings.contract.history import CONSOLE, Actor
from listings.contract.members import Ages, NewSession, Session
from listings.domain.model import Account, bucket_of
from listings.store import member_sql as console
from listings.store import sql
from listings.store.scripts import accounts
from listings.store.scripts.audit import note
from listings.store.scripts.script import Query, Script

_SESSION_COLUMNS = len(Session.__struct_fields__)
_NOBODY = ""  # the handle of no session


def add(name: str, email: str, password: str, created_at: int) -> Script[Account | None]:
    """An account with the state that its listings refer to, and its password."""
    account = yield from accounts.add(name, email, None, created_at)
    if account is not None:
        yield Query(console.SET_PASSWORD, (account.id, password, created_at))
        yield from note(account.id, Actor(CONSOLE, created_at), "account_opened")
    return account


def change_password(account_id: int, old: str, new: str, actor: Actor, keep: str | None) -> Script[bool]:
    """Only from the hash that it was found to be."""
    if not (yield from _is_password(account_id, old)):
        return False
    yield from _set_password(account_id, new, actor, keep)
    return True


def _set_password(account_id: int, password: str, actor: Actor, keep: str | None) -> Script[None]:
    """The password, and the end of what the old one has opened."""
    yield Query(console.SET_PASSWORD, (account_id, password, actor.moment))
    yield Query(console.REMOVE_INVITATIONS, (account_id,))
    yield Query(console.END_SESSIONS, (account_id, keep or _NOBODY))
    yield from note(account_id, actor, "password_changed")


def add_session(account_id: int, new: NewSession, password: str) -> Script[bool]:
    """A session that begins, unless what would have ended it came before it."""
    rows = yield Query(sql.GET_ACCOUNT, (account_id,), locks=True)
    if Account(*rows[0]).disabled_at is not None or not (yield from _is_password(account_id, password)):
        return False
    yield Query(console.ADD_SESSION, (account_id, *astuple(new)))
    yield from note(account_id, Actor(CONSOLE, new.created_at), "signed_in")
    return True


def _is_password(account_id: int, password: str) -> Script[bool]:
    """Whether this is the hash, which it then stays until the transaction ends."""
    rows = yield Query(console.GET_PASSWORD, (account_id,), locks=True)
    return bool(rows) and rows[0][0] == password


def session_of(row: Any) -> tuple[Session, Account]:  # noqa: ANN401 - a row of either engine
    """A session and its account."""
    values = tuple(row)
    return Session(*values[:_SESSION_COLUMNS]), Account(*values[_SESSION_COLUMNS:])


def end_session(account_id: int, handle: str, actor: Actor | None) -> Script[bool]:
    """Whether there was one."""
    rows = yield Query(console.END_SESSION, (account_id, handle))
    if rows and actor is not None:
        yield from note(account_id, actor, "signed_out")
    return bool(rows)


def end_sessions(account_id: int, keep: str | None) -> Script[int]:
    """How many there were."""
    return len((yield Query(console.END_SESSIONS, (account_id, keep or _NOBODY))))


def purge_sessions(oldest: Ages) -> Script[None]:
    """Those that are over, for one reason or the other."""
    yield Query(console.FORGET_IDLE_SESSIONS, (oldest.seen_at,))
    yield Query(console.FORGET_OLD_SESSIONS, (oldest.created_at,))


def count_attempt(subjects: Sequence[bytes], moment: int, oldest: int) -> Script[list[int]]:
    """Each in one statement, all in one order, so that two attempts don't wait for each other."""
    counts = {}
    for subject in sorted(subjects):
        rows = yield Query(console.COUNT_ATTEMPT, (subject, moment, oldest))
        counts[subject] = int(rows[0][0])
    return [counts[subject] for subject in subjects]


def forgive_attempt(forgotten: bytes, lessened: bytes) -> Script[None]:
    """In the order in which they are counted."""
    asks = {
        forgotten: Query(console.FORGET_SUBJECT, (forgotten,)),
        lessened: Query(console.LESSEN_ATTEMPTS, (lessened,)),
    }
    for subject in sorted(asks):
        yield asks[subject]


def purge_attempts(oldest: int, now: int) -> Script[None]:
    """Those that are over, and those of a clock that was ahead."""
    yield Query(console.FORGET_ATTEMPTS, (oldest,))
    yield Query(console.FORGET_ATTEMPTS_TO_COME, (now,))


def add_invitation(account_id: int, digest: bytes, created_at: int, expires_at: int) -> Script[None]:
    """One at a time."""
    yield Query(console.REMOVE_INVITATIONS, (account_id,))
    yield Query(console.ADD_INVITATION, (account_id, digest, created_at, expires_at))


def take_invitation(digest: bytes, password: str, now: int) -> Script[Account | None]:
    """The password in exchange for it."""
    rows = yield Query(console.TAKE_INVITATION, (digest, now))
    if not rows:
        return None
    account_id = int(rows[0][0])
    yield from _set_password(account_id, password, Actor(CONSOLE, now), None)
    rows = yield Query(sql.GET_ACCOUNT, (account_id,))
    return Account(*rows[0])


def erase(account_id: int, name: str, email: str, now: int) -> Script[None]:
    """Everything of it that is about a person."""
    yield Query(console.ERASE_ACCOUNT, (account_id, name, email, now))
    yield Query(console.ERASE_KEYS, (account_id, name, now))
    for statement in (console.REMOVE_MEMBER, console.REMOVE_INVITATIONS):
        yield Query(statement, (account_id,))
    yield Query(console.END_SESSIONS, (account_id, _NOBODY))
    place = (bucket_of(account_id), account_id)
    for statement in (
        console.ERASE_CLAIMS,
        console.ERASE_ACTIVITY,
        console.ERASE_USAGE,
        console.ERASE_REFUSALS,
    ):
        yield Query(statement, place)
