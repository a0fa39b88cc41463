"""Usage and refusals, their removal, and payments: one script a transaction."""

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import astuple

from listings.contract.history import History, Payment, RejectedRequest, UsageKey
from listings.domain.model import Account, bucket_of
from listings.store import member_sql as console
from listings.store import sql
from listings.store.scripts.audit import record_payment
from listings.store.scripts.script import Query, Script


def add(counts: Mapping[UsageKey, int], refusals: Sequence[RejectedRequest], most: int) -> Script[None]:
    """In one order, since several processes add theirs to the same rows."""
    for key, count in sorted(counts.items()):
        yield Query(console.ADD_USAGE, (bucket_of(key.account_id), *key, count))
    for refusal in refusals:
        yield Query(console.ADD_REFUSAL, (bucket_of(refusal.account_id), *astuple(refusal)))
    for account_id in sorted({refusal.account_id for refusal in refusals}):
        yield Query(console.KEEP_REFUSALS, (bucket_of(account_id), account_id, most))


def forget(buckets: Sequence[int], oldest: History, most: int) -> Script[int]:
    """What is older, of each bucket a number of rows at most of each kind."""
    forgotten = 0
    for bucket in buckets:
        for statement, moment in (
            (console.FORGET_EVENTS, oldest.events),
            (console.FORGET_USAGE, oldest.hours),
            (console.FORGET_REFUSALS, oldest.refusals),
        ):
            forgotten += len((yield Query(statement, (bucket, moment, most))))
    return forgotten


def add_payment(payment: Payment, decide: Callable[[Account], int], moment: int) -> Script[Account | None]:
    """The plan's new end, with the mark that it was paid."""
    rows = yield Query(sql.GET_ACCOUNT, (payment.account_id,), locks=True)
    if not rows:
        return None
    account = Account(*rows[0])
    end = decide(account)
    values = (payment.provider, payment.payment_id, payment.account_id, payment.months, end, moment)
    if not (yield Query(console.ADD_PAYMENT, values)):
        return account
    rows = yield Query(sql.change_account(("plan_expires_at",)), (account.id, end))
    yield from record_payment(payment, end, moment)
    return Account(*rows[0])
