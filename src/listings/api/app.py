"""The ASGI application: route, gate, handle, answer. The order of all checks is here (decision G21)."""

import logging
import secrets
from collections.abc import Collection
from itertools import count

from listings.api import cors, wire
from listings.api.limits import LimitHeaders
from listings.api.request import ClientGoneError, Receive, Request, Scope, Send
from listings.api.routes import Endpoint, route
from listings.api.wire import Answer, Headers, MethodNotAllowed
from listings.errors import Problem
from listings.service import Service

_COMMON: Headers = [
    (b"content-type", b"application/json; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
]

_log = logging.getLogger(__name__)


class Application:
    """Answers HTTP requests by the use cases of one service."""

    def __init__(self, service: Service, *, cors_origins: Collection[str] = ()) -> None:
        """`cors_origins`: whose pages may call from a browser; "*" for all."""
        self._service = service
        self._cors_origins = cors_origins
        self._limits = LimitHeaders(service.limiter, service.clock)
        self._id_prefix = secrets.token_hex(6)
        self._numbers = count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI 3, type http."""
        request = Request(scope, receive, f"{self._id_prefix}{next(self._numbers):08x}")
        try:
            answer = await self._answer(request)
        except ClientGoneError:
            return
        await self._send(request, answer, send)

    async def _answer(self, request: Request) -> Answer:
        try:
            endpoint = route(request)
            await self._pass_gate(request, endpoint)
            return await endpoint.handle(self._service, request)
        except MethodNotAllowed as problem:
            if cors.is_preflight(request, self._cors_origins):
                return cors.preflight_answer(problem.allowed)
            return wire.problem_answer(problem, None)
        except Problem as problem:
            return wire.problem_answer(problem, request.verdict)
        except ClientGoneError:
            raise
        except Exception:  # noqa: BLE001 - whatever it is, the client gets the one shape of an error
            _log.exception("Request %s failed", request.id)
            return wire.problem_answer(Problem("internal_error", "Something went wrong on our side"), request.verdict)

    async def _pass_gate(self, request: Request, endpoint: Endpoint) -> None:
        """401, 429, 403 for the plan, then the body: 415, 413."""
        if endpoint.needs_key:
            service = self._service
            request.caller = await service.authenticate(_key_of(request))
            request.verdict = await service.count_request(request.caller)
            if request.verdict is not None and not request.verdict.accepted:
                raise self._limits.refusal(request.verdict)
            service.require_plan(request.caller)
        if endpoint.takes_body:
            await request.read_body()
        else:
            await request.skip_body()

    async def _send(self, request: Request, answer: Answer, send: Send) -> None:
        headers = [
            *_COMMON,
            (b"content-length", b"%d" % len(answer.body)),
            (b"x-request-id", request.id.encode()),
            *self._limits.headers(request.verdict),
            *answer.headers,
        ]
        if self._cors_origins:
            headers += cors.origin_headers(request, self._cors_origins)
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else answer.body})


def _key_of(request: Request) -> str | None:
    """The key that was sent, None when there is none (decisions G22, G23).

    Raises Problem("invalid_api_key") for a header that stands twice with different values.
    """
    sent = request.header_values(b"x-api-key")
    if not sent:
        sent = request.header_values(b"authorization")
        if len(sent) == 1:
            scheme, _, key = sent[0].partition(" ")
            return key.strip(" \t") if scheme.lower() == "bearer" else None
    if len(sent) > 1:
        raise Problem("invalid_api_key", "Invalid API key")
    return sent[0] if sent else None
