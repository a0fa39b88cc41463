"""The operator's use cases of listings."""

import logging
from collections.abc import Callable

import msgspec

from listings.domain import timestamps
from listings.domain.accounts import require_not_erased
from listings.domain.audience import Takedown
from listings.domain.errors import Problem
from listings.domain.history import OPERATOR, Actor
from listings.domain.mail import MailKind, NewMail
from listings.domain.model import Account, Listing, ListingChange, ListingQuery, bucket_of
from listings.domain.pictures import find_name
from listings.queues import FairQueue
from listings.service.accounts import validate_reason
from listings.service.listings import find_of_any_size
from listings.service.listings.steps import build_deletion, find_changes
from listings.service.mail.composer import MailComposer
from listings.service.mail.messages import shorten_title
from listings.store.store import Store

_MAX_LISTED = 1_000

_log = logging.getLogger(__name__)


class Moderation:
    """The operator's use cases of listings of any account."""

    def __init__(self, store: Store, clock: Callable[[], float], composer: MailComposer) -> None:
        self._store = store
        self._clock = clock
        self._composer = composer

    async def list_latest(self, account: Account, count: int) -> list[Listing]:
        """Return at most `count` of an account's newest listings, in any state.

        The listings of a list that is too large for one read have no content.
        """
        query = ListingQuery(status="all", limit=count)
        found = await find_of_any_size(self._store, FairQueue(), bucket_of(account.id), account.id, query)
        return found.listings

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

        Raises Problem: listing_not_found, account_disabled (the account is erased), account_full, external_id_taken,
        invalid_request (it is not deleted, so its owner decides on its state).
        """
        listing = await self._store.get_listing(listing_id)
        owner = await self._store.get_account(listing.account_id) if listing is not None else None
        if owner is not None:
            require_not_erased(owner)
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

    async def take_down(self, listing_id: int, reason: str, operator: str) -> Takedown:
        """Hide a listing from the public until an operator lifts this. For its owner, it stays as it is.

        Its uploaded pictures are hidden, too, except those that another active listing of the account shows, which is
        not taken down. `operator` is the operator's name in the log. The owner gets a mail with the reason.

        Raises Problem: listing_not_found, invalid_request.
        """
        reason = validate_reason(reason)
        if not reason:
            raise Problem("invalid_request", "Enter a reason, which the seller reads")
        listing, now = await self.get(listing_id), int(self._clock())
        takedown = Takedown(listing.id, listing.account_id, reason, operator, now)
        mail = await self._compose("listing_taken_down", listing, reason=reason)
        pictures = await self._find_own_pictures(listing)
        if not await self._store.take_down(takedown, pictures, Actor(OPERATOR, now), mail):
            raise Problem("invalid_request", f"Listing {listing_id} is already taken down")
        _log.info("Took down listing %d of account %d", listing.id, listing.account_id)
        return takedown

    async def lift(self, listing_id: int) -> Takedown:
        """Show a listing that was taken down to the public again. Its owner gets a mail.

        Its pictures are shown again, except those that another listing of the account shows or hides, which is taken
        down. Raises Problem("invalid_request") if it is not taken down. Its row may have been removed meanwhile.
        """
        takedown = await self._store.get_takedown(listing_id)
        listing, mail = await self._store.get_listing(listing_id), None
        if listing is not None:
            mail = await self._compose("listing_lifted", listing)
        actor, not_found = Actor(OPERATOR, int(self._clock())), f"Listing {listing_id} is not taken down"
        if takedown is None:
            raise Problem("invalid_request", not_found)
        kept = await self._find_kept_pictures(takedown)
        if not await self._store.lift_takedown(takedown, kept, actor, mail):
            raise Problem("invalid_request", not_found)
        _log.info("Lifted the takedown of listing %d of account %d", listing_id, takedown.account_id)
        return takedown

    async def find_takedown(self, listing_id: int) -> Takedown | None:
        """Return why and since when a listing is taken down, or None."""
        return await self._store.get_takedown(listing_id)

    async def list_takedowns(self) -> list[Takedown]:
        """Return the latest takedowns, newest first."""
        return await self._store.list_takedowns(_MAX_LISTED)

    async def list_takedowns_of(self, account: Account) -> list[Takedown]:
        return await self._store.list_takedowns_of(account.id)

    async def _compose(self, kind: MailKind, listing: Listing, **detail: str) -> NewMail | None:
        account = await self._store.get_account(listing.account_id)
        if account is None:
            return None
        title = shorten_title(listing.title)
        return self._composer.compose(kind, account, listing=str(listing.id), title=title, **detail)

    async def _find_own_pictures(self, listing: Listing) -> list[str]:
        urls, account_id = msgspec.json.decode(listing.images, type=list[str]), listing.account_id
        names = [name for url in urls if (name := find_name(url)) is not None]
        if not names:
            return []
        hidden = {listing.id, *(one.listing_id for one in await self._store.list_takedowns_of(account_id))}
        _, used = await self._store.find_used_pictures(bucket_of(account_id), account_id, only_active=True)
        return [name for name in names if hidden.issuperset(used.get(name, ()))]  # no other public listing shows them

    async def _find_kept_pictures(self, lifted: Takedown) -> dict[str, int]:  # with another listing that shows them
        account_id = lifted.account_id
        others = {one.listing_id for one in await self._store.list_takedowns_of(account_id)} - {lifted.listing_id}
        if not others:
            return {}
        _, used = await self._store.find_used_pictures(bucket_of(account_id), account_id)
        return {name: abs(one) for name, ids in used.items() for one in ids if abs(one) in others}


def _require_listing(listing: Listing | None, listing_id: int) -> Listing:
    if listing is None:
        raise Problem("listing_not_found", f"There is no listing with the id {listing_id}")
    return listing
