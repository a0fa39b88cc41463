"""The listings that a visitor has saved. They are in a cookie, which no other page depends on."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.domain.fields import parse_id
from listings.site import cookies, pages
from listings.site.console.guards import get_text, read_form, redirect
from listings.site.context import site_of
from listings.site.pictures import sources
from listings.site.visitor import searching

_PATH = "/saved"


async def _show_saved(request: Request) -> Response:
    await cookies.member_of(request)
    services, ids = site_of(request).services, cookies.get_saved(request)
    async with searching(request):
        entries = await services.market.list_entries(ids)
    return pages.page(
        request,
        "saved.html",
        entries=entries,
        closed=len(ids) - len(entries),
        sizes=await sources.find_sizes(request, (entry.image for entry in entries)),
        now=services.clock(),
    )


async def _change_saved(request: Request) -> Response:
    form, saved = await read_form(request), cookies.get_saved(request)
    action, chosen = get_text(form, "action"), parse_id(get_text(form, "id"))
    ids = [one for one in saved if one != chosen]
    if action == "save" and chosen is not None:
        ids.insert(0, chosen)
    elif action == "clean":
        async with searching(request):
            ids = [entry.id for entry in await site_of(request).services.market.list_entries(saved)]
    return cookies.set_saved(request, redirect(_PATH), ids)


ROUTES = [Route(_PATH, _show_saved), Route(_PATH, _change_saved, methods=["POST"])]
