"""Transactions that count views of listings. A visitor counts once per day and listing."""

from collections.abc import Collection, Mapping
from secrets import token_bytes

from listings.domain.account_limits import NO_GROWTH
from listings.domain.model import bucket_of
from listings.store import sql
from listings.store.scripts.script import Query, QueryMany, Script, ScriptedStore, transaction


class ScriptedViewStore(ScriptedStore):
    """Implements the methods of `MarketStore` that count views."""

    async def get_view_salt(self, day: int) -> bytes:
        return await self._find(bytes, sql.GET_VIEW_SALT, day) or await self._draw_salt(day)

    @transaction
    def _draw_salt(self, day: int) -> Script[bytes]:
        """Store a salt of a day, unless it has one, and return the stored one."""
        yield Query(sql.ADD_VIEW_SALT, (day, token_bytes(32)))
        rows = yield Query(sql.GET_VIEW_SALT, (day,))
        return bytes(rows[0][0])

    @transaction
    def record_views(self, day: int, views: Mapping[int, Collection[bytes]]) -> Script[None]:
        accounts = set()  # the revision of each is raised once
        for bucket, listing_id in sorted((bucket_of(listing_id), listing_id) for listing_id in views):
            viewed = yield Query(sql.GET_VIEWED, (bucket, listing_id), locks=True)
            if viewed:
                visitors = [(bucket, listing_id, day, visitor) for visitor in sorted(views[listing_id])]
                new = len((yield QueryMany(sql.ADD_VIEW, visitors)))
                if new:
                    yield Query(sql.COUNT_VIEWS, (bucket, listing_id, new))
                    accounts.add((bucket, viewed[0][0]))
        for account in sorted(accounts):
            yield Query(sql.RAISE_REVISION, (*account, *NO_GROWTH, 0))

    @transaction
    def purge_views(self, oldest: int, count: int) -> Script[int]:
        yield Query(sql.PURGE_VIEW_SALTS, (oldest,))
        return len((yield Query(sql.PURGE_VIEWS, (oldest, count))))
