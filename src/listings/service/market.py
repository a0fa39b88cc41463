"""The market: what anybody sees of all sellers' listings, and how often each was seen (decision G8)."""

import re
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from listings.contract.store import Store
from listings.domain.errors import Problem, Unavailable
from listings.domain.model import Listing, MarketEntry, MarketFacets, MarketQuery, SitemapEntry
from listings.service.indexing import Pause, index

_DAY = 24 * 3600
_LARGEST_ID = 2**63 - 1
_MOST_WORDS = 20

_PLACES = 200  # of each kind
_PLACES_SECONDS = 60

_MOST_VIEWS = 20_000  # that wait to be written; more than those are not counted
_VIEWS_AT_ONCE = 500
_LONGEST_AGENT = 500
_FORGET_AT_ONCE = 5_000
_GRACE = 60  # seconds of a new day in which a view of the day before may still come
_ROBOT = re.compile(  # a Cubot is a telephone
    "(?<!cu)bot|crawl|spider|slurp|scrap|archiv|curl|wget|python|java/|okhttp|go-http|libwww|perl|ruby|php|node|axios|"
    "headless|phantom|puppeteer|playwright|selenium|lighthouse|monitor|uptime|pingdom|preview|facebookexternalhit|"
    "embedly|whatsapp|telegram|feed|fetch|http-client|httpclient|check|scan",
    re.IGNORECASE,
)


class MarketPage(NamedTuple):
    """Some entries, and the place behind which there are more: what the next query has as `after`."""

    entries: list[MarketEntry]
    next: tuple[int, int] | None = None


class _View(NamedTuple):
    """Somebody looks at a listing's page."""

    day: int  # since 1970
    listing_id: int
    visitor: bytes  # a hash of address and agent, not yet with the day's salt


class Market:
    """The use cases of the market, over a store and a clock."""

    store: Store
    clock: Callable[[], float]
    pause: Pause

    def __init__(self) -> None:
        self._views: set[_View] = set()
        self._salts: dict[int, bytes] = {}
        self._indexer = secrets.token_bytes(16)
        self._places: tuple[float, MarketFacets] | None = None

    # What anybody sees

    async def search_market(self, query: MarketQuery) -> MarketPage:
        """A page of what is asked for. Raises Problem("invalid_request") for too many words."""
        words = tuple(dict.fromkeys(query.words))
        if len(words) > _MOST_WORDS:
            raise Problem("invalid_request", f"A search has at most {_MOST_WORDS} words: leave some out")
        one_more = msgspec.structs.replace(query, words=words, limit=query.limit + 1)
        found = await self.store.search_market(one_more)
        place = found[query.limit - 1].place if len(found) > query.limit else None
        return MarketPage(found[: query.limit], place)

    async def read_public_listing(self, listing_id: int) -> Listing:
        """A listing that anybody may see.

        Raises Problem: listing_deleted; listing_not_found (missing, inactive, or of an account that is disabled).
        """
        listing = await self.store.get_listing(listing_id) if 0 < listing_id <= _LARGEST_ID else None
        if listing is not None and listing.deleted_at is not None:
            raise Problem("listing_deleted", "This listing is closed")
        account = await self.store.get_account(listing.account_id) if listing is not None else None
        if listing is None or account is None or not listing.is_active or account.disabled_at is not None:
            raise Problem("listing_not_found", "There is no such listing")
        return listing

    async def market_places(self) -> MarketFacets:
        """The regions and categories with the most listings, in alphabetical order; up to a minute old."""
        now = self.clock()
        if self._places is None or not 0 <= now - self._places[0] < _PLACES_SECONDS:
            found = await self.store.list_market_facets(_PLACES)
            places = MarketFacets(*(sorted(names, key=str.casefold) for names in found))
            self._places = (now, places)
        return self._places[1]

    async def page_sitemap(self, after: int, count: int) -> list[SitemapEntry]:
        """The next pages behind a serial that search engines may know of."""
        return await self.store.page_sitemap(after, count)

    # Views

    def record_view(self, listing: Listing, address: str, agent: str) -> None:
        """Count that somebody looks at a listing's page, unless it is a robot (decision G8).

        Its owner is not to be noted, which the caller of this knows.
        """
        if not is_robot(agent) and len(self._views) < _MOST_VIEWS:
            visitor = blake2b(f"{address}\n{agent[:_LONGEST_AGENT]}".encode("utf-8", "replace")).digest()
            self._views.add(_View(int(self.clock()) // _DAY, listing.id, visitor))

    async def write_views(self) -> None:
        """Store the views that were noted; while the store can't take them, they are kept for the next time."""
        waiting, self._views = sorted(self._views), set()
        try:
            while waiting:
                some = [view for view in waiting[:_VIEWS_AT_ONCE] if view.day == waiting[0].day]
                await self.store.record_views(some[0].day, await self._visitors(some))
                waiting = waiting[len(some) :]
        except Unavailable:
            pass
        finally:
            self._views.update(waiting)  # some of which may be stored: who is counted is not counted again

    async def purge_views(self) -> None:
        """Remove who was here on earlier days, and what their hashes were made with."""
        oldest = (int(self.clock()) - _GRACE) // _DAY
        self._salts = {day: salt for day, salt in self._salts.items() if day >= oldest}
        with suppress(Unavailable):
            while await self.store.purge_views(oldest, _FORGET_AT_ONCE) == _FORGET_AT_ONCE:
                pass  # others write between

    async def _visitors(self, views: Sequence[_View]) -> dict[int, set[bytes]]:
        """The visitors of each listing on one day, as the store keeps them."""
        day = views[0].day
        salt = self._salts.get(day) or await self.store.get_view_salt(day)
        self._salts[day] = salt
        found: dict[int, set[bytes]] = {}
        for view in views:
            found.setdefault(view.listing_id, set()).add(blake2b(view.visitor, key=salt, digest_size=16).digest())
        return found

    # The index

    async def index_market(self) -> int:
        """Let the market show what was written; returns how many listings that were.

        Nothing is done while another process does it.
        """
        return await index(
            lambda count: self.store.index_market(count, self._indexer, self.clock()),
            self.pause,
        )


def is_robot(agent: str) -> bool:
    """Whether a User-Agent is that of a program which nobody looks through."""
    return not agent.strip() or _ROBOT.search(agent[:_LONGEST_AGENT]) is not None
