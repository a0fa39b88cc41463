"""Faults that a client asks for, so that its developer can test it."""

import asyncio
import re
from typing import Any, NamedTuple, cast

from listings.api import codec
from listings.api.app import Application
from listings.api.request import RequestIds
from listings.domain.errors import Problem
from listings.http.asgi import Exchange, Headers

HEADER = b"x-rehearse"
SLOW_SECONDS = 3.0
PROBLEMS = {
    "429": Problem("rate_limited", "Simulated: the rate limit is reached; try again in 1 second", retry_after=1),
    "503": Problem("unavailable", "Simulated: the service is unavailable, and nothing was written", retry_after=1),
    "plan-expired": Problem("plan_expired", "Simulated: the Business plan has expired"),
    "stale": Problem("precondition_failed", "Simulated: the listing has been edited since it was read"),
}
_FAULTS = ("429", "503", "lost-response", "slow", "plan-expired", "stale")
_VALUE = re.compile(rf"({'|'.join(_FAULTS)}) *; *([\x21-\x7e]{{1,64}})")
_INVALID = f"X-Rehearse must be a fault ({', '.join(_FAULTS)}), a semicolon and a token of at most 64 characters"
_MAX_REMEMBERED = 100_000  # about 20 MB
_KEY_HEADERS = (b"x-api-key", b"authorization")


class _Fault(NamedTuple):
    name: str
    key: bytes  # with key and token, it happens once
    token: str


class Rehearsal:
    """Serves an application, except that it causes the fault of each `X-Rehearse: FAULT;TOKEN` once per API key.

    A repetition with the same headers is served, as after a fault in production. Requests without a key have no faults.
    """

    def __init__(self, application: Application) -> None:
        self._application = application
        self._caused: dict[_Fault, None] = {}
        self._ids = RequestIds()

    async def serve(self, exchange: Exchange) -> None:
        try:
            fault = self._find_fault(exchange.headers)
        except Problem as problem:
            await self._reject(exchange, problem)
            return
        if fault in PROBLEMS:
            await self._reject(exchange, PROBLEMS[fault])
            return
        if fault == "slow":
            await asyncio.sleep(SLOW_SECONDS)
        await self._application.serve(_Lost(exchange) if fault == "lost-response" else exchange)
        if fault == "lost-response":
            cast("Any", exchange).response_started = True  # so the connection is reset instead of a 500

    def _find_fault(self, headers: Headers) -> str:
        sent = dict(headers)
        key = next((sent[name] for name in _KEY_HEADERS if name in sent), b"")
        if HEADER not in sent or not key:
            return ""
        match = _VALUE.fullmatch(sent[HEADER].decode("latin-1").strip(" \t"))
        if match is None:
            raise Problem("invalid_request", _INVALID)
        fault = _Fault(match[1], key, match[2])
        if fault in self._caused:
            return ""
        self._caused[fault] = None
        if len(self._caused) > _MAX_REMEMBERED:
            del self._caused[next(iter(self._caused))]
        return fault.name

    async def _reject(self, exchange: Exchange, problem: Problem) -> None:
        response = codec.build_problem_response(problem)
        head = codec.build_head(response) + response.headers + f"x-request-id: {self._ids.next()}\r\n".encode()
        await exchange.respond(response.status, head, b"" if exchange.method == "HEAD" else response.body)


class _Lost:
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - everything but the response
        return getattr(self._exchange, name)

    async def respond(self, status: int, head: bytes, body: bytes) -> None:
        pass

    async def respond_from(self, status: int, head: bytes, source: object) -> None:
        pass
