"""The part of `Store`, apart from the market, that all engines share."""

from collections.abc import Sequence
from functools import partial

from listings.contract.changes import ChangePage, ChangePosition, EditState, ListingChangePage
from listings.contract.history import Actor
from listings.contract.listings import Batch, BatchOutcome, Decide, IdempotencyRecord
from listings.domain.account_limits import AccountLimits
from listings.domain.model import Listing, ListingCounts
from listings.store import change_reads, change_sql, sql
from listings.store.mail_queue import ScriptedMailStore
from listings.store.mapping import build_listing
from listings.store.own_account import ScriptedOwnAccountStore
from listings.store.report import ScriptedReportStore
from listings.store.reverts.store import ScriptedRevertStore
from listings.store.scripts import changes, listings
from listings.store.scripts.accounts import ScriptedAccountStore
from listings.store.scripts.attempts import ScriptedAttemptStore
from listings.store.scripts.engine import Engine
from listings.store.scripts.history import ScriptedHistoryStore
from listings.store.scripts.imports import ScriptedImportStore
from listings.store.scripts.keys import ScriptedKeyStore
from listings.store.scripts.members import ScriptedMemberStore
from listings.store.scripts.script import Script, ScriptedStore, transaction
from listings.store.scripts.views import ScriptedViewStore
from listings.store.tasks import ScriptedTaskStore


class ScriptedChangeStore(ScriptedStore):
    """Implements `ChangeStore`."""

    page_creates_statement = change_sql.PAGE_CREATES

    async def get_edit_state(self, bucket: int, account_id: int) -> EditState:
        rows = await self._fetch(change_sql.GET_EDIT_STATE, bucket, account_id)
        return EditState(*rows[0][:2]) if rows else EditState(0, 0)

    async def page_changes(self, bucket: int, account_id: int, after: ChangePosition, last: int) -> ChangePage:
        partition = (bucket, account_id)
        return await self._run_reads(
            lambda: change_reads.read_page(partition, after, last, self.page_creates_statement)
        )

    async def page_listing_changes(self, listing_id: int, before: int, count: int) -> ListingChangePage:
        return await self._run_reads(lambda: change_reads.read_listing_page(listing_id, before, count))

    async def purge_changes(self, buckets: Sequence[int], oldest: int, max_sets: int) -> int:
        deleted = 0
        for bucket in buckets:
            for (account_id,) in await self._fetch(change_sql.FIND_OLD_ACCOUNTS, bucket, oldest):
                purge = partial(changes.purge, (bucket, account_id), oldest, max_sets)
                deleted += await self._run_script(purge)
        return deleted


class ScriptedListingStore(ScriptedStore):
    """Implements the methods of `ListingStore` that are the same on every engine."""

    engine: Engine
    page_listings_statement = sql.PAGE_LISTINGS

    @property
    def account_limits(self) -> AccountLimits:
        return self.engine.limits

    async def get_database_id(self) -> str:
        return str((await self._fetch(sql.GET_DATABASE_ID))[0][0])

    # Listings

    async def count_listings(self, bucket: int, account_id: int) -> ListingCounts:
        return ListingCounts(*(await self._fetch(sql.COUNT_LISTINGS, bucket, account_id))[0])

    async def find_by_external_id(self, bucket: int, account_id: int, external_id: str) -> Listing | None:
        rows = await self._fetch(sql.GET_LISTING_BY_EXTERNAL_ID, bucket, account_id, external_id)
        return build_listing(rows[0]) if rows else None

    @transaction
    def change_listing(self, listing_id: int, decide: Decide, actor: Actor | None = None) -> Script[Listing]:
        return listings.change(self.engine, listing_id, decide, actor)

    async def run_batch(
        self,
        bucket: int,
        account_id: int,
        batch: Batch,
        idempotency: IdempotencyRecord | None = None,
        actor: Actor | None = None,
    ) -> BatchOutcome | str:
        partition = (bucket, account_id)
        try:
            return await self._run_script(
                lambda: listings.run(self.engine, partition, batch, idempotency, actor), is_dry_run=batch.dry_run
            )
        except listings.RollbackError as rollback:
            rollback.__traceback__ = None  # it is part of a reference cycle, and its frames hold the listings
            return rollback.outcome

    async def purge_idempotency_records(self, oldest: int, count: int) -> int:
        return len(await self._write(sql.PURGE_IDEMPOTENCY_RECORDS, oldest, count))

    async def page_listings(self, bucket: int, account_id: int, after_id: int, count: int) -> list[Listing]:
        rows = await self._fetch(self.page_listings_statement, bucket, account_id, after_id, count)
        return [build_listing(row) for row in rows]


class CommonStore(
    ScriptedListingStore,
    ScriptedViewStore,
    ScriptedImportStore,
    ScriptedChangeStore,
    ScriptedRevertStore,
    ScriptedAccountStore,
    ScriptedKeyStore,
    ScriptedMemberStore,
    ScriptedAttemptStore,
    ScriptedHistoryStore,
    ScriptedMailStore,
    ScriptedOwnAccountStore,
    ScriptedTaskStore,
    ScriptedReportStore,
):
    """Base class of the engines' stores."""
