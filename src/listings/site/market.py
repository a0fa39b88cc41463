"""The public market: the home page with its search, listings, sellers, robots.txt and the sitemaps."""

import asyncio
from collections.abc import AsyncIterator
from time import perf_counter
from typing import NamedTuple
from xml.sax.saxutils import escape

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from listings.domain.errors import Problem
from listings.domain.fields import parse_id
from listings.domain.market.regions import REGIONS
from listings.domain.model import MAX_ID, Listing, MarketEntry
from listings.service.market import HIGHLIGHTS
from listings.site import cookies, pages, presentation, search, structured_data
from listings.site.context import site_of
from listings.site.pictures import sources
from listings.site.search import results
from listings.site.visitor import base_url_of, client_ip, measure_html, require_room, searching

_SITEMAP_URLS = 50_000  # the maximum according to sitemaps.org
_SLICE_ROWS = 500  # that a sitemap reads in one step: about 2 ms and 60 kB
_CACHE_ONE_HOUR = {"Cache-Control": "public, max-age=3600"}
_PRIVATE = ("/api/", "/console", "/invitations/", "/sign-")
_XML = "application/xml; charset=utf-8"
_XML_DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>\n'
_NAMESPACE = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
_MIN_ROW_LISTINGS = 4
_TILES = 8
_MORE = 6  # listings of the same seller on the page of a listing
_SIMILAR = 6


class _ListingRow(NamedTuple):
    heading: str
    url: str  # all of them
    entries: list[MarketEntry]


async def _show_home(request: Request) -> Response:
    await cookies.member_of(request)
    submitted = search.read(request.query_params, site_of(request).services.restore_id)
    if submitted != search.Search():
        return await results.show_results(request, submitted)
    services = site_of(request).services
    async with searching(request):
        facets = await services.market.list_facets()
        newest = await services.market.list_newest()
        rows = [_ListingRow("Just listed", search.Search().url(), newest)] if newest else []
        for (heading, query), entries in zip(HIGHLIGHTS.items(), await services.market.list_highlights(), strict=True):
            if len(entries) >= _MIN_ROW_LISTINGS:
                lowest, highest = (f"{cents / 100:g}" if cents else "" for cents in (query.price_min, query.price_max))
                shown = search.Search(type=query.type or "", price_min=lowest, price_max=highest)
                rows.append(_ListingRow(heading, shown.url(), entries))
        words = await services.market.list_frequent_words()
    return pages.page(
        request,
        "home.html",
        search=search.Search(),
        rows=rows,
        sizes=await sources.find_sizes(request, (entry.image for row in rows for entry in row.entries)),
        categories=[tile for tile in facets.categories.items() if tile[1] > 1][:_TILES],
        regions=presentation.sort_names(
            [name for name, number in facets.regions.items() if number > 1 or name in REGIONS]
        ),
        frequent_words=words,
        now=services.clock(),
    )


async def _show_listing(request: Request) -> Response:
    market, member = site_of(request).services.market, await cookies.member_of(request)
    viewer = member.account.id if member is not None else None
    try:
        listing = await market.get_listing(id_of(request), viewer)
    except Problem as problem:
        services = site_of(request).services
        async with searching(request):
            similar = await services.market.list_similar(id_of(request), _SIMILAR)
        sizes = await sources.find_sizes(request, (entry.image for entry in similar))
        return await pages.error_response(request, problem, similar=similar, sizes=sizes, now=services.clock())
    page = await build_listing_page(request, listing, viewer)
    purpose = request.headers.get("sec-purpose", "") + request.headers.get("purpose", "")
    is_prefetch = "prefetch" in purpose.lower()  # which nobody looks at
    if request.method == "GET" and not is_prefetch and viewer != listing.account_id:  # decision G8
        market.record_view(listing, client_ip(request), request.headers.get("user-agent", ""))
    return page


async def build_listing_page(
    request: Request, listing: Listing, viewer: int | None, *, is_preview: bool = False
) -> Response:
    """Return the page of a listing for a viewer's account. A preview may show a listing that is not stored."""
    require_room(request, sum(map(measure_html, [listing.content, *listing.images])))
    services, prefix = site_of(request).services, site_of(request).path_prefix
    async with searching(request):
        seller = await services.market.get_seller(listing.account_id, count=_MORE + 1)
    more = [entry for entry in seller.entries if entry.id != listing.id][:_MORE]
    sizes = await sources.find_sizes(request, [*sources.decode_urls(listing.images), *(entry.image for entry in more)])
    pictures = sources.list_sources(listing.images, sizes, prefix, services.pictures.base_url)
    origin, url = base_url_of(request).removesuffix(prefix), f"{base_url_of(request)}/listings/{listing.id}"
    picture_urls = [f"{origin}{one.url}" if one.url.startswith("/") else one.url for one in pictures]
    if not site_of(request).options.exact_locations:
        listing = presentation.round_coordinates(listing)
    return pages.page(
        request,
        "listing.html",
        listing=listing,
        is_own=viewer == listing.account_id,
        is_preview=is_preview,
        can_report=not is_preview and viewer != listing.account_id and services.listing_reports.is_on,
        takes_messages=viewer != listing.account_id and services.messages.reaches(seller.account),
        seller=seller,
        more=more,
        now=services.clock(),
        url=url,
        sizes=sizes,
        pictures=pictures,
        saved_name=cookies.saved_name(request),
        picture_urls=picture_urls,
        in_type=search.Search(type=listing.type),
        place=presentation.format_place(listing.location, listing.district, listing.region),
        structured_data=structured_data.script_content(listing, seller.account.name, url, picture_urls),
    )


async def _show_seller(request: Request) -> Response:
    services = site_of(request).services
    await cookies.member_of(request)
    async with searching(request):
        seller = await services.market.get_seller(id_of(request), count=1)
    if seller.listing_count == 0:
        raise Problem("path_not_found", "We can't find that seller")
    submitted = search.read(request.query_params, services.restore_id, seller.account.id)
    takes_messages = services.messages.reaches(seller.account)
    return await results.show_results(request, submitted, "seller.html", seller=seller, takes_messages=takes_messages)


async def _show_robots(request: Request) -> Response:
    prefix = site_of(request).path_prefix
    lines = ["User-agent: *", *(f"Disallow: {prefix}{path}" for path in _PRIVATE)]
    text = "\n".join([*lines, f"Sitemap: {base_url_of(request)}/sitemap.xml", ""])
    return PlainTextResponse(text, 200, _CACHE_ONE_HOUR)


async def _show_sitemaps(request: Request) -> Response:
    async with searching(request):
        count = await site_of(request).services.market.get_last_serial() // _SITEMAP_URLS + 1
    base_url = escape(base_url_of(request))
    parts = (f"<sitemap><loc>{base_url}/sitemaps/{number}.xml</loc></sitemap>" for number in range(1, count + 1))
    text = f"{_XML_DECLARATION}<sitemapindex {_NAMESPACE}>{''.join(parts)}</sitemapindex>\n"
    return Response(text, 200, _CACHE_ONE_HOUR, _XML)


async def _show_sitemap(request: Request) -> Response:
    number = id_of(request)
    if number > MAX_ID // _SITEMAP_URLS:
        raise Problem("path_not_found", "We can't find that page")
    end = number * _SITEMAP_URLS - 1
    lines, after = await _read_slice(request, end - _SITEMAP_URLS, end)  # before the response, so that it can fail
    return StreamingResponse(_write_sitemap(request, lines, after, end), 200, _CACHE_ONE_HOUR, _XML)


async def _write_sitemap(request: Request, lines: str, after: int, end: int) -> AsyncIterator[str]:
    yield f"{_XML_DECLARATION}<urlset {_NAMESPACE}>{lines}"
    while after < end:
        lines, after = await _read_slice(request, after, end)
        yield lines
    yield "</urlset>\n"


async def _read_slice(request: Request, after: int, end: int) -> tuple[str, int]:
    # Sitemaps take turns, and use at most half of the event loop's time, because any visitor may request many.
    async with site_of(request).sitemaps.acquire(cookies.find_owner(request)):
        async with searching(request):
            started = perf_counter()
            entries = await site_of(request).services.market.page_sitemap(after, min(_SLICE_ROWS, end - after))
        base_url = escape(base_url_of(request))
        lines = ""
        for entry in entries:
            if entry.serial <= end and entry.updated_at:
                changed = presentation.timestamp_to_iso(entry.updated_at)
                lines += f"<url><loc>{base_url}/listings/{entry.listing_id}</loc><lastmod>{changed}</lastmod></url>\n"
        await asyncio.sleep(perf_counter() - started)
    return lines, entries[-1].serial if entries else end


ROUTES = [
    Route("/", _show_home),
    Route("/listings/{id}", _show_listing),
    Route("/sellers/{id}", _show_seller),
    Route("/robots.txt", _show_robots),
    Route("/sitemap.xml", _show_sitemaps),
    Route("/sitemaps/{id}.xml", _show_sitemap),
]


def id_of(request: Request) -> int:
    """Return the id in the path. Raises Problem("listing_not_found")."""
    number = parse_id(request.path_params["id"])
    if number is None:
        raise Problem("listing_not_found", "This page does not exist or is no longer available")
    return number
