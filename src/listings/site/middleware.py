"""Middleware around every page: size limit of forms, origin check, response headers, and a response to any error."""

import logging
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from starlette.requests import ClientDisconnect, Request
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from listings.domain.errors import Problem
from listings.site import cookies, pages, presentation, security
from listings.site.context import site_of

Header: TypeAlias = tuple[bytes, bytes]
Message: TypeAlias = MutableMapping[str, Any]
_MAX_DIGITS = 15
_WEBHOOK = re.compile(r"/payments/[a-z]+/webhook")  # has a signature instead of an origin
_INTERNAL_ERROR = Problem("internal_error", "The fault is on our side. Try again in a moment")

_log = logging.getLogger(__name__)


class PageMiddleware:
    """The middleware. It skips its checks for paths and methods without a page, because 404 and 405 come first."""

    def __init__(self, app: ASGIApp, max_body_bytes: int) -> None:
        self._app = app
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        response = _ResponseSender(request, send)
        try:
            if _has_page(request):
                if not _WEBHOOK.fullmatch(scope["path"]):
                    security.require_same_origin(request)
                receive = self._limit_body(request, receive)
            await self._app(scope, receive, response.send)
        except ClientDisconnect:
            return
        except Problem as problem:
            await (await pages.error_response(request, problem))(scope, receive, response.send)
        except Exception:
            if response.started:
                raise
            _log.exception("Request %s failed", pages.request_id_of(request))
            await (await pages.error_response(request, _INTERNAL_ERROR))(scope, receive, response.send)

    def _limit_body(self, request: Request, receive: Receive) -> Callable[[], Awaitable[Message]]:
        """Return a `receive` that raises Problem("body_too_large") if the body is too long.

        Raises Problem: unsupported_encoding, or body_too_large if Content-Length is too large already.
        """
        limit, received = self._max_body_bytes, 0
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise Problem("unsupported_encoding", "The request body must not be compressed")
        content_length = request.headers.get("content-length", "").lstrip("0")
        if len(content_length) > _MAX_DIGITS or (content_length.isdecimal() and int(content_length) > limit):
            raise _too_large(limit)

        async def receive_limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit:
                raise _too_large(limit)
            return message

        return receive_limited


class _ResponseSender:
    """Sends a response with the headers of every page, and without a body if the request method is HEAD."""

    def __init__(self, request: Request, send: Send) -> None:
        self._request = request
        self._send = send
        self.started = False

    async def send(self, message: Message) -> None:
        """Send an ASGI message of the response."""
        if message["type"] == "http.response.start":
            self.started = True
            request_id = (b"x-request-id", pages.request_id_of(self._request).encode())
            message["headers"] = [
                *map(self._add_prefix, message["headers"]),
                *security.headers(self._request),
                *cookies.list_renewed_cookies(self._request),
                request_id,
            ]
            self._request.scope["listings.status"] = message["status"]
        elif self._request.method == "HEAD":
            message = {**message, "body": b""}
        await self._send(message)

    def _add_prefix(self, header: Header) -> Header:
        """Add the path prefix of the site's URL to the target of a redirect, which is always a path of the site."""
        name, value = header
        return (name, site_of(self._request).path_prefix.encode() + value) if name == b"location" else header


def _has_page(request: Request) -> bool:
    """Return whether a route matches both path and method."""
    return any(route.matches(request.scope)[0] is Match.FULL for route in request.app.routes)


def _too_large(limit: int) -> Problem:
    return Problem("body_too_large", f"The upload is too large. The limit is {presentation.format_size(limit)}")
