"""The pages as an ASGI application beside the API's."""

import asyncio
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from listings.domain.errors import Problem
from listings.service import Service
from listings.site import assets, console, market, pages
from listings.site.context import Site, SiteOptions
from listings.site.count_cache import CountCache
from listings.site.middleware import Shell

_NOTHING = Problem("path_not_found", "There is nothing at this address: it may have been mistyped")
_UNREADABLE = Problem("malformed_request", "The form could not be read: load the page again, and send it once more")


class Pages:
    """Answers what it has a page for, and others' wrong turns where a page is wanted."""

    def __init__(self, application: Starlette, routes: list[Route]) -> None:
        self._application = application
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """ASGI 3, type http; False: nothing was sent, since there is no page here and none is asked for.

        `scope` has the request's name in "listings.request_id", and gets "listings.route", a pattern, and
        "listings.status".
        """
        route = self._route(scope)
        if route is None and not pages.wants_a_page(scope):
            return False
        scope["listings.route"] = route.path if route is not None else "-"
        await asyncio.sleep(0)  # a request's first step is taken outside of any task, which Starlette asks for
        await self._application(scope, receive, send)
        return True

    def _route(self, scope: Scope) -> Route | None:
        return next((route for route in self._routes if route.matches(scope)[0] is not Match.NONE), None)


def application(service: Service, options: SiteOptions) -> Pages:
    """The pages over a service."""
    named = [*market.ROUTES, *console.ROUTES, *assets.ROUTES]
    routes = [*named, *(Route(f"{route.path}/", _leave_slash) for route in named if _is_shown_by(route))]
    made = Starlette(
        routes=routes,
        middleware=[Middleware(Shell, most_body=options.most_body)],
        exception_handlers={HTTPException: _refuse, Problem: _tell},  # type: ignore[dict-item]
    )
    made.router.redirect_slashes = False
    made.state.site = Site(service, options, pages.environment(), CountCache())
    return Pages(made, routes)


def _is_shown_by(route: Route) -> bool:
    return "GET" in (route.methods or ()) and route.path != "/"


async def _leave_slash(request: Request) -> Response:
    """To the one address of a page."""
    path, query = quote(request.scope["path"].removesuffix("/")), request.scope["query_string"].decode("latin-1")
    return RedirectResponse(f"{path}?{query}" if query else path, 308)


async def _refuse(request: Request, error: HTTPException) -> Response:
    """What Starlette itself refuses: an unknown path, another method."""
    if error.status_code == 405:  # noqa: PLR2004 - Method Not Allowed
        allowed = ", ".join(sorted(_methods_at(request)))
        problem = Problem("method_not_allowed", f"{request.method[:20]} is not possible here, only {allowed}")
        return await pages.refusal(request, problem, {"Allow": allowed})
    if error.status_code == 400:  # noqa: PLR2004 - Bad Request
        return await pages.refusal(request, _UNREADABLE)
    return await pages.refusal(request, _NOTHING)


async def _tell(request: Request, problem: Problem) -> Response:
    return await pages.refusal(request, problem)


def _methods_at(request: Request) -> set[str]:
    """All that are possible at this path: Starlette names those of the first of its routes alone."""
    routes = (route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE)
    return {method for route in routes for method in route.methods}
