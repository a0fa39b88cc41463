"""The use cases of listings for their sellers."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple, TypeAlias, cast

import msgspec

from listings.domain import timestamps, tokenizer
from listings.domain.account_limits import AccountLimits, AccountSize
from listings.domain.errors import Problem, Unavailable
from listings.domain.history import Actor
from listings.domain.listings import (
    AddResult,
    AddStep,
    Batch,
    BatchOutcome,
    ChangeStep,
    IdempotencyRecord,
    LargeListError,
    ListResult,
    ListStream,
    Pieces,
    Preview,
    Step,
)
from listings.domain.model import (
    Account,
    Caller,
    Listing,
    ListingChange,
    ListingCounts,
    ListingQuery,
    NewListing,
    Revisions,
    bucket_of,
)
from listings.queues import FairQueue
from listings.service.listings import steps
from listings.service.listings.steps import (
    DEFAULT_WRITE_OPTIONS,
    IDEMPOTENCY_SECONDS,
    Steps,
    WriteOptions,
    build_idempotency_record,
)
from listings.store.store import Store

PURGE_BATCH_SIZE = 1_000


class Page(NamedTuple):
    """A page of listings, the cursor of the next page, and `total` and `revisions` as in `ListResult`."""

    listings: list[Listing]
    next_cursor: tuple[str | int, int] | None = None
    total: int | None = None
    revisions: Revisions | None = None


class LargePage:
    """A page of listings that is read in pieces. `next_cursor` is set when all of them were read."""

    def __init__(self, found: ListStream, query: ListingQuery) -> None:
        """`found` includes the first listing of the next page, if there is one."""
        self._pieces, self.total, self.revisions = found
        self._query = query
        self.next_cursor: tuple[str | int, int] | None = None

    async def read(self) -> Pieces:
        """Yield the listings."""
        count, cursor, limit = 0, None, self._query.limit
        async for listings in self._pieces:
            kept = listings if limit is None else listings[: limit - count]
            if kept:
                yield kept
                count, cursor = count + len(kept), self._query.cursor_of(kept[-1])
            if len(kept) < len(listings):
                self.next_cursor = cursor
                return


EncodeOutcome: TypeAlias = Callable[[BatchOutcome], str]
"""Encodes the outcome of a batch, to be stored for a repeated request."""


class Listings:
    """Reads and writes listings for their sellers."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self.steps = Steps(store, clock)
        self._store = store
        self._clock = clock
        self._large_pages = FairQueue(slots=2)  # each needs a connection, which takes about 1 MiB

    async def list_active(self, caller: Caller) -> ListResult:
        """Return the caller's active listings, newest first. Raises LargeListError."""
        return await self._store.list_listings(caller.bucket, caller.account_id)

    async def find(self, caller: Caller, query: ListingQuery) -> Page:
        """Return the caller's listings that match a query (decision G17). Raises LargeListError."""
        return _build_page(await self._store.find_listings(caller.bucket, caller.account_id, _add_one(query)), query)

    async def find_by_external_id(self, caller: Caller, external_id: str) -> Listing | None:
        """Return the caller's listing with an external id, unless it is deleted."""
        return await self._store.find_by_external_id(caller.bucket, caller.account_id, external_id)

    async def find_unpriced_last(self, caller: Caller, query: ListingQuery, limit: int) -> Page:
        """Return a page of the caller's listings by ascending price, those without a price last (decision G5).

        A price of 0 means that none is stated; a cursor with it continues among those listings. The listings of a large
        page have no content.
        """
        is_unpriced, lowest = query.after is not None and query.after[0] == 0, query.price_min or 0
        found: list[Listing] = []
        if not is_unpriced:
            priced = msgspec.structs.replace(query, price_min=max(lowest, 1), limit=limit + 1)
            found = (await self._find_of_any_size(caller, priced)).listings
        if len(found) <= limit and lowest <= 0:
            after, missing = query.after if is_unpriced else None, limit + 1 - len(found)
            unpriced = msgspec.structs.replace(query, price_max=0, after=after, limit=missing)
            found = found + (await self._find_of_any_size(caller, unpriced)).listings
        return Page(found[:limit], query.cursor_of(found[limit - 1]) if len(found) > limit else None)

    async def find_by_title(self, caller: Caller, query: ListingQuery, limit: int) -> Page:
        """Return a page of the caller's listings by title, regardless of case and accents. It reads all that match."""
        every = msgspec.structs.replace(query, sort="id", after=None, limit=None)
        found = (await self._find_of_any_size(caller, every)).listings
        after = _title_key(*query.after) if query.after is not None else None
        keys = sorted((_title_key(it.title, it.id), number) for number, it in enumerate(found))
        shown = [found[number] for key, number in keys if after is None or key > after][: limit + 1]
        return Page(shown[:limit], (shown[limit - 1].title, shown[limit - 1].id) if len(shown) > limit else None)

    async def find_page_of_any_size(self, caller: Caller, query: ListingQuery) -> Page:
        """Like `find`, for a page of any size. The listings of a large page have no content."""
        return _build_page(await self._find_of_any_size(caller, _add_one(query)), query)

    async def find_titles(self, caller: Caller, ids: Iterable[int]) -> Mapping[int, str]:
        """Map the given ids to titles of the caller's listings, including deleted ones."""
        wanted = tuple(sorted(set(ids)))
        if not wanted:
            return {}
        page = await self.find_page_of_any_size(caller, ListingQuery(status="all", ids=wanted, limit=len(wanted)))
        return {listing.id: listing.title for listing in page.listings}

    async def _find_of_any_size(self, caller: Caller, query: ListingQuery) -> ListResult:
        return await find_of_any_size(self._store, self._large_pages, caller.bucket, caller.account_id, query)

    @asynccontextmanager
    async def read(self, caller: Caller, query: ListingQuery) -> AsyncIterator[LargePage]:
        """Read a list of any size from a snapshot that the context keeps open."""
        async with self._store.read_listings(caller.bucket, caller.account_id, _add_one(query)) as found:
            yield LargePage(found, query)

    async def get_revisions(self, caller: Caller) -> Revisions:
        """Return the revisions of the caller's listings. Read them before the listings that they describe."""
        return await self._store.get_revisions(caller.bucket, caller.account_id)

    async def get(self, caller: Caller, listing_id: int) -> Listing:
        """Return the caller's listing. Raises Problem: listing_not_found (missing or deleted), not_owner."""
        return steps.require_own_undeleted(await self._store.get_listing(listing_id), caller)

    async def require_own(self, caller: Caller, listing_id: int) -> None:
        """Check that the caller's listing exists, deleted or not. Raises Problem: listing_not_found, not_owner."""
        steps.require_own(await self._store.get_listing(listing_id), caller)

    async def get_with_revision(self, caller: Caller, listing_id: int) -> tuple[Listing, int]:
        """Like `get`, with the revision of the caller's listings at the time of the read."""
        listing, revision = await self._store.get_listing_and_revision(listing_id) or (None, 0)
        return steps.require_own_undeleted(listing, caller), revision

    async def find_own(self, caller: Caller, listing_id: int) -> Listing | None:
        """Return the caller's listing, even if deleted, or None if it is missing or has another owner."""
        listing = await self._store.get_listing(listing_id)
        return listing if listing is not None and listing.account_id == caller.account_id else None

    async def create(
        self,
        caller: Caller,
        new: NewListing,
        options: WriteOptions = DEFAULT_WRITE_OPTIONS,
        require_room: Callable[[AccountSize], None] | None = None,
    ) -> AddResult:
        """Create a listing for the caller. A dry run returns the id 0, and does not call `require_room` (`AddStep`).

        If an earlier request had the same idempotency key, the id of its listing is returned instead.

        Raises Problem: account_full, external_id_taken, idempotency_key_reused.
        """
        now = self._clock()
        record = build_idempotency_record(options, int(now))
        if not options.dry_run:
            actor = Actor(caller.key_id, int(now), options.group)
            step = AddStep(new, timestamps.format_timestamp(now), require_room)
            return await self._store.add_listing(caller.bucket, caller.account_id, step, record, actor)
        result = await self._dry_run(caller, self.steps.create(new), record)
        return AddResult(int(result), replayed=True) if isinstance(result, str) else AddResult(0, replayed=False)

    async def update(
        self,
        caller: Caller,
        listing_id: int,
        change: ListingChange | Problem,
        options: WriteOptions = DEFAULT_WRITE_OPTIONS,
    ) -> Listing:
        """Update the given fields of the caller's listing and return it. A dry run returns it without its content.

        If the body was invalid, `change` is its Problem. It is raised after the ownership check (decision G21).

        Raises Problem: those of `get`, precondition_failed, account_full, external_id_taken.
        """
        step = self.steps.update(caller, listing_id, change, options)
        if isinstance(change, Problem):
            step.decide(await self._store.get_listing(listing_id))  # always raises
        return await self._edit(caller, step, options)

    async def delete(self, caller: Caller, listing_id: int, options: WriteOptions = DEFAULT_WRITE_OPTIONS) -> None:
        """Soft-delete the caller's listing (decision G11). Raises Problem like `get`, and precondition_failed."""
        await self._edit(caller, self.steps.delete(caller, listing_id, options), options)

    async def restore(self, caller: Caller, listing_id: int, options: WriteOptions = DEFAULT_WRITE_OPTIONS) -> Listing:
        """Restore the caller's deleted listing as inactive (decision G12). Does nothing if it is not deleted.

        Raises Problem: listing_not_found, not_owner, precondition_failed, account_full, external_id_taken.
        """
        return await self._edit(caller, self.steps.restore(caller, listing_id, options), options)

    async def run_batch(
        self, caller: Caller, steps: Sequence[Step], encode: EncodeOutcome, options: WriteOptions, *, atomic: bool
    ) -> BatchOutcome | str:
        """Run several writes in one transaction; see `Store.run_batch`.

        Raises Problem: idempotency_key_reused, precondition_failed.
        """
        require_state = options.state.require if options.state is not None else None
        batch = Batch(steps, atomic=atomic, dry_run=options.dry_run, encode=encode, require_state=require_state)
        actor = Actor(caller.key_id, int(self._clock()), options.group)
        record = build_idempotency_record(options, actor.moment)
        return await self._store.run_batch(caller.bucket, caller.account_id, batch, record, actor)

    async def _edit(self, caller: Caller, step: ChangeStep, options: WriteOptions) -> Listing:
        if not options.dry_run:
            actor = Actor(caller.key_id, int(self._clock()), options.group)
            return await self._store.change_listing(step.listing_id, step.decide, actor)
        return cast("Listing", await self._dry_run(caller, step))

    async def _dry_run(
        self, caller: Caller, step: Step, record: IdempotencyRecord | None = None
    ) -> int | Listing | str:
        batch = Batch([step], atomic=True, dry_run=True, encode=str)
        outcome = await self._store.run_batch(caller.bucket, caller.account_id, batch, record)
        result = outcome if isinstance(outcome, str) else outcome.results[0]  # a string is stored by an earlier write
        if isinstance(result, Problem):
            raise result
        return result.result if isinstance(result, Preview) else result

    async def get_limits(self, account: Account) -> AccountLimits:
        return await self._store.get_account_limits(bucket_of(account.id), account.id)

    async def count(self, account: Account) -> ListingCounts:
        return await self._store.count_listings(bucket_of(account.id), account.id)

    async def measure(self, caller: Caller) -> tuple[ListingCounts, AccountLimits]:
        """Return the size of the caller's account, and how large it can be."""
        partition = (caller.bucket, caller.account_id)
        return await self._store.count_listings(*partition), await self._store.get_account_limits(*partition)

    async def purge_idempotency_records(self) -> None:
        """Delete the idempotency records older than a day (decision G36)."""
        oldest = int(self._clock()) - IDEMPOTENCY_SECONDS + 1
        with suppress(Unavailable):
            while await self._store.purge_idempotency_records(oldest, PURGE_BATCH_SIZE) == PURGE_BATCH_SIZE:
                pass  # other writes run between the batches


def _title_key(title: str | int, listing_id: int) -> tuple[str, str, int]:
    return tokenizer.fold(str(title)), str(title), listing_id


async def find_of_any_size(
    store: Store, queue: FairQueue, bucket: int, account_id: int, query: ListingQuery
) -> ListResult:
    """Find listings like `Store.find_listings`.

    If the result is too large, the read waits in the queue, and no listing has content.
    """
    with suppress(LargeListError):  # whose traceback has the listings: it must not wait in the queue
        return await store.find_listings(bucket, account_id, query)
    async with queue.acquire(account_id), store.read_listings(bucket, account_id, query) as found:
        listings: list[Listing] = []
        async for piece in found.pieces:
            listings += [msgspec.structs.replace(one, content="") for one in piece]
            if query.limit is not None and len(listings) >= query.limit:  # a search for words may ignore the limit
                break
        return ListResult(listings[: query.limit], found.total)


def _add_one(query: ListingQuery) -> ListingQuery:
    # The first listing of the next page is found, too.
    return query if query.limit is None else msgspec.structs.replace(query, limit=query.limit + 1)


def _build_page(found: ListResult, query: ListingQuery) -> Page:
    if query.limit is None or len(found.listings) <= query.limit:
        return Page(found.listings, None, found.total, found.revisions)
    cursor = query.cursor_of(found.listings[query.limit - 1])
    return Page(found.listings[: query.limit], cursor, found.total, found.revisions)
