"""Transactions that create and change accounts."""

from collections.abc import Callable

from listings.contract.accounts import AccountChange
from listings.contract.history import Actor
from listings.contract.mail import NewMail
from listings.domain.model import Account, bucket_of
from listings.store import mail_queue, member_sql, sql
from listings.store.scripts.audit import record_event
from listings.store.scripts.script import Query, Script


def add(name: str, email: str, plan_expires_at: int | None, created_at: int) -> Script[Account | None]:
    """Store an account with the state row that its listings refer to. Return None if the email address is taken."""
    rows = yield Query(sql.ADD_ACCOUNT, (name, email, plan_expires_at, created_at))
    if not rows:
        return None
    account = Account(*rows[0])
    bucket = bucket_of(account.id)
    yield Query(sql.SET_BUCKET, (bucket, account.id))
    yield Query(sql.ADD_ACCOUNT_STATE, (bucket, account.id))
    return account


def change(account_id: int, decide: Callable[[Account], AccountChange], actor: Actor | None) -> Script[Account | None]:
    """Write the changes that `decide` returns. Return the updated account, or None if it does not exist."""
    rows = yield Query(sql.GET_ACCOUNT, (account_id,), locks=True)
    if not rows:
        return None
    account = Account(*rows[0])
    changes = decide(account)
    if not changes:
        return account
    rows = yield Query(sql.build_account_update(tuple(changes)), (account_id, *changes.values()))
    if actor is not None and _is_extended(account, changes, actor.moment):
        yield Query(member_sql.DELETE_PLAN_REQUEST, (account_id,))
    if actor is not None:
        yield from record_event(account_id, actor, "account_changed", detail=changes)
    return Account(*rows[0])


def add_plan_request(account_id: int, requested_at: int, mail: NewMail | None) -> Script[bool]:
    """Store a request for the plan. Return False if there is one already."""
    if not (yield Query(member_sql.ADD_PLAN_REQUEST, (account_id, requested_at))):
        return False
    yield from mail_queue.add(mail)
    return True


def _is_extended(account: Account, changes: AccountChange, now: int) -> bool:
    end = changes.get("plan_expires_at")
    return isinstance(end, int) and end > max(now, account.plan_expires_at or 0)
