"""The table of a seller's listings, with search and bulk changes."""

from typing import Any

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.domain import fields
from listings.domain.errors import Problem
from listings.domain.listings import MAX_COUNTED
from listings.domain.model import MAX_ID, Listing
from listings.service.members.sessions import Member
from listings.site.console.costly import costly
from listings.site.console.guards import (
    LISTINGS_PATH,
    build_undo_url,
    console_page,
    get_form_id,
    get_text,
    read_form,
    redirect_with_notice,
    require_plan,
)
from listings.site.console.listings import bulk
from listings.site.console.listings.actions import (
    ACTIONS,
    NEEDS_PLAN,
    PRICE,
    PRICE_MODES,
    PriceChange,
    describe_bulk_change,
    read_price_change,
    require_state,
)
from listings.site.console.listings.bulk import BulkForm, BulkResult
from listings.site.console.listings.search import PAGE_SIZE, SHOWN, SORTS, STATUSES, Search, read
from listings.site.console.paging import turn_pages
from listings.site.context import site_of
from listings.site.pictures import sources

_PREVIEWED = 10


@costly("lists")
async def show_listings(request: Request, member: Member) -> Response:
    """Show a page of the listings that match the search."""
    return await _listings_page(request, member, read(request.query_params))


@costly("lists")
async def change_many(request: Request, member: Member) -> Response:
    """Change the selected listings. A price, or all that match a search, need a confirmation first."""
    form = _read(await read_form(request))
    try:
        _require_valid(form)
        if form.action in NEEDS_PLAN:
            require_plan(request, member)
    except Problem as problem:
        return await _listings_page(request, member, form.search, problem)
    if (form.action == PRICE or form.all_matching) and form.confirmed != form.effect:
        return await _confirmation_page(request, member, form)
    return await _apply(request, member, form)


ROUTES = [Route(LISTINGS_PATH, show_listings), Route(LISTINGS_PATH, change_many, methods=["POST"])]


async def _apply(request: Request, member: Member, form: BulkForm) -> Response:
    try:
        price = read_price_change(form.mode, form.amount) if form.action == PRICE else None
    except Problem as problem:
        return await _confirmation_page(request, member, form, problem)
    result = await bulk.run(site_of(request).services, member, form, price)
    if result.rest:
        following = form._replace(below=result.rest, form_id="", confirmed="")
        return await _confirmation_page(request, member, following, result=(form.action, result))
    if result.problem is not None or result.rejected:
        return await _listings_page(request, member, form.search, result.problem, (form.action, result))
    notice = f"{form.action}.{result.changed}.{result.unchanged}"
    return redirect_with_notice(request, form.search.url(form.search.after), notice, _find_change(result))


def _find_change(result: BulkResult) -> int | None:
    return result.change_sets[0] if result.change_sets else None


def _read(form: FormData) -> BulkForm:
    ids = [number for value in form.getlist("id") if (number := fields.parse_id(str(value)))]
    return BulkForm(
        search=read(form),
        ids=list(dict.fromkeys(ids))[: bulk.MAX_SELECTED],
        all_matching=bool(get_text(form, "all")),
        action=get_text(form, "action"),
        mode=get_text(form, "mode"),
        amount=get_text(form, "amount")[:30],
        form_id=get_form_id(form),
        confirmed=get_text(form, "confirmed"),
        below=fields.parse_id(get_text(form, "below")) or MAX_ID,
    )


def _require_valid(form: BulkForm) -> None:
    if form.action not in {*ACTIONS, PRICE}:
        raise Problem("invalid_request", "Unknown action")
    if not (form.ids or form.all_matching):
        raise Problem("invalid_request", "Select at least one listing")


async def _confirmation_page(
    request: Request,
    member: Member,
    form: BulkForm,
    problem: Problem | None = None,
    result: tuple[str, BulkResult] | None = None,
) -> Response:
    services, price = site_of(request).services, None
    if form.action == PRICE and form.mode and problem is None:
        try:
            price = read_price_change(form.mode, form.amount)
        except Problem as error:
            problem = error
    first = await bulk.find_first(services, member, form, _PREVIEWED)
    preview = [(listing, _preview_price(listing, price)) for listing in first]
    count = await bulk.count_selected(services, member, form)
    if form.all_matching and not form.search.status and form.action != "restore" and count <= MAX_COUNTED:
        deleted = form._replace(search=form.search._replace(status="deleted"))
        count -= await bulk.count_selected(services, member, deleted)  # they stay as they are
    return console_page(
        request,
        "listings_bulk.html",
        problem=problem,
        form=form,
        preview=preview,
        has_preview=price is not None,
        has_effect=price is not None and (count > len(preview) or any(isinstance(new, int) for _, new in preview)),
        count=count,
        maximum=bulk.MAX_MATCHING,
        price_modes=PRICE_MODES,
        **_show_result(result),
    )


def _show_result(result: tuple[str, BulkResult] | None) -> dict[str, Any]:
    if result is None:
        return {"result": None}
    return {
        "action": result[0],
        "result": result[1],
        "result_undo_url": build_undo_url(_find_change(result[1]), is_bulk=True),
        "actions": ACTIONS,
        "describe_bulk_change": describe_bulk_change,
    }


def _preview_price(listing: Listing, price: PriceChange | None) -> int | str:
    if price is None:
        return listing.price_cents
    try:
        require_state(listing, PRICE)
        return price.apply(listing.price_cents)
    except Problem as problem:
        return problem.message


async def _listings_page(
    request: Request,
    member: Member,
    search: Search,
    problem: Problem | None = None,
    result: tuple[str, BulkResult] | None = None,
) -> Response:
    services = site_of(request).services
    query, errors = search.query(services.clock())
    counts = await site_of(request).counts.get(services, member)
    if search.sort == "price":
        page = await services.listings.find_unpriced_last(member.caller, query, PAGE_SIZE)
    else:
        page = await services.listings.find_page_of_any_size(member.caller, query)
    exact = await bulk.find_by_external_id(services, member, search)
    shown = {listing.id for listing in exact}
    others = [] if exact and errors else page.listings  # the text has no words to search for
    listings = exact + [listing for listing in others if listing.id not in shown]
    following = search._replace(after=page.next_cursor if others else None)
    images = [url for listing in listings for url in sources.decode_urls(listing.images)[:1]]
    return console_page(
        request,
        "listings.html",
        problem=problem,
        search=search,
        errors={} if exact else errors,
        listings=listings,
        sizes=await sources.find_sizes(request, images),
        counts=counts,
        takedowns={one.listing_id: one for one in await services.moderation.list_takedowns_of(member.account)},
        turns=turn_pages(request, "after", following.cursor, search.url()),
        statuses=STATUSES,
        orders=SORTS,
        shown=SHOWN,
        **_show_result(result),
    )
