"""Transactions that count views of listings. A visitor counts once per day and listing."""

from collections import Counter
from collections.abc import Collection, Mapping
from secrets import token_bytes

from listings.domain.account_limits import NO_GROWTH
from listings.domain.model import bucket_of
from listings.domain.timestamps import DAY_SECONDS, format_timestamp
from listings.store import sql
from listings.store.audience import COUNT_ON_DAY
from listings.store.mapping import Partition
from listings.store.scripts.script import ScriptedStore, Transaction, transaction


class ScriptedViewStore(ScriptedStore):
    """Searches and indexes the public market and large accounts."""

    async def get_view_salt(self, day: int) -> bytes:
        """Return the salt of a day (days since 1970): 32 random bytes, the same in all processes."""
        return await self._find(bytes, sql.GET_VIEW_SALT, day) or await self._draw_salt(day)

    @transaction
    async def _draw_salt(self, tx: Transaction, day: int) -> bytes:
        await tx.fetch(sql.ADD_VIEW_SALT, (day, token_bytes(32)))
        return await tx.get(bytes, sql.GET_VIEW_SALT, (day,))

    @transaction
    async def record_views(self, tx: Transaction, day: int, views: Mapping[int, Collection[bytes]]) -> None:
        """Raise the view_count of each listing by the number of its visitors (16 bytes each) who are new on that day.

        Listings that are missing, inactive or deleted are ignored. version and updated_at don't change, last_viewed_on
        is the day. An account's revision is raised by one if any of its counts changes.
        """
        date = format_timestamp(day * DAY_SECONDS).partition(" ")[0]
        accounts: Counter[Partition] = Counter()  # new views; the revision of each is raised once
        for bucket, listing_id in sorted((bucket_of(listing_id), listing_id) for listing_id in views):
            for (account_id,) in await tx.fetch(sql.GET_VIEWED, (bucket, listing_id), locks=True):
                visitors = [(bucket, listing_id, day, visitor) for visitor in sorted(views[listing_id])]
                new = len(await tx.fetch_many(sql.ADD_VIEW, visitors))
                if new:
                    await tx.fetch(sql.COUNT_VIEWS, (bucket, listing_id, new, date))
                    accounts[bucket, account_id] += new
        for account, new in sorted(accounts.items()):
            await tx.fetch(sql.RAISE_REVISION, (*account, *NO_GROWTH, 0, 0))
            await tx.fetch(COUNT_ON_DAY, (*account, day, new, 0))

    @transaction
    async def purge_views(self, tx: Transaction, oldest: int, count: int) -> int:
        """Delete at most `count` visitors of days before `oldest`, and the salts of those days.

        Return the number of deleted visitors.
        """
        await tx.fetch(sql.PURGE_VIEW_SALTS, (oldest,))
        return len(await tx.fetch(sql.PURGE_VIEWS, (oldest, count)))
