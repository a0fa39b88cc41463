"""Cache of each account's listing counts, because counting many listings takes a while."""

from listings.domain.model import ListingCounts
from listings.service import Services
from listings.service.members.sessions import Member

_MAX_ACCOUNTS = 1_000


class ListingCountCache:
    """Listing counts by account. Each entry is valid for one revision of the account."""

    def __init__(self) -> None:
        self._counts: dict[int, tuple[int, ListingCounts]] = {}

    async def get(self, services: Services, member: Member) -> ListingCounts:
        """Return the listing counts of the member's account."""
        revision = (await services.listings.get_revisions(member.caller)).revision
        cached = self._counts.pop(member.account.id, None)
        if cached is None or cached[0] != revision:
            cached = (revision, await services.listings.count(member.account))
        self._counts[member.account.id] = cached
        if len(self._counts) > _MAX_ACCOUNTS:
            del self._counts[next(iter(self._counts))]  # the least recently used entry
        return cached[1]
