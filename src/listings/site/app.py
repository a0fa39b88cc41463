"""ASGI application that serves the HTML pages."""

import asyncio
from http import HTTPStatus
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from listings.domain.errors import Problem
from listings.service import Services
from listings.site import assets, console, market, message, pages
from listings.site.console.export import Exports
from listings.site.console.listing_count_cache import ListingCountCache
from listings.site.context import Site, SiteOptions
from listings.site.middleware import PageMiddleware
from listings.site.pictures import demo_files

_UNREADABLE = "The form could not be read. Reload the page and submit it again"


class Pages:
    """Serves the pages, and HTML error pages to browsers that request any other path."""

    def __init__(self, starlette: Starlette, routes: list[Route]) -> None:
        self._starlette = starlette
        self._routes = routes
        self._page_lock = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Respond to an ASGI 3 request of type http.

        Return False, with nothing sent, if the path has no page and the client does not accept HTML. Reads the request
        ID from "listings.request_id" of the scope, and sets "listings.route" (a route pattern) and "listings.status".
        """
        async with self._page_lock:  # one page per loop iteration, so that a burst of pages does not delay the API
            await asyncio.sleep(0)  # the server runs a request's first step outside of a task; Starlette needs one
        route = next((route for route in self._routes if route.matches(scope)[0] is not Match.NONE), None)
        if route is None and not pages.accepts_html(scope):
            return False
        scope["listings.route"] = route.path if route is not None else "-"
        await self._starlette(scope, receive, send)
        return True


def build_pages(services: Services, options: SiteOptions) -> Pages:
    """Build the pages over a service."""
    routes = [*market.ROUTES, *message.ROUTES, *console.ROUTES, *demo_files.ROUTES, *assets.ROUTES]
    routes.append(assets.build_logo_route(options.brand.logo))
    paths = [route.path for route in routes if "GET" in (route.methods or ()) and route.path != "/"]
    routes += [Route(f"{path}/", _redirect_without_slash) for path in paths]
    starlette = Starlette(
        routes=routes,
        middleware=[Middleware(PageMiddleware, max_body_bytes=options.max_body_bytes)],
        exception_handlers={HTTPException: _handle_http_exception, Problem: pages.error_response},  # type: ignore[dict-item]
    )
    starlette.router.redirect_slashes = False
    templates = pages.environment(services.about.path_prefix, options.brand)
    shared = ListingCountCache(), asyncio.Lock(), asyncio.Lock(), Exports(), message.SentMessages()
    starlette.state.site = Site(services, options, templates, *shared)
    return Pages(starlette, routes)


async def _redirect_without_slash(request: Request) -> Response:
    path, query = quote(request.scope["path"].removesuffix("/")), request.scope["query_string"].decode("latin-1")
    return RedirectResponse(f"{path}?{query}" if query else path, 308)


async def _handle_http_exception(request: Request, error: HTTPException) -> Response:
    """Respond to an error that Starlette raises itself: an unknown path, a wrong method, an unreadable form."""
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # Starlette reports only the methods of the first route that matches the path
        routes = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
        allowed = ", ".join(sorted({method for route in routes for method in route.methods}))
        message = f"{request.method[:20]} is not allowed here. Allowed methods: {allowed}"
        return await pages.error_response(request, Problem("method_not_allowed", message), {"Allow": allowed})
    if error.status_code == HTTPStatus.BAD_REQUEST:
        return await pages.error_response(request, Problem("malformed_request", _UNREADABLE))
    return await pages.error_response(request, Problem("path_not_found", "We can't find that page"))
