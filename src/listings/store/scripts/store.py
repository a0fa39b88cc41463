"""The methods of `Store` that every engine implements with the same statements and scripts."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from secrets import token_bytes

import msgspec
from msgspec.structs import astuple

from listings.contract.accounts import AccountChange, DecideRotation, NewKey, PlanRequest
from listings.contract.changes import ChangePage, ChangePosition, EditState, ListingChangePage
from listings.contract.history import Actor
from listings.contract.imports import ImportBatch, ImportKey, ImportProgress, RowOutcome
from listings.contract.listings import Batch, BatchOutcome, Decide, IdempotencyRecord
from listings.contract.mail import NewMail
from listings.contract.market import WordCount
from listings.domain.account_limits import AccountLimits
from listings.domain.model import (
    Account,
    ApiKey,
    Listing,
    ListingCounts,
    MarketEntry,
    MarketFacets,
    SitemapEntry,
    bucket_of,
)
from listings.store import change_reads, change_sql, member_sql, sql
from listings.store.inspection import LIST_PLAN_REQUESTS
from listings.store.mapping import build_listing
from listings.store.market_entries import (
    COUNT_SELLER,
    FACET_KINDS,
    GET_INDEX_VERSION,
    INDEX_VERSION,
    LIST_FACETS,
    PAGE_SELLER,
    parse_index_version,
)
from listings.store.scripts import accounts, changes, imports, keys, listings
from listings.store.scripts import views as view_scripts
from listings.store.scripts.engine import Engine
from listings.store.scripts.script import ScriptedStore, run_query


class ScriptedAccountStore(ScriptedStore):
    """Implements `AccountStore` and `KeyStore`, except `find_caller`."""

    async def add_account(self, name: str, email: str, plan_expires_at: int | None, created_at: int) -> Account | None:
        return await self._run_script(lambda: accounts.add(name, email, plan_expires_at, created_at))

    async def get_account(self, account_id: int) -> Account | None:
        rows = await self._fetch(sql.GET_ACCOUNT, account_id)
        return Account(*rows[0]) if rows else None

    async def find_account(self, email: str) -> Account | None:
        rows = await self._fetch(sql.FIND_ACCOUNT, email)
        return Account(*rows[0]) if rows else None

    async def page_accounts(self, after: int, count: int) -> list[Account]:
        return [Account(*row) for row in await self._fetch(sql.PAGE_ACCOUNTS, after, count)]

    async def change_account(
        self, account_id: int, decide: Callable[[Account], AccountChange], actor: Actor | None = None
    ) -> Account | None:
        return await self._run_script(lambda: accounts.change(account_id, decide, actor), changes_callers=True)

    async def add_plan_request(self, account_id: int, requested_at: int, mail: NewMail | None = None) -> bool:
        return await self._run_script(lambda: accounts.add_plan_request(account_id, requested_at, mail))

    async def get_plan_request(self, account_id: int) -> int | None:
        rows = await self._fetch(member_sql.GET_PLAN_REQUEST, account_id)
        return int(rows[0][0]) if rows else None

    async def delete_plan_request(self, account_id: int) -> None:
        await self._run_script(lambda: run_query(member_sql.DELETE_PLAN_REQUEST, account_id))

    async def list_plan_requests(self) -> list[PlanRequest]:
        return [PlanRequest(Account(*row[1:]), row[0]) for row in await self._fetch(LIST_PLAN_REQUESTS)]

    async def add_key(self, new: NewKey, actor: Actor | None = None, mail: NewMail | None = None) -> ApiKey | None:
        return await self._run_script(lambda: keys.add(new, actor, mail))

    async def list_keys(self, account_id: int) -> list[ApiKey]:
        return [ApiKey(*row) for row in await self._fetch(sql.LIST_KEYS, account_id)]

    async def list_successors(self, account_id: int) -> dict[int, int]:
        rows = await self._fetch(sql.LIST_SUCCESSORS, bucket_of(account_id), account_id)
        return {int(old): int(new) for old, new in rows}

    async def rotate_key(self, key_id: int, decide: DecideRotation, actor: Actor | None = None) -> ApiKey | None:
        return await self._run_script(lambda: keys.rotate(key_id, decide, actor), changes_callers=True)

    async def record_key_uses(self, uses: Mapping[int, int]) -> None:
        await self._run_script(lambda: keys.record_uses(uses))

    async def revoke_key(self, key_id: int, revoked_at: int, actor: Actor | None = None) -> ApiKey | None:
        return await self._run_script(lambda: keys.revoke(key_id, revoked_at, actor), changes_callers=True)


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
    """Implements the methods of listings, imports and the market that are the same on every engine."""

    engine: Engine
    sitemap_statement: str
    entries_statement: str
    spellings_statement: str
    _is_index_current = False
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

    async def change_listing(self, listing_id: int, decide: Decide, actor: Actor | None = None) -> Listing:
        return await self._run_script(lambda: listings.change(self.engine, listing_id, decide, actor))

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
            return await self._run_script(lambda: listings.run(self.engine, partition, batch, idempotency, actor))
        except listings.RollbackError as rollback:
            return rollback.outcome

    async def purge_idempotency_records(self, oldest: int) -> None:
        await self._run_script(lambda: run_query(sql.PURGE_IDEMPOTENCY_RECORDS, oldest))

    # The market

    async def _get_index_version(self) -> int:
        """Return the version of the market's index. The current one is cached, because it never changes back."""
        if not self._is_index_current:
            version = parse_index_version(await self._fetch(GET_INDEX_VERSION))
            self._is_index_current = version == INDEX_VERSION
            return version
        return INDEX_VERSION

    async def get_market_entries(self, serials: Sequence[int]) -> list[MarketEntry]:
        values = msgspec.json.encode(serials).decode()
        return [MarketEntry(*row) for row in await self._fetch(self.entries_statement, values)]

    async def find_spellings(self, skeletons: Sequence[str], count: int) -> list[WordCount]:
        values = msgspec.json.encode(skeletons).decode()
        return [WordCount(*row) for row in await self._fetch(self.spellings_statement, values, count)]

    async def list_market_facets(self, count: int) -> MarketFacets:
        category, region = [dict(await self._fetch(LIST_FACETS, kind, count)) for kind in FACET_KINDS]
        return MarketFacets(region, category)

    async def page_seller(self, account_id: int, before: int, count: int) -> list[MarketEntry]:
        return [MarketEntry(*row) for row in await self._fetch(PAGE_SELLER, account_id, before, count)]

    async def count_seller(self, account_id: int, limit: int) -> int:
        return int((await self._fetch(COUNT_SELLER, account_id, limit))[0][0])

    async def page_sitemap(self, after: int, count: int) -> list[SitemapEntry]:
        return [SitemapEntry(*row) for row in await self._fetch(self.sitemap_statement, after, count)]

    # Views

    async def get_view_salt(self, day: int) -> bytes:
        rows = await self._fetch(sql.GET_VIEW_SALT, day)
        return (
            bytes(rows[0][0]) if rows else await self._run_script(lambda: view_scripts.draw_salt(day, token_bytes(32)))
        )

    async def record_views(self, day: int, views: Mapping[int, Collection[bytes]]) -> None:
        await self._run_script(lambda: view_scripts.record(day, views))

    async def purge_views(self, oldest: int, count: int) -> int:
        return await self._run_script(lambda: view_scripts.purge(oldest, count))

    # Export and import

    async def page_listings(self, bucket: int, account_id: int, after_id: int, count: int) -> list[Listing]:
        rows = await self._fetch(self.page_listings_statement, bucket, account_id, after_id, count)
        return [build_listing(row) for row in rows]

    async def find_import(self, key: ImportKey) -> ImportProgress | None:
        return imports.parse_progress(await self._fetch(sql.GET_IMPORT, *astuple(key)))

    async def begin_import(
        self, key: ImportKey, found: ImportProgress | None, started_at: int, last_id: int
    ) -> ImportProgress | None:
        return await self._run_script(lambda: imports.begin(self.engine, key, found, started_at, last_id))

    async def import_listings(
        self, key: ImportKey, batch: ImportBatch, actor: Actor | None = None
    ) -> list[RowOutcome] | None:
        return await self._run_script(lambda: imports.advance(self.engine, key, batch, actor))
