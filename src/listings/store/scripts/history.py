"""`HistoryStore`, implemented with scripts that every engine can run."""

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import astuple

from listings.contract.history import (
    CONSOLE,
    ActivityCursor,
    Actor,
    AddedPayment,
    Creation,
    Event,
    HistoryCutoffs,
    Payment,
    RejectedRequest,
    UsageCount,
    UsageSlot,
)
from listings.domain.model import Account, bucket_of
from listings.store import member_sql, sql
from listings.store.scripts.audit import record_event
from listings.store.scripts.script import Query, Script, ScriptedStore, caller_transaction, transaction


class ScriptedHistoryStore(ScriptedStore):
    """Implements `HistoryStore`."""

    page_creations_statement = member_sql.PAGE_CREATIONS
    page_events_statement = member_sql.PAGE_EVENTS

    async def page_events(self, bucket: int, account_id: int, before: ActivityCursor, count: int) -> list[Event]:
        position = (before.revision, before.number)
        rows = await self._fetch(self.page_events_statement, bucket, account_id, *position, count)
        return [Event(*row) for row in rows]

    async def page_creations(self, bucket: int, account_id: int, before_id: int, count: int) -> list[Creation]:
        rows = await self._fetch(self.page_creations_statement, bucket, account_id, before_id, count)
        return [Creation(*row) for row in rows]

    @transaction
    def add_usage(
        self, counts: Mapping[UsageSlot, int], rejections: Sequence[RejectedRequest], max_rejections: int
    ) -> Script[None]:
        # In sorted order, because several processes add to the same rows and must not deadlock.
        for key, count in sorted(counts.items()):
            yield Query(member_sql.ADD_USAGE, (bucket_of(key.account_id), *key, count))
        for rejection in rejections:
            yield Query(member_sql.ADD_REJECTED_REQUEST, (bucket_of(rejection.account_id), *astuple(rejection)))
        for account_id in sorted({rejection.account_id for rejection in rejections}):
            yield Query(member_sql.TRIM_REJECTED_REQUESTS, (bucket_of(account_id), account_id, max_rejections))

    async def list_usage_by_hour(self, bucket: int, account_id: int, since: int) -> list[UsageCount]:
        return [UsageCount(*row) for row in await self._fetch(member_sql.LIST_USAGE_BY_HOUR, bucket, account_id, since)]

    async def list_usage_by_day(self, bucket: int, account_id: int, since: int) -> list[UsageCount]:
        return [UsageCount(*row) for row in await self._fetch(member_sql.LIST_USAGE_BY_DAY, bucket, account_id, since)]

    async def list_rejected_requests(self, bucket: int, account_id: int, count: int) -> list[RejectedRequest]:
        rows = await self._fetch(member_sql.LIST_REJECTED_REQUESTS, bucket, account_id, count)
        return [RejectedRequest(*row) for row in rows]

    @transaction
    def purge_history(self, buckets: Sequence[int], oldest: HistoryCutoffs, max_rows: int) -> Script[int]:
        deleted = 0
        for bucket in buckets:
            for statement, moment in (
                (member_sql.PURGE_EVENTS, oldest.events),
                (member_sql.PURGE_USAGE, oldest.hours),
                (member_sql.PURGE_REJECTED_REQUESTS, oldest.rejections),
            ):
                deleted += len((yield Query(statement, (bucket, moment, max_rows))))
        return deleted

    @caller_transaction
    def add_payment(
        self, payment: Payment, decide: Callable[[Account], int], moment: int
    ) -> Script[AddedPayment | None]:
        rows = yield Query(sql.GET_ACCOUNT, (payment.account_id,), locks=True)
        if not rows:
            return None
        account = Account(*rows[0])
        if (yield Query(member_sql.FIND_PAYMENT, (payment.provider, payment.payment_id))):
            return AddedPayment(account, is_new=False)
        plan_expires_at = decide(account)
        values = (payment.provider, payment.payment_id, payment.account_id, payment.months, plan_expires_at, moment)
        if not (yield Query(member_sql.ADD_PAYMENT, values)):
            return AddedPayment(account, is_new=False)
        rows = yield Query(sql.build_account_update(("plan_expires_at",)), (account.id, plan_expires_at))
        yield Query(member_sql.DELETE_PLAN_REQUEST, (account.id,))
        detail = {"months": payment.months, "plan_expires_at": plan_expires_at, "provider": payment.provider}
        yield from record_event(account.id, Actor(CONSOLE, moment), "plan_paid", detail=detail)  # by the account itself
        return AddedPayment(Account(*rows[0]), is_new=True)
