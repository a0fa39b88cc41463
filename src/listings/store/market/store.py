"""Reads of the market: the newest listings, those of a seller, the cards of a page, and the changes for an index."""

from collections.abc import Sequence
from typing import TypeAlias, TypeVarTuple

import msgspec

from listings.domain.market import IndexedListing, MarketState
from listings.domain.market.regions import fold_region
from listings.domain.model import MAX_ID, MarketEntry, SitemapEntry
from listings.store.market import stamps
from listings.store.market.stamps import SHOWN
from listings.store.query import Query
from listings.store.scripts.script import ScriptedStore

Columns = TypeVarTuple("Columns")
_StampRow: TypeAlias = tuple[int, int, int, int, int]
_PlaceRow: TypeAlias = tuple[int, int, str]
_TextRow: TypeAlias = tuple[str, str, str, str, str, int, str, str, str, str]
_CardRow: TypeAlias = tuple[int, str, str, str, str, int, str, str, str, str, *tuple[str, ...]]

GET_STATE = Query[tuple[int, int, int]]("SELECT sequence, purged, serial FROM market_indexer WHERE id = 1")
LIST_CHANGES = Query[_StampRow]("""
SELECT sequence, serial, listing_id, account_id, state FROM market_listings WHERE sequence > $1
ORDER BY sequence LIMIT $2
""")
PAGE_NEWEST = Query[_PlaceRow](f"""
SELECT serial, listing_id, listed_at FROM market_listings WHERE serial < $1 AND state = {SHOWN}
ORDER BY serial DESC LIMIT $2
""")
LIST_UNREAD = Query[_StampRow](f"""
SELECT sequence, serial, listing_id, account_id, state FROM market_listings
WHERE serial < $1 AND state = {SHOWN} ORDER BY serial DESC LIMIT $2
""")
PAGE_SELLER = Query[_PlaceRow](f"""
SELECT serial, listing_id, listed_at FROM market_listings /*INDEXED BY market_listings_account*/
WHERE account_id = $1 AND state = {SHOWN}
    AND listing_id < COALESCE((SELECT listing_id FROM market_listings WHERE serial = $2), {MAX_ID})
ORDER BY listing_id DESC LIMIT $3
""")
COUNT_SELLER = Query[tuple[int]](f"""
SELECT count(*) FROM (
    SELECT 1 FROM market_listings /*INDEXED BY market_listings_account*/ WHERE account_id = $1 AND state = {SHOWN}
    LIMIT $2) AS few
""")
PAGE_SITEMAP = Query[_PlaceRow](f"""
SELECT serial, listing_id, listed_at FROM market_listings WHERE serial > $1 AND state = {SHOWN}
ORDER BY serial LIMIT $2
""")
LIST_HIDDEN_ACCOUNTS = Query[tuple[int]]("""
SELECT id FROM accounts WHERE disabled_at IS NOT NULL AND (disabled_at > $1 OR marketed <> 0)
ORDER BY disabled_at DESC LIMIT $2
""")
_CARD_COLUMNS = "title, type, category, images, price_cents, price_type, location, region, updated_at"
_BEGINNING = "substr(listing.content, 1, 2000)"
_TEXT_COLUMNS = "title, content, type, category, images, price_cents, location, region, district"
_NO_TEXT: _TextRow = ("", "", "", "", "[]", 0, "", "", "", "")
_IS_VISIBLE = """
is_active AND deleted_at IS NULL AND disabled_at IS NULL
    AND NOT EXISTS (SELECT 1 FROM takedowns WHERE takedowns.listing_id = listing.id)
"""
_LISTINGS = """
SELECT listing.id, {columns} FROM {{wanted}} AS wanted JOIN listings AS listing
    ON listing.bucket = CAST(wanted.id % 1024 AS smallint) AND listing.id = wanted.id
JOIN accounts AS account ON account.id = listing.account_id WHERE {condition}
"""
GET_CARDS = Query[_CardRow](
    _LISTINGS.format(columns=", ".join(f"listing.{it}" for it in _CARD_COLUMNS.split(", ")), condition=_IS_VISIBLE)
)
GET_CARDS_WITH_TEXT = Query[_CardRow](GET_CARDS.replace("listing.updated_at", f"listing.updated_at, {_BEGINNING}"))
GET_TEXTS = Query[tuple[int, *_TextRow]](
    _LISTINGS.format(
        columns=", ".join([*(f"listing.{it}" for it in _TEXT_COLUMNS.split(", ")), "account.name"]),
        condition=_IS_VISIBLE,
    )
)
GET_PLACES = """
SELECT place.serial, place.listing_id, place.listed_at FROM {wanted} AS wanted JOIN market_listings AS place
    ON place.listing_id = wanted.id
"""


class ScriptedMarketStore(ScriptedStore):
    """Reads the stamped listings. A visible listing is active and not taken down, and its account is enabled."""

    wanted: str
    """A table expression with the ids of the JSON array $1."""

    async def get_market_state(self) -> MarketState:
        """Return how far changes have been numbered."""
        return MarketState(*(await self._fetch(GET_STATE))[0])

    async def list_market_changes(self, after: int, count: int) -> list[IndexedListing]:
        """Return at most `count` listings with their latest change after a sequence, in the order of the changes.

        The texts of listings that are not visible are empty.
        """
        return await self._read_texts(await self._fetch(LIST_CHANGES, after, count))

    async def list_unread_listings(self, before: int, count: int) -> list[IndexedListing]:
        """Return at most `count` listings that are shown and have serials below `before`, the highest one first."""
        return await self._read_texts(await self._fetch(LIST_UNREAD, before, count))

    async def list_hidden_accounts(self, since: float, count: int) -> list[int]:
        """Return accounts that are disabled, whose listings an index may still have, the latest ones first."""
        return await self._list(int, LIST_HIDDEN_ACCOUNTS, int(since), count)

    async def get_market_entries(self, ids: Sequence[int], *, has_text: bool = False) -> list[MarketEntry]:
        """Return the visible ones of these listings, in their order. `has_text`: with the beginnings of their texts."""
        wanted = msgspec.json.encode(ids).decode()
        places = await self._fetch(Query[_PlaceRow](GET_PLACES.format(wanted=self.wanted)), wanted)
        statement = GET_CARDS_WITH_TEXT if has_text else GET_CARDS
        found = {it.id: it for it in await self._read_entries(places, statement)}
        return [found[it] for it in ids if it in found]

    async def page_newest(self, before: int = MAX_ID, count: int = 24) -> list[MarketEntry]:
        """Return at most `count` visible listings with serials below `before`, newest first."""
        return await self._read_entries(await self._fetch(PAGE_NEWEST, before, count))

    async def page_seller_listings(self, account_id: int, before: int, count: int) -> list[MarketEntry]:
        """Return at most `count` visible listings of an enabled account, newest first.

        Begin after the listing with the serial `before`, or with the newest one if there is none.
        """
        return await self._read_entries(await self._fetch(PAGE_SELLER, account_id, before, count))

    async def count_seller_listings(self, account_id: int, limit: int) -> int:
        """Return the number of visible listings of an enabled account, at most `limit`."""
        ((count,),) = await self._fetch(COUNT_SELLER, account_id, limit)
        return count

    async def page_sitemap(self, after: int, count: int) -> list[SitemapEntry]:
        """Return visible listings of at most `count` entries with market serials above `after`, lowest first."""
        rows = await self._fetch(PAGE_SITEMAP, after, count)
        cards = await self._read_by_id(GET_CARDS, [listing_id for _, listing_id, _ in rows])
        return [SitemapEntry(serial, it, cards[it][-1] if it in cards else "") for serial, it, _ in rows]

    async def purge_market(self, now: float) -> int:
        """Delete entries of removed listings after a week, at most 1,000, and return how many."""
        return await self._run_script(lambda tx: stamps.purge(tx, now))

    async def _read_by_id(
        self, statement: Query[tuple[int, *Columns]], ids: Sequence[int]
    ) -> dict[int, tuple[*Columns]]:
        if not ids:
            return {}
        query = Query[tuple[int, *Columns]](statement.format(wanted=self.wanted))
        return {row[0]: row[1:] for row in await self._fetch(query, msgspec.json.encode(ids).decode())}

    async def _read_entries(
        self, places: Sequence[_PlaceRow], statement: Query[_CardRow] = GET_CARDS
    ) -> list[MarketEntry]:
        cards = await self._read_by_id(statement, [listing_id for _, listing_id, _ in places])
        entries = []
        for serial, listing_id, listed_at in places:
            if listing_id in cards:
                title, kind, category, images, cents, price_type, location, region, _, *content = cards[listing_id]
                pictures: list[str] = msgspec.json.decode(images, type=list[str])
                image = pictures[0] if pictures else ""
                texts = (title, kind, category, image, cents, price_type, location, fold_region(region))
                entries.append(MarketEntry(serial, listing_id, *texts, listed_at, *content))
        return entries

    async def _read_texts(self, rows: Sequence[_StampRow]) -> list[IndexedListing]:
        texts = await self._read_by_id(GET_TEXTS, [it for _, _, it, _, state in rows if state == SHOWN])
        return [
            IndexedListing(sequence, serial, it, account_id, it in texts, *texts.get(it, _NO_TEXT))
            for sequence, serial, it, account_id, _ in rows
        ]
