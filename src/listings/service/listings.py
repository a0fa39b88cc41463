"""Listings: what sellers do with theirs, and what the operator does with anybody's."""

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from listings.contract.history import OPERATOR, Actor
from listings.contract.listings import (
    AddResult,
    AddStep,
    Batch,
    ChangeStep,
    Decide,
    IdempotencyRecord,
    Step,
    StepResult,
)
from listings.contract.store import Store
from listings.domain import timestamps
from listings.domain.errors import Problem
from listings.domain.model import (
    Account,
    Caller,
    Listing,
    ListingChange,
    ListingCounts,
    ListingQuery,
    NewListing,
    bucket_of,
)

_log = logging.getLogger(__name__)

CLAIM_SECONDS = 24 * 3600


class Page(NamedTuple):
    """Some listings, and the place behind which there are more."""

    listings: list[Listing]
    next_place: tuple[str | int, int] | None = None


class WriteOptions(NamedTuple):
    """On what terms a write is asked for."""

    versions: frozenset[int] | None = None  # the listing must be one of these; None: any
    dry_run: bool = False  # check everything, store nothing
    idempotency_key: str | None = None
    digest: bytes = b""  # SHA-256 of the request that the key stands for


ANY_TERMS = WriteOptions()
Record: TypeAlias = Callable[[Sequence[StepResult]], str]


class Listings:
    """The use cases of listings, over a store and a clock."""

    store: Store
    clock: Callable[[], float]

    # A seller's

    async def list_listings(self, caller: Caller) -> list[Listing]:
        """The caller's active listings, newest first."""
        return await self.store.list_listings(caller.bucket, caller.account_id)

    async def find_listings(self, caller: Caller, query: ListingQuery) -> Page:
        """Those of the caller's listings that a query asks for (decision G17)."""
        if query.limit is None:
            return Page(await self.store.find_listings(caller.bucket, caller.account_id, query))
        one_more = msgspec.structs.replace(query, limit=query.limit + 1)
        found = await self.store.find_listings(caller.bucket, caller.account_id, one_more)
        place = query.place_of(found[query.limit - 1]) if len(found) > query.limit else None
        return Page(found[: query.limit], place)

    async def get_revision(self, caller: Caller) -> int:
        """How often the caller's listings were edited. Read it before the listings that it is to stand for."""
        return await self.store.get_revision(caller.bucket, caller.account_id)

    async def get_settled_revision(self, caller: Caller) -> int:
        """One since which none of the caller's listings has changed, new ones aside."""
        return await self.store.get_settled_revision(caller.bucket, caller.account_id)

    def get_cached_settled_revision(self, caller: Caller) -> int | None:
        """The same, where it is known without a read."""
        return self.store.get_cached_settled_revision(caller.bucket, caller.account_id)

    async def get_listing(self, caller: Caller, listing_id: int) -> Listing:
        """The caller's listing. Raises Problem: listing_not_found (missing or deleted), not_owner."""
        return _own(await self.store.get_listing(listing_id), caller)

    async def get_listing_and_revision(self, caller: Caller, listing_id: int) -> tuple[Listing, int]:
        """The same, and how often the caller's listings had been edited when it was read."""
        listing, revision = await self.store.get_listing_and_revision(listing_id) or (None, 0)
        return _own(listing, caller), revision

    async def find_own_listing(self, caller: Caller, listing_id: int) -> Listing | None:
        """The caller's listing, even deleted; None for a missing one and for another's alike."""
        listing = await self.store.get_listing(listing_id)
        return listing if listing is not None and listing.account_id == caller.account_id else None

    async def create_listing(self, caller: Caller, new: NewListing, terms: WriteOptions = ANY_TERMS) -> AddResult:
        """Store a listing for the caller; a dry run's has the id 0. Raises Problem("idempotency_key_reused")."""
        idempotency = self._claim(terms)
        if not terms.dry_run:
            now = self.clock()
            actor = Actor(caller.key_id, int(now))
            created_at = timestamps.text_of(now)
            return await self.store.add_listing(caller.bucket, caller.account_id, new, created_at, idempotency, actor)
        batch = Batch([AddStep(new, self._today())], atomic=True, dry_run=True, record=str)
        earlier = await self.store.run_batch(caller.bucket, caller.account_id, batch, idempotency)
        return AddResult(int(earlier), replayed=True) if isinstance(earlier, str) else AddResult(0, replayed=False)

    async def update_listing(
        self, caller: Caller, listing_id: int, change: ListingChange | Problem, terms: WriteOptions = ANY_TERMS
    ) -> Listing:
        """Change the given fields of the caller's listing; returns it as it is then.

        A `change` that is a Problem (the body was at fault) is raised after the listing was found to be the
        caller's (decision G21). Raises Problem as `get_listing` does, and precondition_failed.
        """
        decide = self.update_step(caller, listing_id, change, terms).decide
        if isinstance(change, Problem):
            decide(await self.store.get_listing(listing_id))
        return await self._edit(caller, listing_id, decide, terms)

    async def close_listing(self, caller: Caller, listing_id: int, terms: WriteOptions = ANY_TERMS) -> None:
        """Delete the caller's listing softly (decision G11). Raises Problem as `update_listing` does."""
        await self._edit(caller, listing_id, self.close_step(caller, listing_id, terms).decide, terms)

    async def restore_listing(self, caller: Caller, listing_id: int, terms: WriteOptions = ANY_TERMS) -> Listing:
        """Undo the deletion of the caller's listing, which comes back inactive (decision G12).

        One that is not deleted stays as it is. Raises Problem: listing_not_found, not_owner, precondition_failed.
        """
        return await self._edit(caller, listing_id, self.restore_step(caller, listing_id, terms).decide, terms)

    async def run_batch(
        self, caller: Caller, steps: Sequence[Step], record: Record, terms: WriteOptions, *, atomic: bool
    ) -> Sequence[StepResult] | str:
        """Do several writes as one transaction, as `Store.run_batch` does them."""
        batch = Batch(steps, atomic=atomic, dry_run=terms.dry_run, record=record)
        actor = Actor(caller.key_id, int(self.clock()))
        return await self.store.run_batch(caller.bucket, caller.account_id, batch, self._claim(terms), actor)

    def create_step(self, new: NewListing) -> Step:
        """A listing to be created in a batch."""
        return AddStep(new, self._today())

    def update_step(
        self, caller: Caller, listing_id: int, change: ListingChange | Problem, terms: WriteOptions = ANY_TERMS
    ) -> ChangeStep:
        """A listing of the caller's to be changed."""
        now = self._today()

        def decide(listing: Listing | None) -> ListingChange:
            own = _own(listing, caller)
            if isinstance(change, Problem):
                raise change
            return difference(_require_version(own, terms), change, now)

        return ChangeStep(listing_id, decide)

    def close_step(self, caller: Caller, listing_id: int, terms: WriteOptions = ANY_TERMS) -> ChangeStep:
        """A listing of the caller's to be deleted."""
        moment = self.clock()

        def decide(listing: Listing | None) -> ListingChange:
            deletion: ListingChange = {"is_active": False, "deleted_at": int(moment)}
            own = _require_version(_own(listing, caller), terms)
            return difference(own, deletion, timestamps.text_of(moment))

        return ChangeStep(listing_id, decide)

    def restore_step(self, caller: Caller, listing_id: int, terms: WriteOptions = ANY_TERMS) -> ChangeStep:
        """A deleted listing of the caller's to come back."""
        now = self._today()

        def decide(listing: Listing | None) -> ListingChange:
            owned = _require_version(_owned(listing, caller), terms)
            return difference(owned, {"deleted_at": None}, now)

        return ChangeStep(listing_id, decide)

    async def _edit(self, caller: Caller, listing_id: int, decide: Decide, terms: WriteOptions) -> Listing:
        if not terms.dry_run:
            return await self.store.change_listing(listing_id, decide, Actor(caller.key_id, int(self.clock())))
        listing = await self.store.get_listing(listing_id)
        decide(listing)
        return _present(listing, listing_id)

    def _claim(self, terms: WriteOptions) -> IdempotencyRecord | None:
        if terms.idempotency_key is None:
            return None
        now = int(self.clock())
        return IdempotencyRecord(terms.idempotency_key, terms.digest, now, now - CLAIM_SECONDS + 1)

    def _today(self) -> str:
        return timestamps.text_of(self.clock())

    # Of any account, by the operator

    async def latest_listings(self, account: Account, count: int) -> list[Listing]:
        """An account's newest listings, at most `count`, whatever their state."""
        return await self.store.find_listings(
            bucket_of(account.id), account.id, ListingQuery(status="all", limit=count)
        )

    async def count_listings(self, account: Account) -> ListingCounts:
        """How many listings the account has, by their state."""
        return await self.store.count_listings(bucket_of(account.id), account.id)

    async def find_listing(self, listing_id: int) -> Listing:
        """The listing of any account, deleted ones included. Raises Problem("listing_not_found")."""
        return _present(await self.store.get_listing(listing_id), listing_id)

    async def close_for_owner(self, listing_id: int) -> Listing:
        """Delete a listing as its owner would; one that is deleted stays as it is."""
        moment = int(self.clock())

        def decide(listing: Listing | None) -> ListingChange:
            present = _present(listing, listing_id)
            if present.deleted_at is not None:
                return {}
            return difference(present, {"is_active": False, "deleted_at": moment}, timestamps.text_of(moment))

        closed = await self.store.change_listing(listing_id, decide, Actor(OPERATOR, moment))
        _log.info("Listing %d of account %d is closed for its owner", closed.id, closed.account_id)
        return closed

    async def reopen_for_owner(self, listing_id: int, *, active: bool) -> Listing:
        """Undo a deletion. The listing comes back inactive (decision G12), or active where that is asked for.

        Raises Problem: listing_not_found, invalid_request (it is not deleted, so that its owner decides what it is).
        """
        moment = int(self.clock())
        now = timestamps.text_of(moment)

        def decide(listing: Listing | None) -> ListingChange:
            present = _present(listing, listing_id)
            if present.deleted_at is None:
                raise Problem("invalid_request", f"Listing {listing_id} is not deleted")
            change: ListingChange = {"deleted_at": None, "is_active": active or present.is_active}
            return difference(present, change, now)

        opened = await self.store.change_listing(listing_id, decide, Actor(OPERATOR, moment))
        _log.info("Listing %d of account %d is reopened for its owner", opened.id, opened.account_id)
        return opened


def _own(listing: Listing | None, caller: Caller) -> Listing:
    """Decisions G11 and G21: missing, then foreign, then deleted."""
    owned = _owned(listing, caller)
    if owned.deleted_at is not None:
        raise Problem("listing_not_found", "Listing not found")
    return owned


def _owned(listing: Listing | None, caller: Caller) -> Listing:
    """The caller's, even deleted."""
    if listing is None:
        raise Problem("listing_not_found", "Listing not found")
    if listing.account_id != caller.account_id:
        raise Problem("not_owner", "This listing belongs to another account")
    return listing


def _require_version(listing: Listing, terms: WriteOptions) -> Listing:
    if terms.versions is not None and listing.version not in terms.versions:
        raise Problem("precondition_failed", "The listing has changed: read it again, and send its new ETag")
    return listing


def difference(listing: Listing, change: ListingChange, now: str) -> ListingChange:
    """What of the change differs from the listing, with a new updated_at that never goes back (decision G7)."""
    changed = {name: value for name, value in change.items() if getattr(listing, name) != value}
    if changed:
        changed["updated_at"] = max(now, listing.updated_at)
    return changed


def _present(listing: Listing | None, listing_id: int) -> Listing:
    if listing is None:
        raise Problem("listing_not_found", f"There is no listing with the id {listing_id}")
    return listing
