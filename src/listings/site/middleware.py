"""Middleware around every page: size limit of forms, origin check, response headers, and a response to any error."""

import asyncio
import logging
import re
from collections.abc import MutableMapping
from typing import Any, TypeAlias

from starlette.requests import ClientDisconnect, Request
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from listings.domain.errors import Problem, Unavailable
from listings.http.byte_budget import ByteBudget
from listings.http.large_bodies import LARGE_BODY_BYTES
from listings.site import cookies, pages, presentation, security, visitor
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
        self._budget = ByteBudget()  # of the bodies of each address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        response = _ResponseSender(request, send)
        body = _Body(request, receive, self._max_body_bytes, self._budget)
        try:
            if _has_page(request):
                if not _WEBHOOK.fullmatch(scope["path"]):
                    security.require_same_origin(request)
                body.require_acceptable()
                receive = body.receive
            await self._app(scope, receive, response.send)
        except ClientDisconnect:
            return
        except Problem as problem:
            await (await pages.error_response(request, problem))(scope, receive, response.send)
        except Exception as failure:
            if not response.started:
                _log.exception("Request %s failed", pages.request_id_of(request))
                await (await pages.error_response(request, _INTERNAL_ERROR))(scope, receive, response.send)
            elif isinstance(failure.__cause__, Unavailable):  # Starlette replaces it if a response has started
                _log.warning("Request %s: response cut off: %s", pages.request_id_of(request), failure.__cause__)
            else:
                raise
        finally:
            body.release()


class _Body:
    """Receives the body of a request, which may be large only if there is room for it."""

    def __init__(self, request: Request, receive: Receive, limit: int, budget: ByteBudget) -> None:
        self._request = request
        self._receive = receive
        self._limit = limit
        self._budget = budget
        self._owner = self._received = self._reserved = 0

    def require_acceptable(self) -> None:
        """Raise Problem for a body that is compressed, or too long according to its Content-Length."""
        if self._request.headers.get("content-encoding", "identity").lower() != "identity":
            raise Problem("unsupported_encoding", "The request body must not be compressed")
        content_length = self._request.headers.get("content-length", "").lstrip("0")
        if len(content_length) > _MAX_DIGITS or (content_length.isdecimal() and int(content_length) > self._limit):
            raise _too_large(self._limit)

    async def receive(self) -> Message:
        """Return the next ASGI message. Raises Problem("body_too_large"), or Unavailable if there is no room."""
        message = await self._receive()
        self._received += len(message.get("body", b""))
        if self._received > self._limit:
            raise _too_large(self._limit)
        if self._received > LARGE_BODY_BYTES and not self._reserved:
            self._reserve()
        return message

    def _reserve(self) -> None:
        self._owner = hash(visitor.client_ip(self._request)) or 1  # the bytes of owner 0 are not limited in total
        if not self._budget.has_room(self._owner):
            raise Unavailable("Too many uploads are being received. Try again in a moment", for_visitors=True)
        self._reserved = self._limit
        self._budget.change(self._owner, self._reserved)

    def release(self) -> None:
        """Release the reserved bytes."""
        if self._reserved:
            self._budget.change(self._owner, -self._reserved)


class _ResponseSender:
    """Sends a response with the headers of every page, and without a body if the request method is HEAD."""

    def __init__(self, request: Request, send: Send) -> None:
        self._request = request
        self._send = send
        self.started = False

    async def send(self, message: Message) -> None:
        """Send an ASGI message of the response."""
        if message["type"] == "http.response.start":
            await asyncio.sleep(0)  # rendering and sending a page in one step would delay API requests
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
