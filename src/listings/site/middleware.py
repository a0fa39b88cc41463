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
    def __init__(self, request: Request, receive: Receive, limit: int) -> None:
        self._request = request
        self._receive = receive
        self._limit = limit
        self._received: ReceivedBody | None = None
        self._pieces: AsyncIterator[bytes] | None = None

    def require_acceptable(self, limit: int) -> None:
        if self._request.headers.get("content-encoding", "identity").lower() != "identity":
            raise Problem("unsupported_encoding", "The request body must not be compressed")
        content_length = self._request.headers.get("content-length", "").lstrip("0")
        if len(content_length) > _MAX_DIGITS or (content_length.isdecimal() and int(content_length) > limit):
            raise _too_large(limit)

    async def receive(self) -> Message:
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
    def __init__(self, request: Request, send: Send) -> None:
        self._request = request
        self._send = send
        self.started = False

    async def send(self, message: Message) -> None:
        request = self._request
        if message["type"] == "http.response.start":
            await asyncio.sleep(0)  # rendering and sending a page in one step would delay API requests
            exchange: Exchange = request.scope["listings.exchange"]
            exchange.set_owner(visitor.owner_of(request))
            prefix = site_of(request).path_prefix.encode()  # the target of a redirect is always a path of the site
            message["headers"] = [
                *((name, prefix + value if name == b"location" else value) for name, value in message["headers"]),
                *security.headers(request),
                *cookies.list_renewed_cookies(request),
                (b"x-request-id", pages.request_id_of(request).encode()),
            ]
            request.scope["listings.status"] = message["status"]
        else:
            if request.method == "HEAD":
                message = {**message, "body": b""}
            if not message.get("more_body") and hasattr(request.state, "body"):
                request.state.form = None  # the response, complete by now, does not need its memory
                request.state.body.release_memory()
        await self._send(message)
        self.started = message["type"] == "http.response.body"  # the server sends nothing before the first part of it


def _too_large(limit: int) -> Problem:
    return Problem("body_too_large", f"The upload is too large. The limit is {presentation.format_size(limit)}")
