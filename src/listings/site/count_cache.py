"""How many listings an account has of each state, counted anew only after an edit: of many, that takes a while."""

from listings.domain.model import ListingCounts
from listings.service import Member, Service

_MOST_ACCOUNTS = 1_000


class CountCache:
    """Counts by account, each with the revision that it is of."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[int, ListingCounts]] = {}

    async def of(self, service: Service, member: Member) -> ListingCounts:
        """Those of the member's account."""
        revision = await service.get_revision(member.caller)
        kept = self._kept.pop(member.account.id, None)
        if kept is None or kept[0] != revision:
            kept = (revision, await service.count_listings(member.account))
        self._kept[member.account.id] = kept
        if len(self._kept) > _MOST_ACCOUNTS:
            del self._kept[next(iter(self._kept))]  # the one that was asked for least lately
        return kept[1]
