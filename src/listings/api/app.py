"""The ASGI application: route, check, handle, respond. The checks run in the order of decision G21."""

import logging
from collections.abc import Callable, Collection, Mapping
from email.utils import formatdate
from time import perf_counter
from typing import NamedTuple, TypeAlias

from msgspec import UNSET
from msgspec.structs import replace

from listings.api import codec, cors, params, response_cache
from listings.api.codec import MethodNotAllowed, Response
from listings.api.compression import Compressor
from listings.api.endpoints import Endpoint
from listings.api.lists import Lists
from listings.api.rate_limit_headers import RateLimitHeaders
from listings.api.request import Request, RequestIds
from listings.api.response_cache import ResponseCache
from listings.api.routes import remove_prefix, route
from listings.domain.errors import Problem, Unavailable
from listings.domain.model import Caller
from listings.http.asgi import (
    LARGE_RESPONSE_BYTES,
    SHARED,
    AsgiExchange,
    BodyStream,
    ClientDisconnectedError,
    Exchange,
    Pages,
    Receive,
    Scope,
    Send,
)
from listings.http.body_files import LISTS, REQUESTS, UPLOADS, BodyFolder
from listings.http.large_bodies import LargeBodies
from listings.http.uvicorn_base import STATUS_LINE
from listings.queues import FairQueue
from listings.service import Services
from listings.service.access import InactiveKeyError, require_write_access
from listings.telemetry.logs import RequestLine, RequestLog

OnResponse: TypeAlias = Callable[[RequestLine], None]
Trace: TypeAlias = Callable[[RequestLine, Mapping[str, str]], str | None]
"""Records a span for a completed request, given the client's W3C Trace Context headers. Returns the trace id."""


_TRACE_CONTEXT = ("traceparent", "tracestate")
_READING = {"GET", "HEAD"}
_DRY_RUN_PAUSE = 0.003  # seconds between long steps of dry runs, which take about 1 ms each
_BODY_WEIGHT = 4  # decoded, a body takes several times its bytes
_CLIENT_GONE = 499  # logged if a visitor leaves before the page is sent

_TEST_MODE = b"x-test-mode: true\r\n"

_log = logging.getLogger(__name__)


class Options(NamedTuple):
    """The operator's configuration. The callbacks must not block."""

    cors_origins: Collection[str] = ()  # origins whose web pages may call the API; "*" allows all
    max_cache_bytes: int = response_cache.MAX_BYTES
    list_folder: BodyFolder | None = None  # for large lists; None: in the system's folder of temporary files
    body_folder: BodyFolder | None = None  # for large request bodies
    upload_folder: BodyFolder | None = None  # for pictures that are being received
    request_log: RequestLog | None = None
    on_response: OnResponse | None = None  # gets every response
    trace: Trace | None = None  # gets every response to a valid HTTP request
    pages: Pages | None = None  # gets the other paths, except those below /api, without the prefix


DEFAULTS = Options()


class Application:
    """Serves HTTP requests with the use cases of one service."""

    def __init__(self, services: Services, options: Options = DEFAULTS) -> None:
        self._services = services
        self._path_prefix = services.about.path_prefix
        self._cors_origins = options.cors_origins
        self._vary = cors.format_vary(options.cors_origins, compressible=True)
        self._error_vary = cors.format_vary(options.cors_origins, compressible=False)
        self._request_log = options.request_log
        self._on_response = options.on_response
        self._trace = options.trace
        self._pages = options.pages
        self._limits = RateLimitHeaders(services.limiter, services.clock)
        self._ids = RequestIds()
        self._max_cache_bytes = options.max_cache_bytes
        self._response_cache = ResponseCache(services, options.max_cache_bytes)
        self._lists = Lists(services, options.list_folder or BodyFolder(None, LISTS))
        self._compressor = Compressor()
        self._dry_runs = FairQueue(_DRY_RUN_PAUSE)
        self._large_bodies = LargeBodies(options.body_folder or BodyFolder(None, REQUESTS), _BODY_WEIGHT)
        self._uploads = LargeBodies(options.upload_folder or BodyFolder(None, UPLOADS))
        services.revisions.on_reset(self._clear_response_cache)

    def _clear_response_cache(self) -> None:
        self._response_cache.close()  # running requests may be about to cache responses in it
        self._lists.clear()
        self._response_cache = ResponseCache(self._services, self._max_cache_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI 3 request of type http."""
        await self.serve(AsgiExchange(scope, receive, send))

    async def serve(self, exchange: Exchange) -> None:
        """Serve one request. Our own server calls this directly, which saves ASGI's dictionaries."""
        started = perf_counter()
        request = Request(exchange, self._ids, self._response_cache, self._lists, self._dry_runs)
        try:
            response = await self._respond(request, exchange)
            page = await self._serve_page(request, exchange) if response.code == "path_not_found" else None
        except ClientDisconnectedError:
            return
        except Unavailable as full:  # too many pages wait; one with this error would take longer than to wait
            response, page = codec.build_problem_response(full), None
        finally:
            request.release_body()
        if page is not None:
            response = page
        elif response.file is None:
            await exchange.respond(
                response.status, self._build_head(request, response), _body(request.method, response)
            )
        else:
            await self._send_file(request, exchange, response, response.file)
        if self._request_log is not None or self._on_response is not None or self._trace is not None:
            self._record(request, response, perf_counter() - started)

    def render_error(self, problem: Problem, method: str) -> bytes:
        """Return the complete response for a problem of the connection, which closes after it.

        `method` is the request method as far as it could be parsed.
        """
        request_id = self._ids.next()
        response = codec.build_problem_response(problem)
        self._emit(RequestLine(status=response.status, request_id=request_id, code=problem.code))
        date = f"date: {formatdate(self._services.clock(), usegmt=True)}\r\n".encode()
        head = date + codec.build_head(response) + f"x-request-id: {request_id}\r\n".encode() + response.headers
        return STATUS_LINE[response.status] + head + b"connection: close\r\n\r\n" + _body(method, response)

    async def _respond(self, request: Request, exchange: Exchange) -> Response:
        try:
            endpoint = route(request, self._path_prefix)
            await self._check(request, exchange, endpoint)
            response = await endpoint.handle(self._services, request)
            if request.names_encodings:
                response = await self._compressor.compress(response, request.encodings, request.cache)
        except MethodNotAllowed as wrong_method:  # a name of its own: mypyc gives each variable one type
            if cors.is_preflight(request, self._cors_origins):
                return cors.build_preflight_response(wrong_method.allowed)
            return codec.build_problem_response(wrong_method, detailed=request.wants_details)
        except InactiveKeyError as ended:
            _explain_key(request, ended)
            response = codec.build_problem_response(ended, detailed=request.wants_details)
            return self._record_rejection(request, response, ended, ended.caller)
        except Problem as problem:
            _explain_key(request, problem)
            problem.__traceback__ = None  # it is part of a reference cycle, and its frames may hold large listings
            return self._reject(request, problem)
        except ClientDisconnectedError:
            raise
        except Exception as error:  # noqa: BLE001 - every failure gets the API's one error format
            _log.exception("Request %s failed", request.id)
            return self._reject(request, _explain(error))
        else:
            return self._accept(request, exchange, endpoint, response)

    def _accept(self, request: Request, exchange: Exchange, endpoint: Endpoint, response: Response) -> Response:
        if response.is_shared:
            exchange.set_owner(SHARED)
        size = len(response.body) if response.file is None else LARGE_RESPONSE_BYTES
        if size >= LARGE_RESPONSE_BYTES and request.method != "HEAD":
            try:  # the response to a write, which has happened, needs no room
                is_written = request.method not in _READING
                exchange.reserve(size, is_admitted=is_written, is_immediate=response.file is None)
            except Unavailable as full:
                if response.file is not None:
                    response.file.release()
                return self._reject(request, full)
        if endpoint.needs_key:
            self._services.usage.record_response(request.caller, response.status)
        if request.query or request.has_idempotency_key:
            return _name_ignored_parameters(request, endpoint, response)
        return response

    def _reject(self, request: Request, problem: Problem) -> Response:
        response = codec.build_problem_response(problem, request.decision, detailed=request.wants_details)
        return self._record_rejection(request, response, problem)

    def _record_rejection(
        self, request: Request, response: Response, problem: Problem, caller: Caller | None = None
    ) -> Response:
        caller = caller if caller is not None else getattr(request, "caller", None)
        if caller is not None:
            self._services.usage.record_response(caller, response.status)
            self._services.usage.record_rejection(  # the key's owner sees it in the console
                caller, problem, response.status, request.method, request.path, request.id
            )
        return response

    async def _send_file(self, request: Request, exchange: Exchange, response: Response, file: BodyStream) -> None:
        try:
            head = self._build_head(request, response)
            if request.method == "HEAD":
                await exchange.respond(response.status, head, b"")
            else:
                await exchange.respond_from(response.status, head, file)
        finally:
            file.release()

    async def _serve_page(self, request: Request, exchange: Exchange) -> Response | None:
        # Returns the response to log, or None if there is no such page.
        if self._pages is None or request.path in {"", "/api"} or request.path.startswith("/api/"):
            return None
        scope = exchange.scope
        if self._path_prefix:
            scope["path"] = remove_prefix(scope["path"], self._path_prefix)
        scope["listings.request_id"], scope["listings.exchange"] = request.id, exchange
        try:
            if not await self._pages(scope, exchange.receive, exchange.send):
                return None
            request.route = scope["listings.route"]
            return Response(scope.get("listings.status", _CLIENT_GONE), b"")
        finally:
            scope.clear()  # it is part of reference cycles, and its state holds what the page has read

    async def _check(self, request: Request, exchange: Exchange, endpoint: Endpoint) -> None:
        # In this order: key (401), rate limit (429), plan and access (403), body (415, 413).
        if endpoint.needs_key:
            services = self._services
            request.caller = caller = await services.access.authenticate(request.read_key())
            request.is_test = caller.test_of is not None
            exchange.set_owner(("api", caller.account_id))
            if endpoint.counts:
                request.decision = await services.access.count_request(caller)
                if request.decision is not None and not request.decision.accepted:
                    raise self._limits.build_problem(request.decision)
            else:
                request.decision = await services.access.peek_rate_limit(caller)
            services.access.require_plan(caller)
            if request.method not in _READING:
                require_write_access(caller)
        if endpoint.takes_upload:
            has_waited = await request.receive_upload(self._uploads)
        elif endpoint.takes_body:
            has_waited = await request.read_body(self._large_bodies)
        else:
            has_waited = await request.skip_body()
        if has_waited and endpoint.needs_key:  # the key may have been revoked while the body arrived
            request.caller = await self._services.access.authenticate(request.read_key())
            self._services.access.require_plan(request.caller)

    def _build_head(self, request: Request, response: Response) -> bytes:
        head = b"%bx-request-id: %b\r\n%b%b%b%b" % (
            response.head or codec.build_head(response),
            request.id.encode(),
            self._limits.format(request.decision),
            response.headers,
            _TEST_MODE if request.is_test else b"",
            self._vary if response.code is None else self._error_vary,
        )
        if self._cors_origins:
            head += cors.format_origin_headers(request, self._cors_origins)
        return head

    def _record(self, request: Request, response: Response, seconds: float) -> None:
        caller = getattr(request, "caller", None)
        account_id, key_id = (caller.account_id, caller.key_id) if caller is not None else (None, None)
        milliseconds = round(seconds * 100_000) / 100  # takes a fifth of the time of rounding to digits
        line = RequestLine(  # positional arguments take half as long as keywords
            "",
            "info",
            "request",
            request.method,
            request.route,
            response.status,
            milliseconds,
            account_id,
            key_id,
            request.id,
            response.code,
        )
        if self._trace is not None:
            # Repeated headers are joined, so that two traceparent headers are invalid.
            context = {name: ",".join(request.header_values(name.encode())) for name in _TRACE_CONTEXT}
            line.trace_id = self._trace(line, context) or UNSET
        self._emit(line)

    def _emit(self, line: RequestLine) -> None:
        if self._request_log is not None:
            self._request_log.record(line)
        if self._on_response is not None:
            self._on_response(line)


def _explain(failure: Exception) -> Problem:
    if isinstance(failure, MemoryError):
        return Unavailable("There is not enough memory")
    return Problem("internal_error", "Something went wrong on our side")


def _explain_key(request: Request, problem: Problem) -> None:
    if problem.code == "invalid_api_key" and request.has_two_keys:
        problem.message += " in X-API-Key, which counts before Authorization"


def _name_ignored_parameters(request: Request, endpoint: Endpoint, response: Response) -> Response:
    if endpoint.operation is None:  # it has no parameters, and needs no key
        return response
    names = params.find_unknown(request.query, endpoint.operation.parameters) if request.query else []
    if "Idempotency-Key" not in endpoint.operation.headers and request.header(b"idempotency-key"):
        names = [*names, "Idempotency-Key"]
    return replace(response, headers=response.headers + codec.format_ignored_parameters(names)) if names else response


def _body(method: str, response: Response) -> bytes:
    return b"" if method == "HEAD" else response.body
