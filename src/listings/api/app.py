"""The ASGI application: route, gate, handle, answer. The order of all checks is here (decision G21)."""

import logging
from collections.abc import Callable, Collection, Mapping
from email.utils import formatdate
from time import perf_counter
from typing import TypeAlias

from msgspec import UNSET

from listings.api import codec, cors, response_cache
from listings.api.codec import MethodNotAllowed, Response
from listings.api.endpoints import Endpoint
from listings.api.rate_limit_headers import LimitHeaders
from listings.api.request import MOST_BODY, Request, RequestIds
from listings.api.response_cache import ResponseCache
from listings.api.routes import route
from listings.domain.errors import Problem
from listings.domain.model import Caller
from listings.http.asgi import AsgiExchange, ClientGoneError, Exchange, Pages, Receive, Scope, Send
from listings.service import InactiveKeyError, Service
from listings.telemetry.logs import RequestLine, RequestLog

OnResponse: TypeAlias = Callable[[RequestLine], None]
Trace: TypeAlias = Callable[[RequestLine, Mapping[str, str]], str | None]
"""Makes a span of a request that was answered, given the client's headers of W3C Trace Context; returns its trace."""


_TRACE_CONTEXT = ("traceparent", "tracestate")
_CLIENT_GONE = 499  # what is noted of a visitor who has left before the page was sent

_log = logging.getLogger(__name__)


class Application:
    """Answers HTTP requests by the use cases of one service."""

    def __init__(  # noqa: PLR0913 - all but the service are optional and by name
        self,
        service: Service,
        *,
        cors_origins: Collection[str] = (),
        most_body: int = MOST_BODY,
        most_kept: int = response_cache.MOST_BYTES,
        request_log: RequestLog | None = None,
        on_answer: OnResponse | None = None,
        trace: Trace | None = None,
        pages: Pages | None = None,
    ) -> None:
        """`cors_origins`: whose pages may call from a browser, "*" for all.

        `most_body` and `most_kept` are in bytes: of a request's body, and of all answers kept for another time.

        `on_answer` hears of every answer, `trace` of those to requests; neither may wait. `pages` are asked for
        whatever is neither a path of the API nor below /api.
        """
        self._service = service
        self._cors_origins = cors_origins
        self._most_body = most_body
        self._request_log = request_log
        self._on_answer = on_answer
        self._trace = trace
        self._pages = pages
        self._limits = LimitHeaders(service.limiter, service.clock)
        self._ids = RequestIds()
        self._most_kept = most_kept
        self._kept = ResponseCache(most_kept)

    def clear_response_cache(self) -> None:
        """Answer nothing again that was kept until now, nor what requests that run are about to keep."""
        self._kept.close()
        self._kept = ResponseCache(self._most_kept)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI 3, type http."""
        await self.serve(AsgiExchange(scope, receive, send))

    async def serve(self, exchange: Exchange) -> None:
        """Answer a request; our own server asks here, without the dictionaries of ASGI."""
        started = perf_counter()
        request = Request(exchange, self._ids, self._kept)
        try:
            answer = await self._answer(request)
        except ClientGoneError:
            return
        shown = await self._show(request, exchange) if answer.code == "path_not_found" else None
        if shown is None:
            await exchange.answer(answer.status, self._head(request, answer), _body(request.method, answer))
        else:
            answer = shown
        if self._request_log is not None or self._on_answer is not None or self._trace is not None:
            self._note(request, answer, perf_counter() - started)

    def refusal(self, problem: Problem, method: str) -> bytes:
        """The whole answer to what is no HTTP request; the connection closes behind it.

        `method` is what was understood as such.
        """
        request_id = self._ids.next()
        answer = codec.problem_response(problem)
        self._tell(RequestLine(status=answer.status, request_id=request_id, code=problem.code))
        date = f"date: {formatdate(self._service.clock(), usegmt=True)}\r\n".encode()
        head = date + codec.head_of(answer) + f"x-request-id: {request_id}\r\n".encode() + answer.headers
        return codec.status_line(answer.status) + head + b"connection: close\r\n\r\n" + _body(method, answer)

    async def _answer(self, request: Request) -> Response:
        try:
            endpoint = route(request)
            await self._pass_gate(request, endpoint)
            answer = await endpoint.handle(self._service, request)
        except MethodNotAllowed as refused:
            if cors.is_preflight(request, self._cors_origins):
                return cors.preflight_response(refused.allowed)
            return codec.problem_response(refused)
        except InactiveKeyError as ended:
            return self._counted(request, codec.problem_response(ended), ended.caller)
        except Problem as problem:
            return self._counted(request, codec.problem_response(problem, request.verdict))
        except ClientGoneError:
            raise
        except Exception:  # noqa: BLE001 - whatever it is, the client gets the one shape of an error
            _log.exception("Request %s failed", request.id)
            failure = Problem("internal_error", "Something went wrong on our side")
            return self._counted(request, codec.problem_response(failure, request.verdict))
        else:
            if endpoint.needs_key:
                self._service.record_response(request.caller, answer.status)
            return answer

    def _counted(self, request: Request, answer: Response, caller: Caller | None = None) -> Response:
        """A refusal, of which the owner of the key is to know."""
        caller = caller if caller is not None else getattr(request, "caller", None)
        if caller is not None:
            self._service.record_response(caller, answer.status)
            self._service.record_rejection(
                caller, answer.code or "", answer.status, request.method, request.path, request.id
            )
        return answer

    async def _show(self, request: Request, exchange: Exchange) -> Response | None:
        """Let the pages answer; returns what is to be noted of that, None where they have not answered."""
        if self._pages is None or request.path == "/api" or request.path.startswith("/api/"):
            return None
        scope = exchange.scope
        scope["listings.request_id"] = request.id
        if not await self._pages(scope, exchange.receive, exchange.send):
            return None
        request.route = scope["listings.route"]
        return Response(scope.get("listings.status", _CLIENT_GONE), b"")

    async def _pass_gate(self, request: Request, endpoint: Endpoint) -> None:
        """401, 429, 403 for the plan, then the body: 415, 413."""
        if endpoint.needs_key:
            service = self._service
            request.caller = caller = await service.authenticate(_key_of(request))
            if endpoint.counts:
                request.verdict = await service.count_request(caller)
                if request.verdict is not None and not request.verdict.accepted:
                    raise self._limits.refusal(request.verdict)
            else:
                request.verdict = await service.peek_rate_limit(caller)
            service.require_plan(caller)
        if endpoint.takes_body:
            await request.read_body(self._most_body)
        else:
            await request.skip_body()

    def _head(self, request: Request, answer: Response) -> bytes:
        head = b"%bx-request-id: %b\r\n%b%b" % (
            answer.head or codec.head_of(answer),
            request.id.encode(),
            self._limits.headers(request.verdict),
            answer.headers,
        )
        if self._cors_origins:
            head += cors.origin_headers(request, self._cors_origins)
        return head

    def _note(self, request: Request, answer: Response, seconds: float) -> None:
        caller = getattr(request, "caller", None)
        account_id, key_id = (caller.account_id, caller.key_id) if caller is not None else (None, None)
        milliseconds = round(seconds * 1000, 2)
        line = RequestLine(  # by place, which takes half as long as by name
            "",
            "info",
            "request",
            request.method,
            request.route,
            answer.status,
            milliseconds,
            account_id,
            key_id,
            request.id,
            answer.code,
        )
        if self._trace is not None:
            line.trace_id = self._trace(line, _trace_context(request)) or UNSET
        self._tell(line)

    def _tell(self, line: RequestLine) -> None:
        if self._request_log is not None:
            self._request_log.record(line)
        if self._on_answer is not None:
            self._on_answer(line)


def _body(method: str, answer: Response) -> bytes:
    return b"" if method == "HEAD" else answer.body


def _trace_context(request: Request) -> dict[str, str]:
    """A header that stands more than once is joined, so that a second traceparent makes neither count."""
    return {name: ",".join(request.header_values(name.encode())) for name in _TRACE_CONTEXT}


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
