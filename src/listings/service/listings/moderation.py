"""The operator's use cases of listings."""

import logging
from collections.abc import Callable

from listings.contract.history import OPERATOR, Actor
from listings.contract.listings import ListingStore
from listings.domain import timestamps
from listings.domain.errors import Problem
from listings.domain.model import Account, Listing, ListingChange, ListingQuery, bucket_of
from listings.service.listings import find_of_any_size
from listings.service.listings.steps import build_deletion, find_changes

_log = logging.getLogger(__name__)


class Moderation:
    """The operator's use cases of listings of any account."""

    def __init__(self, store: ListingStore, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock

    async def list_latest(self, account: Account, count: int) -> list[Listing]:
        """Return at most `count` of an account's newest listings, in any state.

        The listings of a list that is too large for one read have no content.
        """
        query = ListingQuery(status="all", limit=count)
        return (await find_of_any_size(self._store, bucket_of(account.id), account.id, query)).listings

    async def get(self, listing_id: int) -> Listing:
        """Return a listing of any account, even if deleted. Raises Problem("listing_not_found")."""
        return _require_listing(await self._store.get_listing(listing_id), listing_id)

    async def delete(self, listing_id: int) -> Listing:
        """Delete a listing as the operator. If it is already deleted, return it as it is.

        Raises Problem("listing_not_found").
        """
        found = await self.get(listing_id)
        if found.deleted_at is not None:
            return found
        now = int(self._clock())

        def decide(listing: Listing | None) -> ListingChange:
            return build_deletion(_require_listing(listing, listing_id), now)

        deleted = await self._store.change_listing(listing_id, decide, Actor(OPERATOR, now))
        _log.info("Deleted listing %d of account %d", deleted.id, deleted.account_id)
        return deleted

    async def restore(self, listing_id: int, *, active: bool) -> Listing:
        """Restore a deleted listing as the operator, inactive (decision G12) or active.

        Raises Problem: listing_not_found, account_full, external_id_taken, invalid_request (it is not deleted, so its
        owner decides on its state).
        """
        now = int(self._clock())
        updated_at = timestamps.format_timestamp(now)

        def decide(listing: Listing | None) -> ListingChange:
            present = _require_listing(listing, listing_id)
            if present.deleted_at is None:
                raise Problem("invalid_request", f"Listing {listing_id} is not deleted")
            change: ListingChange = {"deleted_at": None, "is_active": active or present.is_active}
            return find_changes(present, change, updated_at)

        restored = await self._store.change_listing(listing_id, decide, Actor(OPERATOR, now))
        _log.info("Restored listing %d of account %d", restored.id, restored.account_id)
        return restored


def _require_listing(listing: Listing | None, listing_id: int) -> Listing:
    if listing is None:
        raise Problem("listing_not_found", f"There is no listing with the id {listing_id}")
    return listing
