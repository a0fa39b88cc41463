"""ASGI application that serves the HTML pages."""

from collections import OrderedDict
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
from listings.http.asgi import ClientDisconnectedError, Exchange
from listings.http.body_files import REQUESTS, UPLOADS, BodyFolder
from listings.http.large_bodies import LargeBodies, ReceivedBody
from listings.queues import FairQueue
from listings.service import Services
from listings.service.history.usage import RequestUsage
from listings.site import assets, contact, cookies, market, pages, saved
from listings.site.console import (
    account,
    activity,
    keys,
    messages,
    operator,
    overview,
    pictures,
    plan,
    sign_in,
    transfer,
    usage,
)
from listings.site.console.history import undo
from listings.site.console.listings import edit, table
from listings.site.context import CostlyPages, ListingCountCache, SentMessages, Site, SiteOptions
from listings.site.middleware import PageMiddleware
from listings.site.visitor_forms import MAX_ALL_WAITING_FORMS, MAX_WAITING_FORMS

CONSOLE_ROUTES: list[Route] = [
    *(*sign_in.ROUTES, *overview.ROUTES, *messages.ROUTES, *keys.ROUTES, *usage.ROUTES, *plan.ROUTES),
    *(*table.ROUTES, *edit.ROUTES, *pictures.ROUTES, *transfer.ROUTES),
    *(*activity.ROUTES, *undo.ROUTES, *account.ROUTES),
]
_UNREADABLE = "The form could not be read. Reload the page and submit it again"


class Pages:
    """Serves the pages, and HTML error pages to browsers that request any other path."""

    def __init__(self, starlette: Starlette, routes: list[Route], bodies: LargeBodies, usage: RequestUsage) -> None:
        self._starlette = starlette
        self._routes = routes
        self._bodies = bodies
        self._usage = usage
        self._queue = FairQueue()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Respond to an ASGI 3 request of type http.

        Return False, with nothing sent, if the path has no page and the client does not accept HTML. Reads what
        `http.asgi.Pages` describes from the scope, and sets "listings.route" (a route pattern) and "listings.status".
        Raises Unavailable, with nothing sent, if too many requests wait, and ClientDisconnectedError.
        """
        self._usage.requests += 1
        scope["app"] = self._starlette
        exchange: Exchange = scope["listings.exchange"]
        owner = cookies.find_owner(Request(scope))
        body = scope["listings.body"] = ReceivedBody(self._bodies, owner, exchange.take_body())
        try:
            await body.needs_more()  # if many requests wait, most wait in files
            async with self._queue.acquire(owner):
                # One page per loop iteration. Also, a task runs the rest of the request from here, as Starlette needs.
                if exchange.disconnected:
                    raise ClientDisconnectedError
            route = next((route for route in self._routes if route.matches(scope)[0] is not Match.NONE), None)
            if route is None and not pages.accepts_html(scope):
                return False
            scope["listings.route"] = route.path if route is not None else "-"
            await self._starlette(scope, receive, send)
            return True
        finally:
            body.release()


def build_pages(services: Services, options: SiteOptions) -> Pages:
    """Build the pages over a service."""
    routes = [*market.ROUTES, *saved.ROUTES, *contact.ROUTES, *CONSOLE_ROUTES, *assets.ROUTES]
    if options.operator_page:
        routes += operator.ROUTES
    routes.append(assets.build_logo_route(options.brand.logo))
    paths = [route.path for route in routes if "GET" in (route.methods or ()) and route.path != "/"]
    routes += [Route(f"{path}/", _redirect_without_slash) for path in paths]
    starlette = Starlette(
        routes=routes,
        middleware=[Middleware(PageMiddleware, max_body_bytes=options.max_body_bytes)],
        exception_handlers={HTTPException: _handle_http_exception, Problem: pages.error_response},  # type: ignore[dict-item]
    )
    starlette.router.redirect_slashes = False
    templates = pages.environment(services.about.path_prefix, options.brand, services.pictures.base_url)
    forms, sitemaps = FairQueue(max_callers=MAX_WAITING_FORMS, max_total=MAX_ALL_WAITING_FORMS), FairQueue()
    shared = ListingCountCache(), forms, sitemaps, CostlyPages(), SentMessages(), OrderedDict[str, int]()
    options = options._replace(upload_folder=options.upload_folder or BodyFolder(None, UPLOADS))
    starlette.state.site = Site(services, options, templates, *shared)
    bodies = LargeBodies(options.body_folder or BodyFolder(None, REQUESTS))
    return Pages(starlette, routes, bodies, services.usage)


async def _redirect_without_slash(request: Request) -> Response:
    path, query = quote(request.scope["path"].removesuffix("/")), request.scope["query_string"].decode("latin-1")
    return RedirectResponse(f"{path}?{query}" if query else path, 308)


async def _handle_http_exception(request: Request, error: HTTPException) -> Response:
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # Starlette reports only the methods of the first route that matches the path
        routes = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
        allowed = ", ".join(sorted({method for route in routes for method in route.methods}))
        message = f"{request.method[:20]} is not allowed here. Allowed methods: {allowed}"
        return await pages.error_response(request, Problem("method_not_allowed", message), {"Allow": allowed})
    if error.status_code == HTTPStatus.BAD_REQUEST:
        return await pages.error_response(request, Problem("malformed_request", _UNREADABLE))
    return await pages.error_response(request, Problem("path_not_found", "We can't find that page"))
