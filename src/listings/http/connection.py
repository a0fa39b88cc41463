"""One connection: deadlines and caps.

uvicorn's protocol over httptools, bounded (OWASP ASVS 13.1.3, 15.2.2; RFC 9112): nothing a client does, or leaves
undone, holds a connection longer than its deadline. A sweep over all connections twice a second looks for those
past theirs, so that a request costs no timer. What the parser refuses gets the API's one shape of an error, behind
all answers that are owed to the requests before.
"""

import logging
import socket
import struct
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias, cast
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from listings.domain.errors import Problem, Unavailable
from listings.http.asgi import path_of
from listings.http.eager import Running, run
from listings.http.exchange import HttpExchange
from listings.http.write_buffer import WriteBuffer

_MOST_DISCARDED = 64 * 1024 * 1024
_DISCARD_SECONDS = 5.0
_LEAST_READ = 64 * 1024  # bytes that a slow reader has to take within the write deadline
_REQUEST_LINE = 1024  # what a head has beside its address and its fields, and more
_MOST_FRAMING = 64 * 1024  # bytes between two pieces of a body's data, or behind the last
_NO_LINGER = struct.pack("ii", 1, 0)
_IN_A_ROW = 8  # requests of one connection

Phase: TypeAlias = Literal[
    "silent",  # connected, nothing has come
    "head",  # a request's head is arriving
    "body",  # its body is arriving
    "busy",  # it is complete and being answered
    "idle",  # it was answered; the connection waits for the next
    "discard",  # it was answered before its body was complete: the rest is read and dropped
    "refused",  # what came is no HTTP: it is told so when all that is owed was answered
    "linger",  # the last answer is out: the client may read it before the connection closes
]

_log = logging.getLogger(__name__)


class ConnectionLimits(NamedTuple):
    """What a connection may take; times in seconds, sizes in bytes."""

    header_seconds: float = 10
    body_seconds: float = 30
    idle_seconds: float = 75
    write_seconds: float = 30
    head_bytes: int = 16 * 1024
    head_fields: int = 100
    url_bytes: int = 8 * 1024
    connections: int = 10_000
    accepted_at_once: int = 16  # in a turn of the loop: more would keep those waiting who are there already


class HttpConnection(HttpToolsProtocol):
    """The protocol of one connection. Its cycles see it as their transport, so that closing may linger."""

    _arriving: HttpExchange  # the request whose body is coming, or came last

    def __init__(
        self,
        bounds: ConnectionLimits,
        refusal: Callable[[Problem, str], bytes],
        outbox: WriteBuffer,
        **of_uvicorn: Any,  # noqa: ANN401 - passed on
    ) -> None:
        """`refusal` makes the whole answer that a problem gets when the application is not asked, to a method.

        `outbox` is that of all connections of the loop.
        """
        super().__init__(**of_uvicorn)
        self.parser = self._fresh_parser()
        self._bounds = bounds
        self._refusal = refusal
        self.outbox = outbox
        self._phase: Phase = "silent"
        self._since = self.loop.time()
        self._running: HttpExchange | None = None
        self._ready: HttpExchange | None = None  # what runs next, when the bytes that have come are parsed
        self._stepping = False
        self._problem: Problem | None = None  # what a refused client is to be told
        self._stopping = False  # nothing more is read; the connection ends with the answers that are owed
        self._upgrading = False
        self._target = b""  # of the present head
        self._began = 0  # how many heads began in the bytes that are being parsed
        self._head_bytes = 0  # what has come of the present head
        self._head_end = b""  # the last bytes of that
        self._most_head = bounds.head_bytes + bounds.url_bytes + _REQUEST_LINE
        self._field_bytes = 0  # the size of its complete fields
        self._hosts = 0  # how many of them are Host
        self._framing = 0  # bytes that have come of the present body since the last that were data
        self._discarded = 0
        self._unread: int | None = None  # what a slow reader had left when it was last looked at

    # The connection

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401 - asyncio's and uvloop's have no common type
        """Refuse a connection beyond the bound."""
        super().connection_made(transport)
        if len(self.connections) > self._bounds.connections:
            self._enter("linger")
            self.transport.write(self._refusal(Unavailable("Too many connections"), ""))
            self.transport.close()  # at once: it has no place to be waited for in

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the requests that are not answered yet."""
        self._disconnect_all()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio reads what is returned
        """A client that has sent all its requests still gets its answers; True keeps the connection for them."""
        self.outbox.flush()
        if self._running is None or self._phase != "busy":
            return False
        self._stopping = True
        return True

    def data_received(self, data: bytes) -> None:
        """Bytes of the client."""
        if self._phase in {"refused", "linger"}:
            self._discard(len(data))
            return
        fresh = self._phase in {"silent", "idle"}
        if fresh:
            self._enter("head")
            self._head_bytes, self._head_end = 0, b""
        if self._phase == "head" and len(data) > self._most_head - self._head_bytes:
            data = self._cut(data)
        self._began = 0
        self._framing += len(data)
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            self._refuse(_problem_of(error))
        else:
            self._count(data, fresh=fresh)
        if self._ready is not None and not self._stepping:
            self._run_ready()

    def _cut(self, data: bytes) -> bytes:
        """As much of a head as is too much, where it ends too late: the parser would pass over any space in it."""
        room = max(0, self._most_head - self._head_bytes)
        ends_in_time = b"\r\n\r\n" in self._head_end + data[:room]
        return data if ends_in_time else data[: room + 1]

    def _count(self, data: bytes, *, fresh: bool) -> None:
        """Refuse what comes and comes, and is neither a whole head nor a body's data."""
        if self._phase == "head":
            self._count_head(data, fresh=fresh)
        elif self._framing > _MOST_FRAMING and self._phase in {"body", "discard"}:
            self._refuse(_malformed("The chunks of the body have too much around their data"))

    def _count_head(self, data: bytes, *, fresh: bool) -> None:
        """Refuse a head that does not end. `fresh`: the bytes are the first of a request."""
        if fresh or self._began:
            self._head_bytes = 0
        if self._began <= fresh:  # else it is not known where in the bytes it began; they are few in any case
            self._head_bytes += len(data)
        self._head_end = (self._head_end + data)[-3:]
        if self._head_bytes > self._most_head:
            self._refuse(self._head_too_large())

    def _feed(self, data: bytes) -> None:
        """Parse; raises HttpParserError.

        No protocol is upgraded to (Java's client offers h2c by default). The parser takes what follows an offer for
        another protocol, and would lose the request's body: it gets the head again, without the offer.
        """
        rest: bytes | memoryview = data
        while True:
            try:
                self.parser.feed_data(rest)
            except httptools.HttpParserUpgrade as upgrade:
                rest = memoryview(rest)[upgrade.args[0] :]  # to copy it for each of very many offers would take long
            else:
                return
            self._feed_without_offer()  # not while that is handled: it would take the place of what is raised

    def _feed_without_offer(self) -> None:
        lines = [
            b"%s: %s\r\n" % (name, _without_upgrade(value) if name == b"connection" else value)
            for name, value in self.headers
            if name not in {b"upgrade", b"http2-settings"}
        ]
        version = self.parser.get_http_version().encode()
        head = b"%s %s HTTP/%s\r\n%s\r\n" % (self.parser.get_method(), self._target, version, b"".join(lines))
        self._upgrading = False
        self.parser = self._fresh_parser()
        self.parser.feed_data(head)

    def _fresh_parser(self) -> httptools.HttpRequestParser:
        """One that takes what is behind a last request, as uvicorn's does, and versions, which are judged here."""
        parser = httptools.HttpRequestParser(self)
        parser.set_dangerous_leniencies(lenient_data_after_close=True, lenient_version=True)
        return parser

    # What the parser finds

    def on_message_begin(self) -> None:
        """A head begins."""
        self._target = b""
        self.headers = []
        self.expect_100_continue = False
        self._began += 1
        self._field_bytes = 0
        self._hosts = 0
        if self._phase != "head":
            self._enter("head")

    def on_url(self, url: bytes) -> None:
        """A piece of the address."""
        self._target += url
        if len(self._target) > self._bounds.url_bytes:
            raise Problem("uri_too_long", f"The address must be at most {self._bounds.url_bytes} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A whole field."""
        self._field_bytes += len(name) + len(value) + 4
        if len(self.headers) >= self._bounds.head_fields or self._field_bytes > self._bounds.head_bytes:
            raise self._head_too_large()
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        elif name == b"host":
            self._hosts += 1
        elif name == b"transfer-encoding":
            self._check_coding(value)
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is complete: hand the request to the application, or put it behind those before it."""
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            self._upgrading = True
            return
        version = self.parser.get_http_version()
        self._check_head(version)
        self._arriving = HttpExchange(
            self,
            self.parser.get_method().decode("ascii"),
            _split_target(self._target),
            self.headers,
            version,
            keep_alive=version == "1.1" and self.parser.should_keep_alive(),
        )
        self.headers = []  # what comes behind the body as a trailer is no header (RFC 9110, 6.5.1)
        self._framing = 0
        self._enter("body")
        if self._running is None:
            self._running = self._ready = self._arriving
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self._arriving, self.app))

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        cycle = self._arriving
        self._framing = 0
        if cycle.response_complete:
            self._discard(len(body))
            return
        cycle.body.extend(body)
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        """The request is complete."""
        if self._upgrading:
            return
        self._enter("idle" if self._phase == "discard" else "busy")
        self._arriving.more_body = False
        self._arriving.message_event.set()

    def _check_coding(self, coding: bytes) -> None:
        """Refuse what would leave it open where the body ends, or what its data are (RFC 9112, 6.1)."""
        stands_already = any(name == b"transfer-encoding" for name, _ in self.headers)
        if stands_already or coding.strip(b" \t").lower() != b"chunked":
            raise _malformed("Transfer-Encoding must be chunked alone")

    def _check_head(self, version: str) -> None:
        if version not in {"1.0", "1.1"}:
            raise Problem("version_not_supported", "Only HTTP/1.1 and HTTP/1.0 are spoken here")
        if self.parser.get_method() == b"CONNECT":
            raise _malformed("CONNECT is not possible here")
        if self._hosts > 1 or (self._hosts == 0 and version == "1.1"):
            raise _malformed("Exactly one Host header is needed")

    # The answers

    def _run_ready(self) -> None:
        """Run requests until one has to wait; a client that sends very many at once lets others have their turn."""
        self._stepping = True
        try:
            for _ in range(_IN_A_ROW):
                cycle, self._ready = self._ready, None
                if cycle is None:
                    return
                run(cycle.run(cast("Any", self.app)), self._start_task)
        finally:
            self._stepping = False
        self.loop.call_soon(self._run_ready)

    def _start_task(self, rest: Running) -> None:
        task = self.loop.create_task(rest)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def on_response_complete(self) -> None:
        """An answer is out: the next request's turn, or what follows the last one."""
        self.server_state.total_requests += 1
        self._running = None
        if self.transport.is_closing() or self._phase == "linger":
            return
        if self.pipeline:
            self._running = self._ready = cast("HttpExchange", self.pipeline.pop()[0])
        if not self.pipeline:  # else there is enough to do, and more would be kept in memory
            self.flow.resume_reading()
        if self._running is not None:
            if not self._stepping:
                self._run_ready()
        elif self._problem is not None:
            self._tell_problem(self._problem)
        elif self._stopping:
            self.close()
        elif self._phase == "busy":
            self._enter("idle")
        elif self._phase == "body":
            self._enter("discard")

    def _refuse(self, problem: Problem) -> None:
        """Take nothing more from the client; tell it the problem when all that is owed was answered."""
        if self._phase in {"refused", "linger"} or self.transport.is_closing():
            return
        if self._phase == "body":
            if self._arriving.response_started:
                self.drop()
                return
            self._abandon(self._arriving)
        if self._phase == "discard":
            self._linger()
            return
        self._problem = problem
        self._enter("refused")
        if self._running is None:
            self._tell_problem(problem)

    def _abandon(self, cycle: HttpExchange) -> None:
        """Its body will never be complete: the application sees the client leave, and answers nothing."""
        cycle.disconnected = True
        cycle.message_event.set()
        if cycle is self._running:
            self._running = self._ready = None
        else:
            self.pipeline.popleft()

    def _tell_problem(self, problem: Problem) -> None:
        self.write(self._refusal(problem, self.parser.get_method().decode("ascii")))
        self._linger()

    def fail(self, cycle: HttpExchange) -> None:
        """Answer for an application that can't: 500 where nothing was said yet; the connection ends either way."""
        if cycle.response_started or cycle.disconnected:
            self.drop()
            return
        cycle.response_started = cycle.response_complete = True
        self.write(self._refusal(Problem("internal_error", "Something went wrong on our side"), cycle.method))
        self.close()

    # The end

    def stop(self) -> None:
        """The service stops: answer what has arrived, say with each answer that it is the last one."""
        self._stopping = True
        last = self.pipeline[0][0] if self.pipeline else self._running
        if last is not None:
            last.keep_alive = False

    def end_quiet(self, now: float, quiet_for: float) -> None:
        """While the service stops: close when nothing is under way and nothing has come for so long."""
        if self._phase in {"silent", "idle"} and now - self._since >= quiet_for:
            self._close()

    def write(self, data: bytes) -> None:
        """As a transport does."""
        self.outbox.flush()
        self.transport.write(data)

    def is_closing(self) -> bool:
        """As a transport does."""
        return self.transport.is_closing()

    def close(self) -> None:
        """Close behind the last answer; a client that is still sending gets time to read it first.

        To close a socket with unread bytes makes the kernel reset the connection, and the answer is lost.
        """
        if self._phase in {"busy", "idle"}:
            self._close()
        else:
            self._linger()

    def _close(self) -> None:
        self.outbox.flush()
        self.transport.close()

    def _linger(self) -> None:
        if self._phase != "linger":
            self._enter("linger")
            self.flow.resume_reading()
            self.outbox.flush()
            if not self.transport.is_closing():
                self.transport.write_eof()

    def _discard(self, size: int) -> None:
        self._discarded += size
        if self._discarded > _MOST_DISCARDED:
            self.drop()

    def drop(self) -> None:
        """End the connection now, whatever was not written yet; the kernel too is not to keep it for the client."""
        self._disconnect_all()
        if not self.transport.is_closing():
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self.transport.abort()

    def _disconnect_all(self) -> None:
        for cycle in [self._running, *(cast("HttpExchange", cycle) for cycle, _ in self.pipeline)]:
            if cycle is not None:
                cycle.disconnected = True
                cycle.message_event.set()
        self.pipeline.clear()

    def _enter(self, phase: Phase) -> None:
        self._phase = phase
        self._since = self.loop.time()
        self._discarded = 0

    # Deadlines

    def sweep(self, now: float) -> None:
        """Look whether the connection is past its deadline."""
        bounds, waited = self._bounds, now - self._since
        if self.flow.write_paused or self.transport.is_closing():
            self._watch_reader(now)
            return
        self._unread = None
        if self.flow.read_paused:  # what it sends has to wait for answers to what it has sent
            self._since = now
        elif self._phase == "head" and waited > bounds.header_seconds:
            self._refuse(_timeout("headers", bounds.header_seconds))
        elif self._phase == "body" and waited > bounds.body_seconds:
            self._refuse(_timeout("body", bounds.body_seconds))
        elif (self._phase == "silent" and waited > bounds.header_seconds) or (
            self._phase == "idle" and waited > bounds.idle_seconds
        ):
            self._close()
        elif self._phase in {"discard", "linger"} and waited > _DISCARD_SECONDS:
            self.drop()

    def _watch_reader(self, now: float) -> None:
        """A client that takes less than 64 KiB of its answer within the deadline is dropped."""
        unread = self.transport.get_write_buffer_size()
        if self._unread is None or unread <= self._unread - _LEAST_READ:
            self._unread, self._unread_since = unread, now
        elif now - self._unread_since > self._bounds.write_seconds:
            self.drop()

    def _head_too_large(self) -> Problem:
        bounds = self._bounds
        return Problem(
            "header_too_large", f"The headers must be at most {bounds.head_fields} fields of {bounds.head_bytes} bytes"
        )

    def _unset_keepalive_if_required(self) -> None:
        """No timer is set: the sweep looks after idle connections."""


def _split_target(target: bytes) -> tuple[bytes, str, bytes]:
    """Path as it was sent, path as it is routed, and query of a target in any of its forms (RFC 9112, 3.2)."""
    if target.startswith(b"/") and b"#" not in target:
        raw, _, query = target.partition(b"?")
    elif target == b"*":
        raw, query = target, b""
    else:
        parsed: Any = httptools.parse_url(target)  # of which a part that is not there is None, whatever its types say
        raw, query = parsed.path or b"/", parsed.query or b""
    path = raw.decode("ascii")
    return raw, path_of(raw, unquote(path)) if "%" in path else path, query


def _without_upgrade(connection: bytes) -> bytes:
    options = (option.strip() for option in connection.split(b","))
    return b", ".join(option for option in options if option.lower() not in {b"upgrade", b"http2-settings"})


def _problem_of(error: httptools.HttpParserError) -> Problem:
    if isinstance(error.__context__, Problem):
        return error.__context__
    if isinstance(error, httptools.HttpParserInvalidURLError):
        return _malformed("The request's address is not valid: what is not ASCII has to be percent-encoded")
    return _malformed("The request is not valid HTTP")


def _malformed(text: str) -> Problem:
    return Problem("malformed_request", text)


def _timeout(what: str, seconds: float) -> Problem:
    return Problem("request_timeout", f"The request's {what} took longer than {seconds:g} seconds")
