"""Middleware around every page: size limit of forms, origin check, response headers, and a response to any error."""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, MutableMapping
from contextlib import AsyncExitStack
from typing import Any, TypeAlias

from starlette.requests import ClientDisconnect, Request
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from listings.domain.errors import Problem, Unavailable
from listings.http.asgi import Exchange
from listings.http.large_bodies import LARGE_BODY_BYTES, ReceivedBody
from listings.site import cookies, pages, presentation, security, visitor
from listings.site.context import site_of
from listings.site.uploads import MAX_FORM_BYTES, is_upload

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
        held = request.state.held = AsyncExitStack()
        response = _ResponseSender(request, send)
        body = _Body(request, receive, self._max_body_bytes)
        try:
            if any(route.matches(request.scope)[0] is Match.FULL for route in request.app.routes):
                if not _WEBHOOK.fullmatch(scope["path"]):
                    security.require_same_origin(request)
                body.require_acceptable(MAX_FORM_BYTES if is_upload(request) else self._max_body_bytes)
                receive = body.receive
                request.state.collect_body, request.state.stream_upload = body.collect, body.stream
            await self._app(scope, receive, response.send)
        except ClientDisconnect:
            return
        except Problem as problem:
            await (await pages.error_response(request, problem))(scope, receive, response.send)
        except Exception as failure:
            cause = failure.__cause__  # Starlette replaces it if a response has begun
            if response.started and isinstance(cause, Unavailable):
                _log.warning("Request %s: response cut off: %s", pages.request_id_of(request), cause)
            elif response.started:
                raise
            elif isinstance(cause, Unavailable):  # there is no room for the response
                await (await pages.error_response(request, cause))(scope, receive, response.send)
            else:
                _log.exception("Request %s failed", pages.request_id_of(request))
                await (await pages.error_response(request, _INTERNAL_ERROR))(scope, receive, response.send)
        finally:
            # Or the request would refer to itself, and keep the form in memory.
            request.state.collect_body = request.state.stream_upload = None
            await held.aclose()


class _Body:
    """Receives the whole body of a request before the page gets it. Only a member's may be large."""

    def __init__(self, request: Request, receive: Receive, limit: int) -> None:
        self._request = request
        self._receive = receive
        self._limit = limit
        self._received: ReceivedBody | None = None
        self._pieces: AsyncIterator[bytes] | None = None

    def require_acceptable(self, limit: int) -> None:
        """Raise Problem for a body that is compressed, or too long according to its Content-Length."""
        if self._request.headers.get("content-encoding", "identity").lower() != "identity":
            raise Problem("unsupported_encoding", "The request body must not be compressed")
        content_length = self._request.headers.get("content-length", "").lstrip("0")
        if len(content_length) > _MAX_DIGITS or (content_length.isdecimal() and int(content_length) > limit):
            raise _too_large(limit)

    async def receive(self) -> Message:
        """Return the next ASGI message. Raises Problem("body_too_large"), or Unavailable if there is no room."""
        if self._received is None:
            try:
                await self.collect()
            except ClientDisconnect:
                return {"type": "http.disconnect"}
        if self._pieces is None:
            return await self._receive()
        await asyncio.sleep(0)  # between two pieces of a form, which take milliseconds to parse
        piece = await anext(self._pieces, b"")
        if not piece:
            self._pieces = None
        return {"type": "http.request", "body": piece, "more_body": bool(piece)}

    async def stream(self, limit: int) -> AsyncGenerator[bytes, None]:
        """Yield the body of a form with pictures as it arrives. Raises Problem("body_too_large"), ClientDisconnect."""
        received: ReceivedBody = self._request.scope["listings.body"]
        size, more = 0, not received.is_complete
        async for piece in received.read_pieces():
            size += len(piece)
            yield piece
        while more:
            piece, more = await self._receive_part()
            size += len(piece)
            if size > limit:
                raise _too_large(limit)
            yield piece

    async def collect(self) -> None:
        """Receive the body, and wait until it may be in memory.

        Raises Problem("body_too_large"), Unavailable if there is no room, ClientDisconnect.
        """
        try:
            await self._collect()
        except Unavailable as full:
            text = "Too many uploads are being received. Try again in a moment"
            raise Unavailable(text, for_visitors=True) from full

    async def _collect(self) -> None:
        kind, owner = visitor.owner_of(self._request)
        if kind != "console":  # no form of visitors is larger, and no event of a payment provider
            self._limit = min(self._limit, LARGE_BODY_BYTES)
            self.require_acceptable(self._limit)
        received: ReceivedBody = self._request.scope["listings.body"]
        self._request.state.body = self._received = received
        received.set_limit(self._limit, _too_large(self._limit))
        received.set_owner(owner)
        exchange: Exchange = self._request.scope["listings.exchange"]
        if exchange.disconnected:
            raise ClientDisconnect
        while await received.needs_more():
            received.add(await self._receive_part())
        await received.finish_receiving()
        self._pieces = received.read_pieces()

    async def _receive_part(self) -> tuple[bytes, bool]:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        return message.get("body", b""), message.get("more_body", False)


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
            exchange: Exchange = self._request.scope["listings.exchange"]
            exchange.set_owner(visitor.owner_of(self._request))
            request_id = (b"x-request-id", pages.request_id_of(self._request).encode())
            message["headers"] = [
                *map(self._add_prefix, message["headers"]),
                *security.headers(self._request),
                *cookies.list_renewed_cookies(self._request),
                request_id,
            ]
            self._request.scope["listings.status"] = message["status"]
        else:
            if self._request.method == "HEAD":
                message = {**message, "body": b""}
            if not message.get("more_body"):
                self._release_form()
        await self._send(message)
        self.started = message["type"] == "http.response.body"  # the server sends nothing before the first part of it

    def _release_form(self) -> None:
        """Release the memory of the form, which the response, complete by now, does not need."""
        if hasattr(self._request.state, "body"):
            self._request.state.form = None
            self._request.state.body.release_memory()

    def _add_prefix(self, header: Header) -> Header:
        """Add the path prefix of the site's URL to the target of a redirect, which is always a path of the site."""
        name, value = header
        return (name, site_of(self._request).path_prefix.encode() + value) if name == b"location" else header


def _too_large(limit: int) -> Problem:
    return Problem("body_too_large", f"The upload is too large. The limit is {presentation.format_size(limit)}")
