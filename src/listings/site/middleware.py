"""What is around every page: bounds of a form, its origin, headers, and an answer whatever fails."""

import logging
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from starlette.requests import ClientDisconnect, Request
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from listings.domain.errors import Problem
from listings.site import pages, presentation, security

Message: TypeAlias = MutableMapping[str, Any]
_MOST_DIGITS = 15
_BY_PROGRAMS = re.compile(r"/payments/[a-z]+/webhook")  # who sends to it proves it otherwise than by an origin
_FAULT = Problem("internal_error", "Something went wrong on our side: try again in a moment")

_log = logging.getLogger(__name__)


class Shell:
    """The middleware around the routes; what has no page goes on unread, since 404 and 405 come first (G21)."""

    def __init__(self, app: ASGIApp, most_body: int) -> None:
        """`most_body` is in bytes."""
        self._app = app
        self._most_body = most_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI 3, type http."""
        request = Request(scope)
        answer = _Answer(request, send)
        try:
            if _has_page(request):
                if not _BY_PROGRAMS.fullmatch(scope["path"]):
                    security.require_same_origin(request)
                receive = self._bounded(request, receive)
            await self._app(scope, receive, answer.send)
        except ClientDisconnect:
            return
        except Problem as problem:
            await (await pages.refusal(request, problem))(scope, receive, answer.send)
        except Exception:
            if answer.begun:
                raise
            _log.exception("Request %s failed", pages.request_id_of(request))
            await (await pages.refusal(request, _FAULT))(scope, receive, answer.send)

    def _bounded(self, request: Request, receive: Receive) -> Callable[[], Awaitable[Message]]:
        """The body, no longer than allowed. Raises Problem: unsupported_encoding, body_too_large."""
        most, taken = self._most_body, 0
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise Problem("unsupported_encoding", "What is sent must not be compressed")
        announced = request.headers.get("content-length", "").lstrip("0")
        if len(announced) > _MOST_DIGITS or (announced.isdecimal() and int(announced) > most):
            raise _too_large(most)

        async def take() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > most:
                raise _too_large(most)
            return message

        return take


class _Answer:
    """Sends with the headers of every page, and to HEAD no body."""

    def __init__(self, request: Request, send: Send) -> None:
        self._request = request
        self._send = send
        self.begun = False

    async def send(self, message: Message) -> None:
        """A message of the page."""
        if message["type"] == "http.response.start":
            self.begun = True
            named = (b"x-request-id", pages.request_id_of(self._request).encode())
            message["headers"] = [*message["headers"], *security.headers(self._request), named]
            self._request.scope["listings.status"] = message["status"]
        elif self._request.method == "HEAD":
            message = {**message, "body": b""}
        await self._send(message)


def _has_page(request: Request) -> bool:
    """Whether there is something at this path for this method."""
    return any(route.matches(request.scope)[0] is Match.FULL for route in request.app.routes)


def _too_large(most: int) -> Problem:
    return Problem("body_too_large", f"What you send must be at most {presentation.size_of(most)}")
