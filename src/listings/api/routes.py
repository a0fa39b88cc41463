"""The routes: path and method to endpoint."""

import re

from listings.api import handlers, images, own_key, reverts
from listings.api.codec import LISTINGS_PATH, REVERTS_PATH, MethodNotAllowed
from listings.api.docs import operations
from listings.api.docs.handlers import DocsHandlers
from listings.api.endpoints import Endpoint, Routes
from listings.api.request import Request
from listings.domain.errors import Problem

_docs = DocsHandlers(lambda: ROUTES)

ROUTES: Routes = {
    LISTINGS_PATH: {
        "GET": Endpoint(handlers.list_listings, operations.LIST),
        "POST": Endpoint(handlers.create_listing, operations.CREATE, takes_body=True),
    },
    LISTINGS_PATH + "/batch": {"POST": Endpoint(handlers.run_batch, operations.BATCH, takes_body=True)},
    LISTINGS_PATH + "/{id}": {
        "GET": Endpoint(handlers.get_listing, operations.GET),
        "PUT": Endpoint(handlers.update_listing, operations.PUT, takes_body=True),
        "PATCH": Endpoint(handlers.update_listing, operations.PATCH, takes_body=True),
        "DELETE": Endpoint(handlers.delete_listing, operations.DELETE),
    },
    LISTINGS_PATH + "/{id}/restore": {"POST": Endpoint(handlers.restore_listing, operations.RESTORE)},
    LISTINGS_PATH + "/{id}/changes": {"GET": Endpoint(handlers.list_listing_changes, operations.HISTORY)},
    "/api/v1/changes": {"GET": Endpoint(handlers.list_changes, operations.CHANGES)},
    "/api/v1/changes/groups": {"GET": Endpoint(handlers.list_change_groups, operations.CHANGE_GROUPS)},
    "/api/v1/changes/revert": {"POST": Endpoint(reverts.start_revert, operations.REVERT, takes_body=True)},
    REVERTS_PATH + "/{id}": {"GET": Endpoint(reverts.get_revert, operations.GET_REVERT)},
    images.IMAGES_PATH: {
        "GET": Endpoint(images.list_images, operations.IMAGES),
        "POST": Endpoint(images.upload, operations.UPLOAD, takes_upload=True),
    },
    images.IMAGES_PATH + "/{id}": {"DELETE": Endpoint(images.delete, operations.DELETE_IMAGE)},
    "/api/v1/key": {"GET": Endpoint(own_key.get_key, operations.KEY)},
    "/api/v1/rate_limit": {"GET": Endpoint(handlers.get_rate_limit, operations.RATE_LIMIT, counts=False)},
    "/healthz": {"GET": Endpoint(handlers.get_health, needs_key=False)},
    "/readyz": {"GET": Endpoint(handlers.get_readiness, needs_key=False)},
    "/media/{file}": {"GET": Endpoint(images.get_file, needs_key=False)},
    "/openapi.json": {"GET": Endpoint(_docs.get_document, needs_key=False)},
    "/llms.txt": {"GET": Endpoint(_docs.get_overview, needs_key=False)},
    "/docs": {"GET": Endpoint(_docs.get_page, needs_key=False)},
    "/docs/reference.css": {"GET": Endpoint(_docs.get_style, needs_key=False)},
    "/docs/reference.js": {"GET": Endpoint(_docs.get_script, needs_key=False)},
    "/docs/inter.woff2": {"GET": Endpoint(_docs.get_font, needs_key=False)},
    "/docs/{guide}": {"GET": Endpoint(_docs.get_guide, needs_key=False)},
}
"""Path, method, endpoint. HEAD uses the endpoint of GET, and a trailing slash is ignored (decision G19)."""

_HEALTH = {"/healthz", "/readyz"}
_PATTERNS = [(re.compile(re.sub(r"\{\w+\}", "([^/]+)", path) + "/?"), path) for path in ROUTES if "{" in path]


def route(request: Request, prefix: str) -> Endpoint:
    """Return the request's endpoint, and set `request.route` and `request.segment`.

    `prefix` is the path of the service's URL. It is removed from `request.path`.

    Raises Problem: path_not_found, method_not_allowed.
    """
    if prefix:
        request.path = remove_prefix(request.path, prefix)
    path = request.path
    if path not in ROUTES:
        path = path.removesuffix("/")
    if path not in ROUTES:
        path = _match_pattern(request, prefix)
    request.route = path
    methods = ROUTES[path]
    endpoint = methods.get("GET" if request.method == "HEAD" else request.method)
    if endpoint is None:
        readable = ["GET", "HEAD"] if "GET" in methods else []
        allowed = ", ".join([*readable, *(method for method in methods if method != "GET")])
        raise MethodNotAllowed(request.method, allowed)
    return endpoint


def remove_prefix(path: str, prefix: str) -> str:
    """Return the path below the prefix, or "" for one that is not below it. Health checks need no prefix."""
    if path.startswith(f"{prefix}/"):
        return path[len(prefix) :]
    if path == prefix:
        return "/"
    return path if path.removesuffix("/") in _HEALTH else ""


def _match_pattern(request: Request, prefix: str) -> str:
    for pattern, path in _PATTERNS:
        match = pattern.fullmatch(request.path)
        if match is not None:
            request.segment = match[1]
            return path
    raise Problem("path_not_found", f"Path not found: {prefix}/docs lists all paths")
