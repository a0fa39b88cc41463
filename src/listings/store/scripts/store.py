"""The part of `Store`, apart from the market, that all engines share."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from listings.domain.account_limits import AccountLimits
from listings.domain.changes import Change, ChangePage, ChangePosition, EditState, GroupPage, ListingChangePage
from listings.domain.history import Actor
from listings.domain.listings import Batch, BatchOutcome, Decide, IdempotencyRecord
from listings.domain.model import MAX_ID, Listing, ListingCounts
from listings.store import change_groups, change_reads, change_sql, retention, sql
from listings.store.mapping import ChangeState, build_listing
from listings.store.retention import Cutoffs
from listings.store.scripts import batches, listings
from listings.store.scripts.engine import Engine
from listings.store.scripts.script import ScriptedStore, Transaction, transaction

T = TypeVar("T")


class ScriptedChangeStore(ScriptedStore):
    """Stores change sets.

    The ids of an account's change sets count from 1 in the order of their commits, without gaps, except for those that
    a restore skipped, because lost change sets may have had them.
    """

    engine: Engine
    page_creates_statement = change_sql.PAGE_CREATES

    async def get_edit_state(self, bucket: int, account_id: int) -> EditState:
        """Return the state of the account's change sets."""
        state = await self._find(ChangeState, change_sql.GET_EDIT_STATE, bucket, account_id)
        return EditState(0, 0) if state is None else EditState(*state[:3])

    async def list_lost_changes(self, bucket: int, account_id: int) -> Sequence[tuple[int, int]]:
        """Return the first and last ids that each restore has skipped, in ascending order."""
        return [(first, last) for first, last in await self._fetch(change_sql.LIST_LOST_CHANGES, bucket, account_id)]

    async def page_changes(self, bucket: int, account_id: int, after: ChangePosition, last: int) -> ChangePage:
        """Return changes after a position, up to the change set `last`.

        The page ends early if it would be too large. A change set that is too large for a page is split; any other is
        on one page. Raises Problem("changes_gone").
        """
        partition = (bucket, account_id)
        return await self._run_reads(
            lambda tx: change_reads.read_page(tx, partition, after, last, self.page_creates_statement)
        )

    async def convert_first_changes(
        self, bucket: int, account_id: int, ids: Sequence[int], count: int, convert: Callable[[Change], T]
    ) -> Mapping[int, Sequence[T]]:
        """Return what `convert` returns for the first `count` changes of each change set in `ids`.

        At most about 4 MiB are read, in the order of `ids`, and only some of it is in memory at the same time. Change
        sets that are not reached, not stored, or a single create are left out. Other creates have no values in
        `after`. `convert` must be a pure function; it may run in a thread.
        """
        return await self._run_reads(
            lambda tx: change_reads.convert_first(tx, (bucket, account_id), ids, count, convert)
        )

    async def page_listing_changes(self, listing_id: int, before: int, count: int) -> ListingChangePage:
        """Return the changes of a listing in at most `count` change sets before `before`.

        There are fewer if they would be too large together. The change that created the listing is the oldest one.
        """
        return await self._run_reads(lambda tx: change_reads.read_listing_page(tx, listing_id, before, count))

    async def find_last_change_before(self, bucket: int, account_id: int, moment: int) -> int:
        """Return the id of the last change set from before `moment`, a Unix time, or 0.

        Raises Problem("changes_gone") if change sets since then are no longer stored.
        """
        statement = self.page_creates_statement
        return await self._run_reads(
            lambda tx: change_reads.find_last_before(tx, (bucket, account_id), moment, statement)
        )

    async def page_change_groups(self, bucket: int, account_id: int, before: int, count: int) -> GroupPage:
        """Return at most `count` groups of change sets with ids below `before`."""
        return await self._run_reads(lambda tx: change_groups.read_page(tx, (bucket, account_id), before, count))

    async def purge_changes(
        self, buckets: Sequence[int], oldest: int, max_sets: int, oldest_deleted: int = 0, latest: int = MAX_ID
    ) -> int:
        """Delete change sets from before `oldest`, a Unix time in seconds, in a transaction for each account.

        At most `max_sets` of each account are deleted, and none that an unfinished revert needs. A change set that
        exists only as the row of the created listing does not count. It is regarded as deleted once a later one is
        deleted. Then listings that were deleted before `oldest_deleted` are removed, some of each account, except those
        that a stored change set names. Return the number of change sets and listings.

        Times after `latest` were stored with a wrong clock. They are set to a minute before `latest`.
        """
        cutoffs = Cutoffs(oldest, oldest_deleted, latest)
        deleted = 0
        for bucket in buckets:
            for (account_id,) in await self._fetch(retention.FIND_OLD_ACCOUNTS, bucket, *cutoffs):
                key = (bucket, account_id)
                purge = partial(retention.purge, engine=self.engine, partition=key, cutoffs=cutoffs, max_sets=max_sets)
                deleted += await self._run_script(purge)
        return deleted

    async def forget_history(self, bucket: int, account_id: int, count: int) -> bool:
        """Delete change sets and reverts of an account, and rows of deleted listings, about `count` of each.

        Return whether there were any. Ids continue, and older positions in the feed are gone. Idempotency records go
        with the last change set.
        """
        return await self._run_script(lambda tx: retention.forget(tx, self.engine, (bucket, account_id), count))

    async def list_accounts_over_budget(self) -> list[tuple[int, int]]:
        """Return the bucket and the id of each account that stores more than its budget."""
        limits = self.engine.limits
        values = (limits.compute_budget(0),)
        rows = await self._run_reads(lambda tx: tx.fetch(retention.LIST_LARGE_ACCOUNTS, values))
        return [
            (bucket, account_id)
            for bucket, account_id, text_bytes, stored_bytes, *own in rows
            if stored_bytes > limits.override(own).compute_budget(text_bytes)
        ]

    async def shrink_history(self, bucket: int, account_id: int) -> bool:
        """Delete some of the oldest history of an account. Return False if it is within its budget, or must wait.

        Listings that were deleted before the oldest stored change set are removed first. When a change set is deleted,
        the listings that it deleted and that are still deleted are removed with it. Change sets that an unfinished
        revert needs stay.
        """
        return await self._run_script(lambda tx: retention.shrink(tx, self.engine, (bucket, account_id)))


class ScriptedListingStore(ScriptedStore):
    """Stores listings.

    A create or restore that would leave its account larger than its limits is rejected with
    Problem("account_full"). So is an update that brings the text of the account over the limit; if it is over already,
    updates are accepted. Two listings of an account that are not deleted can't have the same external id: the write is
    rejected with Problem("external_id_taken"). In a batch or an import, the Problem is the result of the step or row.
    """

    engine: Engine
    page_listings_statement = sql.PAGE_LISTINGS

    async def get_account_limits(self, bucket: int, account_id: int) -> AccountLimits:
        """Return the limits of an existing account."""
        rows = await self._fetch(sql.GET_ACCOUNT_LIMITS, bucket, account_id)
        return self.engine.limits.override(rows[0])

    async def set_account_limits(self, bucket: int, account_id: int, limits: Sequence[int | None]) -> None:
        """Set the account's own limits, in the order of `AccountLimits`. None: the limit of all accounts."""
        await self._write(sql.SET_ACCOUNT_LIMITS, bucket, account_id, *limits)

    async def get_database_id(self) -> str:
        """Return the database's id: 32 random hexadecimal digits. Rate limits and exports refer to it."""
        ((database_id,),) = await self._fetch(sql.GET_DATABASE_ID)
        return str(database_id)

    # Listings

    async def count_listings(self, bucket: int, account_id: int) -> ListingCounts:
        """Return the number of the account's listings by status, and the size of their text."""
        return ListingCounts(*(await self._fetch(sql.COUNT_LISTINGS, bucket, account_id))[0])

    async def find_by_external_id(self, bucket: int, account_id: int, external_id: str) -> Listing | None:
        """Return the account's listing with an external id, or None. Deleted listings are not found."""
        rows = await self._fetch(sql.GET_LISTING_BY_EXTERNAL_ID, bucket, account_id, external_id)
        return build_listing(rows[0]) if rows else None

    @transaction
    async def change_listing(
        self, tx: Transaction, listing_id: int, decide: Decide, actor: Actor | None = None
    ) -> Listing:
        """Read a listing, pass it to `decide`, write exactly the columns it returns, and return the updated listing.

        An empty change writes nothing, and any other change increments the version. If `decide` raises, nothing is
        written and the exception is raised. `decide` must raise if the listing does not exist.
        """
        return await listings.change(tx, self.engine, listing_id, decide, actor)

    async def run_batch(
        self,
        bucket: int,
        account_id: int,
        batch: Batch,
        idempotency: IdempotencyRecord | None = None,
        actor: Actor | None = None,
    ) -> BatchOutcome | str:
        """Run the steps of a batch. Return the result of each, as for a single write made after the steps before it.

        If the idempotency key was already used, do nothing and return the string that `batch.encode` returned then.
        If the batch is rolled back, no idempotency record is stored.

        Before the first step, `batch.require_state` receives the id of the account's last change set, or 0. If it
        raises, nothing is written and the exception is raised. Until the batch ends, no other write adds a change set.

        Raises Problem("idempotency_key_reused") if the key was used for a different request.
        """
        partition = (bucket, account_id)
        try:
            return await self._run_script(
                lambda tx: batches.run(tx, self.engine, partition, batch, idempotency, actor), is_dry_run=batch.dry_run
            )
        except batches.RollbackError as rollback:
            rollback.__traceback__ = None  # it is part of a reference cycle, and its frames hold the listings
            return rollback.outcome

    async def purge_idempotency_records(self, oldest: int, count: int) -> int:
        """Delete at most `count` idempotency records from before `oldest`, a Unix time in seconds.

        Return the number of deleted records.
        """
        return len(await self._write(sql.PURGE_IDEMPOTENCY_RECORDS, oldest, count))

    async def page_listings(self, bucket: int, account_id: int, after_id: int, count: int) -> list[Listing]:
        """Return at most `count` listings of the account with ids above `after_id`, lowest first.

        Deleted listings are included. There are fewer if they would be too large together, but at least one, if any.
        """
        rows = await self._fetch(self.page_listings_statement, bucket, account_id, after_id, count)
        return [build_listing(row) for row in rows]
