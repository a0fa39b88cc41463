"""Which path and method leads where."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeAlias

from listings.api import handlers
from listings.api.request import Request
from listings.api.wire import LISTINGS_PATH, Answer, MethodNotAllowed
from listings.errors import Problem
from listings.service import Service

Handler: TypeAlias = Callable[[Service, Request], Awaitable[Answer]]


class Endpoint(NamedTuple):
    """A handler and what the gate does before it."""

    handle: Handler
    needs_key: bool = True
    takes_body: bool = False
    counts: bool = True  # towards the limit of the key


ROUTES: Mapping[str, Mapping[str, Endpoint]] = {
    LISTINGS_PATH: {
        "GET": Endpoint(handlers.list_listings),
        "POST": Endpoint(handlers.create_listing, takes_body=True),
    },
    LISTINGS_PATH + "/batch": {"POST": Endpoint(handlers.run_batch, takes_body=True)},
    LISTINGS_PATH + "/{id}": {
        "GET": Endpoint(handlers.get_listing),
        "PUT": Endpoint(handlers.update_listing, takes_body=True),
        "PATCH": Endpoint(handlers.update_listing, takes_body=True),
        "DELETE": Endpoint(handlers.delete_listing),
    },
    LISTINGS_PATH + "/{id}/restore": {"POST": Endpoint(handlers.restore_listing)},
    "/api/v1/rate_limit": {"GET": Endpoint(handlers.rate_limit, counts=False)},
    "/healthz": {"GET": Endpoint(handlers.health, needs_key=False)},
    "/readyz": {"GET": Endpoint(handlers.readiness, needs_key=False)},
}
"""Path, method, endpoint. HEAD goes where GET goes, and a trailing slash changes nothing (decision G19)."""

_PATTERNS = [(re.compile(path.replace("{id}", "([^/]+)") + "/?"), path) for path in ROUTES if "{id}" in path]


def route(request: Request) -> Endpoint:
    """The request's endpoint, with `request.route` and `request.segment` set.

    Raises Problem: path_not_found, method_not_allowed.
    """
    methods = _methods(request)
    endpoint = methods.get("GET" if request.method == "HEAD" else request.method)
    if endpoint is None:
        raise MethodNotAllowed(request.method, allowed_methods(methods))
    return endpoint


def allowed_methods(methods: Mapping[str, Endpoint]) -> str:
    """The value of an Allow header."""
    readable = ["GET", "HEAD"] if "GET" in methods else []
    return ", ".join([*readable, *(method for method in methods if method != "GET")])


def _methods(request: Request) -> Mapping[str, Endpoint]:
    path = request.path
    if path not in ROUTES:
        path = path.removesuffix("/")
    if path not in ROUTES:
        path = _pattern(request)
    request.route = path
    return ROUTES[path]


def _pattern(request: Request) -> str:
    for pattern, path in _PATTERNS:
        match = pattern.fullmatch(request.path)
        if match is not None:
            request.segment = match[1]
            return path
    raise Problem("path_not_found", "There is nothing at this path")
