"""The methods of the store for the history of accounts."""

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import astuple

from listings.domain.history import (
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
from listings.domain.mail import ComposeMail
from listings.domain.model import Account, bucket_of
from listings.store import mail_queue, member_sql, sql
from listings.store.scripts.audit import record_event
from listings.store.scripts.script import ScriptedStore, Transaction, caller_transaction, transaction


class ScriptedHistoryStore(ScriptedStore):
    """Stores activity, usage, rejected requests and payments."""

    async def page_events(self, bucket: int, account_id: int, before: ActivityCursor, count: int) -> list[Event]:
        """Return at most `count` events of the account that are older than the cursor, newest first.

        The creation of a single listing is not among them: use `page_creations`.
        """
        position = (before.revision, before.number)
        return await self._list(Event, member_sql.PAGE_EVENTS, bucket, account_id, *position, count)

    async def page_creations(self, bucket: int, account_id: int, before_id: int, count: int) -> list[Creation]:
        """Return the creations of the account's listings with ids below `before_id`, highest id first.

        At most `count` are returned. Deleted listings are included.
        """
        return await self._list(Creation, member_sql.PAGE_CREATIONS, bucket, account_id, before_id, count)

    @transaction
    async def add_usage(
        self,
        tx: Transaction,
        counts: Mapping[UsageSlot, int],
        rejections: Sequence[RejectedRequest],
        max_rejections: int,
    ) -> None:
        """Add to the usage counts and store rejected requests.

        Only the latest `max_rejections` rejected requests of an account are retained.
        """
        # In sorted order, because several processes add to the same rows and must not deadlock.
        for key, count in sorted(counts.items()):
            await tx.fetch(member_sql.ADD_USAGE, (bucket_of(key.account_id), *key, count))
        for rejection in rejections:
            await tx.fetch(member_sql.ADD_REJECTED_REQUEST, (bucket_of(rejection.account_id), *astuple(rejection)))
        for account_id in sorted({rejection.account_id for rejection in rejections}):
            await tx.fetch(member_sql.TRIM_REJECTED_REQUESTS, (bucket_of(account_id), account_id, max_rejections))

    async def list_usage_by_hour(self, bucket: int, account_id: int, since: int) -> list[UsageCount]:
        """Return the account's usage from the hour `since` on, in order of the hours."""
        return await self._list(UsageCount, member_sql.LIST_USAGE_BY_HOUR, bucket, account_id, since)

    async def list_usage_by_day(self, bucket: int, account_id: int, since: int) -> list[UsageCount]:
        """Return the account's usage from the hour `since` on, summed by day, in order of the days."""
        return await self._list(UsageCount, member_sql.LIST_USAGE_BY_DAY, bucket, account_id, since)

    async def list_rejected_requests(self, bucket: int, account_id: int, count: int) -> list[RejectedRequest]:
        """Return the account's `count` latest rejected requests, latest first."""
        return await self._list(RejectedRequest, member_sql.LIST_REJECTED_REQUESTS, bucket, account_id, count)

    @transaction
    async def purge_history(
        self, tx: Transaction, buckets: Sequence[int], oldest: HistoryCutoffs, max_rows: int
    ) -> int:
        """Delete history before the cutoffs from some buckets and return the number of deleted rows.

        `key_rotated` events are stored for a year longer, because a key may be rotated only once, and events of keys
        that were created or rotated in the console as long as the keys, because their origin is read from them.
        In each bucket, at most `max_rows` events, `max_rows` usage counts and `max_rows` rejected requests are deleted.
        """
        deleted = 0
        for bucket in buckets:
            await tx.fetch(member_sql.SET_BACK_EVENTS, (bucket, oldest.latest))
            deleted += len(await tx.fetch(member_sql.PURGE_IMPORTS, (bucket, oldest.imports)))
            for statement, moment in (
                (member_sql.PURGE_EVENTS, oldest.events),
                (member_sql.PURGE_USAGE, oldest.hours),
                (member_sql.PURGE_REJECTED_REQUESTS, oldest.rejections),
            ):
                deleted += len(await tx.fetch(statement, (bucket, moment, max_rows)))
        return deleted

    @caller_transaction
    async def add_payment(
        self,
        tx: Transaction,
        payment: Payment,
        decide: Callable[[Account], int],
        moment: int,
        on_plan: ComposeMail | None = None,
    ) -> AddedPayment | None:
        """Store a payment received at the Unix time `moment` and extend the account's plan.

        `decide` is a pure function that receives the account and returns the new end of the plan as a Unix time.
        Return None if the account does not exist. If the payment is already stored, change nothing. Otherwise the
        account's request for the plan is deleted, and the mail of `on_plan` is queued.
        """
        account = await tx.find(Account, sql.GET_ACCOUNT, (payment.account_id,), locks=True)
        if account is None:
            return None
        if await tx.fetch(member_sql.FIND_PAYMENT, (payment.provider, payment.payment_id)):
            return AddedPayment(account, is_new=False)
        plan_expires_at = decide(account)
        values = (*payment, plan_expires_at, moment)
        if not await tx.fetch(member_sql.ADD_PAYMENT, values):
            return AddedPayment(account, is_new=False)
        update = sql.build_account_update(("plan_expires_at",))
        account = await tx.get(Account, update, (account.id, plan_expires_at))
        await tx.fetch(member_sql.DELETE_PLAN_REQUEST, (account.id,))
        await mail_queue.add(tx, None if on_plan is None else on_plan(account))
        detail = {"months": payment.months, "plan_expires_at": plan_expires_at, "provider": payment.provider}
        await record_event(tx, account.id, Actor(CONSOLE, moment), "plan_paid", detail=detail)  # by the account itself
        return AddedPayment(account, is_new=True)

    async def list_payments(self, account_id: int, count: int) -> list[tuple[Payment, int]]:
        """Return the account's latest `count` payments, each with the Unix time of its receipt."""
        rows = await self._fetch(member_sql.LIST_PAYMENTS, account_id, count)
        return [(Payment(*row[:-1]), row[-1]) for row in rows]
