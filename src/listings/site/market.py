"""What everybody sees: the market's home with its search, a listing's page, and what search engines read."""

import asyncio
import re
from xml.sax.saxutils import escape

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from listings.domain.errors import Problem
from listings.domain.model import MarketQuery, SitemapEntry
from listings.site import pages, presentation, search, session, structured_data
from listings.site.context import site_of
from listings.site.visitor import address_of, base_url_of

_ID = re.compile(r"[1-9][0-9]{0,18}")
_MOST_ID = 2**63 - 1
_IN_A_PART = 50_000  # that sitemaps.org allows
_AT_ONCE = 1_000
_FOR_AN_HOUR = {"Cache-Control": "public, max-age=3600"}
_SITEMAPS = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'


async def show_home(request: Request) -> Response:
    """The newest listings, or what was searched for."""
    service = site_of(request).service
    await session.member_of(request)
    sought = search.read(request.query_params)
    query, faults = sought.query()
    found = await service.search_market(query) if not faults else None
    places = await service.list_market_facets()
    return pages.page(
        request,
        "home.html",
        search=sought,
        faults=faults,
        entries=found.entries if found is not None else [],
        next_address=sought.address(found.next_cursor) if found is not None and found.next_cursor is not None else None,
        categories=_choices(places.categories, sought.category),
        regions=_choices(places.regions, sought.region),
        now=service.clock(),
    )


async def show_listing(request: Request) -> Response:
    """A listing, and one more view of it, but for its owner's (decision G8)."""
    service, member = site_of(request).service, await session.member_of(request)
    listing = await service.get_public_listing(_id_of(request))
    if _is_a_view(request) and (member is None or member.account.id != listing.account_id):
        service.record_view(listing, address_of(request), request.headers.get("user-agent", ""))
    return pages.page(
        request,
        "listing.html",
        listing=listing,
        address=_address_of(request, listing.id),
        pictures=presentation.pictures_of(listing.images),
        in_type=search.Search(type=listing.type),
        place=presentation.place_of(listing.location, listing.district, listing.region),
        structured_data=structured_data.script_of(listing, _address_of(request, listing.id)),
        now=service.clock(),
    )


async def show_robots(request: Request) -> Response:
    """What search engines may read: the market."""
    lines = ["User-agent: *", *(f"Disallow: {path}" for path in ("/api/", "/console", "/invitations/", "/sign-"))]
    return PlainTextResponse("\n".join([*lines, f"Sitemap: {base_url_of(request)}/sitemap.xml", ""]), 200, _FOR_AN_HOUR)


async def show_sitemaps(request: Request) -> Response:
    """The index: as many parts as the newest listing's serial needs."""
    newest = await site_of(request).service.search_market(MarketQuery(limit=1))
    count = newest.entries[0].serial // _IN_A_PART + 1 if newest.entries else 1
    parts = (f"<sitemap><loc>{_part_address(request, number)}</loc></sitemap>" for number in range(1, count + 1))
    return _xml(f"<sitemapindex {_SITEMAPS}>{''.join(parts)}</sitemapindex>")


async def show_sitemap(request: Request) -> Response:
    """One part: the listings of so many serials."""
    number = _id_of(request)
    if number > _MOST_ID // _IN_A_PART:
        raise Problem("path_not_found", "There is nothing at this address")
    after, end = (number - 1) * _IN_A_PART - 1, number * _IN_A_PART - 1
    lines: list[str] = []
    while after < end:
        entries = await site_of(request).service.page_sitemap(after, min(_AT_ONCE, end - after))
        lines += (_sitemap_line(request, entry) for entry in entries if entry.serial <= end)
        if not entries:
            break
        after = entries[-1].serial
        await asyncio.sleep(0)  # others have their turn
    return _xml(f"<urlset {_SITEMAPS}>{''.join(lines)}</urlset>")


ROUTES = [
    Route("/", show_home),
    Route("/listings/{id}", show_listing),
    Route("/robots.txt", show_robots),
    Route("/sitemap.xml", show_sitemaps),
    Route("/sitemaps/{id}.xml", show_sitemap),
]


def _id_of(request: Request) -> int:
    text = request.path_params["id"]
    if not _ID.fullmatch(text) or int(text) > _MOST_ID:
        raise Problem("listing_not_found", "There is no such listing, or it is not on show any more")
    return int(text)


def _is_a_view(request: Request) -> bool:
    """Whether somebody looks at the page, and no browser that guesses they will."""
    purpose = request.headers.get("sec-purpose", "") + request.headers.get("purpose", "")
    return request.method == "GET" and "prefetch" not in purpose.lower()


def _choices(names: list[str], chosen: str) -> list[tuple[str, str]]:
    """Values and texts of a choice, with the one that is chosen whatever it is."""
    every = [*names, chosen] if chosen and chosen not in names else names
    return [(name, name) for name in presentation.in_order(every)]


def _address_of(request: Request, listing_id: int) -> str:
    return f"{base_url_of(request)}/listings/{listing_id}"


def _part_address(request: Request, number: int) -> str:
    return escape(f"{base_url_of(request)}/sitemaps/{number}.xml")


def _sitemap_line(request: Request, entry: SitemapEntry) -> str:
    address = escape(_address_of(request, entry.listing_id))
    return f"<url><loc>{address}</loc><lastmod>{presentation.machine_time_of(entry.updated_at)}</lastmod></url>\n"


def _xml(content: str) -> Response:
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n{content}\n'
    return Response(text, 200, _FOR_AN_HOUR, "application/xml; charset=utf-8")
