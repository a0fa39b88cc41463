"""Transactions that add and purge usage, and that store payments."""

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import astuple

from listings.contract.history import HistoryCutoffs, Payment, RejectedRequest, UsageKey
from listings.domain.model import Account, bucket_of
from listings.store import member_sql, sql
from listings.store.scripts.audit import record_payment
from listings.store.scripts.script import Query, Script


def add(counts: Mapping[UsageKey, int], rejections: Sequence[RejectedRequest], max_rejections: int) -> Script[None]:
    """Add usage in sorted order, because several processes add to the same rows and must not deadlock."""
    for key, count in sorted(counts.items()):
        yield Query(member_sql.ADD_USAGE, (bucket_of(key.account_id), *key, count))
    for rejection in rejections:
        yield Query(member_sql.ADD_REJECTED_REQUEST, (bucket_of(rejection.account_id), *astuple(rejection)))
    for account_id in sorted({rejection.account_id for rejection in rejections}):
        yield Query(member_sql.TRIM_REJECTED_REQUESTS, (bucket_of(account_id), account_id, max_rejections))


def purge(buckets: Sequence[int], oldest: HistoryCutoffs, max_rows: int) -> Script[int]:
    """Delete older rows, at most `max_rows` of each kind per bucket, and return how many were deleted."""
    deleted = 0
    for bucket in buckets:
        for statement, moment in (
            (member_sql.PURGE_EVENTS, oldest.events),
            (member_sql.PURGE_USAGE, oldest.hours),
            (member_sql.PURGE_REJECTED_REQUESTS, oldest.rejections),
        ):
            deleted += len((yield Query(statement, (bucket, moment, max_rows))))
    return deleted


def add_payment(payment: Payment, decide: Callable[[Account], int], moment: int) -> Script[Account | None]:
    """Store a payment and the new end of the plan, unless the payment is already stored."""
    rows = yield Query(sql.GET_ACCOUNT, (payment.account_id,), locks=True)
    if not rows:
        return None
    account = Account(*rows[0])
    plan_expires_at = decide(account)
    values = (payment.provider, payment.payment_id, payment.account_id, payment.months, plan_expires_at, moment)
    if not (yield Query(member_sql.ADD_PAYMENT, values)):
        return account
    rows = yield Query(sql.build_account_update(("plan_expires_at",)), (account.id, plan_expires_at))
    yield Query(member_sql.DELETE_PLAN_REQUEST, (account.id,))
    yield from record_payment(payment, plan_expires_at, moment)
    return Account(*rows[0])
