"""One connection: its requests, deadlines and limits.

This is uvicorn's httptools protocol with limits (OWASP ASVS 13.1.3, 15.2.2; RFC 9112). Each phase in which the
connection waits for the client has a deadline. A sweep checks all connections twice a second, so that requests need no
timers. Invalid HTTP is answered in the API's error format, after the responses to all earlier requests.
"""

import fcntl
import logging
import socket
import struct
import termios
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, NamedTuple, TypeAlias

import httptools

from listings.domain.errors import Problem, Unavailable
from listings.http.asgi import HttpApplication
from listings.http.byte_budget import ByteBudget
from listings.http.eager import RequestCoroutine, run
from listings.http.exchange import HttpExchange, split_target
from listings.http.host import is_host
from listings.http.throttle import Throttle
from listings.http.uvicorn_base import HIGH_WATER_LIMIT, HttpToolsProtocol
from listings.http.write_buffer import Data, Transport, WriteBuffer

_MAX_DISCARDED_BYTES = 64 * 1024 * 1024
_DISCARD_SECONDS = 5.0
_MIN_SEND_RATE = 16 * 1024  # bytes per second that a client must read, on average over the write deadline
_HURRIED_SECONDS = 2.0  # the write deadline while clients leave too many bytes unread
_OTHER_HEAD_BYTES = 1024  # the rest of a head, without URL and headers, rounded up
_MAX_FRAMING_BYTES = 16 * 1024  # of a body, beyond what its chunks need: extensions, leading zeros and trailers
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # l_onoff, l_linger
_MAX_CONSECUTIVE = 8  # requests of one connection, before others run
_MAX_PARSED_BYTES = 2048  # at a time: a hundred of the shortest requests, parsed in 3 ms if not compiled
_MAX_QUEUED = 16  # requests; further bytes stay unparsed
_ZERO_INT = bytes(4)

Phase: TypeAlias = Literal[
    "silent",  # connected, nothing has arrived
    "head",  # a request's head is arriving
    "body",  # its body is arriving
    "busy",  # the request is complete; the response is pending
    "idle",  # waiting for the next request
    "discard",  # the response was sent before the body was complete; the rest is read and dropped
    "rejected",  # invalid, too large or too late; the error follows all pending responses
    "linger",  # the last response is sent; the client gets time to read it before the connection closes
]

_log = logging.getLogger(__name__)


class ConnectionLimits(NamedTuple):
    """Limits of connections."""

    header_seconds: float = 10
    body_seconds: float = 30
    idle_seconds: float = 75
    write_seconds: float = 30
    head_bytes: int = 16 * 1024
    head_fields: int = 100
    url_bytes: int = 8 * 1024
    connections: int = 10_000
    accept_batch_size: int = 16  # per loop iteration; more would delay the requests of open connections


class HttpConnection(HttpToolsProtocol):
    """The protocol of one connection. Its exchanges use it as their transport, so that `close` can linger."""

    app: HttpApplication  # uvicorn passes it on unchanged
    _arriving: HttpExchange  # the request whose body is arriving, or arrived last

    def __init__(
        self,
        limits: ConnectionLimits,
        render_error: Callable[[Problem, str], bytes],
        write_buffer: WriteBuffer,
        unsent: ByteBudget,
        throttle: Throttle,
        **uvicorn_options: Any,
    ) -> None:
        """Set up a connection.

        `render_error` returns the complete response for a problem and a request method, which may be empty.
        `write_buffer`, `unsent` and `throttle` are shared by all connections of the loop.
        """
        super().__init__(**uvicorn_options)
        self.parser = self._build_parser()
        self._limits = limits
        self._render_error = render_error
        self.write_buffer = write_buffer
        self.throttle = throttle
        self._unsent = unsent
        self._owner = 0  # of the last large response
        self._counted = self._counted_owner = 0  # the bytes that `unsent` includes, and their owner
        self._sending_body = False
        self._written_bytes = 0
        self._last_reader_check: tuple[float, int] | None = None  # its time, and the bytes sent by then
        self._phase: Phase = "silent"
        self._phase_since = self.loop.time()
        self._running: HttpExchange | None = None
        self.queued: deque[HttpExchange] = deque()  # later requests
        self._ready: HttpExchange | None = None  # runs once the received bytes are parsed
        self._stepping = False
        self._unparsed = b""  # received after the queued requests
        self._problem: Problem | None = None  # the error to send to a rejected client
        self.stopping = False  # close after the pending responses
        self._upgrading = False
        self._target = b""  # in the current head
        self._heads_begun = 0  # in the bytes that are being parsed
        self._head_bytes = 0  # received of the current head, and of empty lines before it
        self._head_end = b""  # the last three bytes of it
        self._max_head_bytes = limits.head_bytes + limits.url_bytes + _OTHER_HEAD_BYTES
        self._field_bytes = 0  # in its complete headers
        self._hosts = 0  # number of its Host headers
        self._host = b""  # the last of them
        self._valid_host = b""  # the last valid one
        self._is_chunked = False  # the current request
        self._framing_bytes = 0  # of its body, without those that its chunks need
        self._discarded_bytes = 0

    # The connection

    def connection_made(self, transport: Transport) -> None:
        """Reject the connection if there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections:
            self._enter("linger")
            self.transport.write(self._render_error(Unavailable("Too many connections"), ""))
            self.transport.close()  # immediately: it must not take up a connection

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the requests that have no response yet."""
        self._disconnect_all()
        super().connection_lost(exc)
        self._count_unsent(0)

    def pause_writing(self) -> None:
        """Count the unsent bytes."""
        super().pause_writing()
        self._count_unsent(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Reset the count: few bytes are still unsent."""
        super().resume_writing()
        self._count_unsent(0)

    def _count_unsent(self, count: int) -> None:
        if self._counted:
            self._unsent.change(self._counted_owner, -self._counted)
        if count:
            self._unsent.change(self._owner, count)
        self._counted, self._counted_owner = count, self._owner

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio uses the result
        """Keep the connection open (True) while a client that has finished sending waits for responses."""
        self.write_buffer.flush()
        if self._running is None:
            return False
        if self._phase not in {"busy", "head", "rejected"}:
            return False
        self._begin_stop()
        return True

    def data_received(self, data: bytes) -> None:
        """Parse received bytes and run the requests in them."""
        if self._unparsed or len(data) > _MAX_PARSED_BYTES:
            self._unparsed += data
            self._parse_waiting()
        else:
            self._parse(data)
        if self._ready is not None and not self._stepping:
            self._run_ready()

    def _parse_waiting(self) -> None:
        """Parse the bytes that wait, but not many more requests than fit into the queue.

        Discard them if the connection is rejected or lingering.
        """
        data, start = self._unparsed, 0
        while start < len(data) and (len(self.queued) < _MAX_QUEUED or self._phase in {"rejected", "linger"}):
            self._parse(data[start : start + _MAX_PARSED_BYTES])
            start += _MAX_PARSED_BYTES
        self._unparsed = data[start:]
        if self._unparsed:
            self.flow.pause_reading()

    def _parse(self, data: bytes) -> None:
        if self._phase in {"rejected", "linger"}:
            self._discard(len(data))
            return
        fresh = self._phase in {"silent", "idle"}  # no head has begun, but empty lines may have arrived
        if (fresh or self._phase == "head") and len(data) > self._max_head_bytes - self._head_bytes:
            data = self._truncate_head(data)
        self._heads_begun = 0
        self._framing_bytes += len(data)
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            self._reject(_to_problem(error))
        else:
            self._check_sizes(data, fresh=fresh)

    def _truncate_head(self, data: bytes) -> bytes:
        """Cut a head that does not end within its limit to one byte more than the limit, so that it is rejected.

        Otherwise, a head that exceeds the limit because of whitespace that the parser skips could end within `data`.
        Its size would then never be checked.
        """
        room = max(0, self._max_head_bytes - self._head_bytes)
        start = data[: room + 1]
        return data if b"\r\n\r\n" in self._head_end + start else start

    def _check_sizes(self, data: bytes, *, fresh: bool) -> None:
        """Reject an endless head, and endless framing in a body."""
        if self._phase == "head" or (fresh and not self._heads_begun):
            self._check_head_size(data, fresh=fresh)
        elif self._is_chunked:
            self._check_framing_size()

    def _check_framing_size(self) -> None:
        """Reject a body with too much framing.

        Bytes parsed together with the head do not count, because the body's offset in them is unknown.
        """
        self._framing_bytes = max(0, self._framing_bytes)
        if self._framing_bytes > _MAX_FRAMING_BYTES and self._phase in {"body", "discard"}:
            self._reject(_malformed("The chunk headers or trailers of the body are too large"))

    def _check_head_size(self, data: bytes, *, fresh: bool) -> None:
        """Reject a head that is too large. `fresh`: no head had begun before these bytes."""
        is_same_head = self._heads_begun <= (1 if fresh else 0)  # a later head begins at an unknown offset
        self._head_bytes = self._head_bytes + len(data) if is_same_head else 0
        self._head_end = (self._head_end + data)[-3:]
        if self._head_bytes > self._max_head_bytes:
            self._reject(self._head_too_large())

    def _feed(self, data: bytes) -> None:
        """Parse bytes. Raises HttpParserError.

        Upgrades are ignored (Java's client offers h2c by default). After an upgrade header the parser treats the rest
        as another protocol and would lose the body. So a new parser gets the head again, without the upgrade.
        """
        rest: bytes | memoryview = data
        while True:
            try:
                self.parser.feed_data(rest)
            except httptools.HttpParserUpgrade as upgrade:
                rest = memoryview(rest)[upgrade.args[0] :]  # copying it for each of many upgrades would be slow
            else:
                return
            self._feed_without_upgrade()  # after the `except` block, because `_to_problem` reads __context__

    def _feed_without_upgrade(self) -> None:
        lines = [
            b"%s: %s\r\n" % (name, _remove_upgrade(value) if name == b"connection" else value)
            for name, value in self.headers
            if name not in {b"upgrade", b"http2-settings"}
        ]
        version = self.parser.get_http_version().encode()
        head = b"%s %s HTTP/%s\r\n%s\r\n" % (self.parser.get_method(), self._target, version, b"".join(lines))
        self._upgrading = False
        self.parser = self._build_parser()
        self.parser.feed_data(head)

    def _build_parser(self) -> httptools.HttpRequestParser:
        """Return a parser that accepts data after `Connection: close`, like uvicorn's, and any version."""
        parser = httptools.HttpRequestParser(self)
        parser.set_dangerous_leniencies(lenient_data_after_close=True, lenient_version=True)
        return parser

    # Parser callbacks

    def on_message_begin(self) -> None:
        """Start a head."""
        self._target = b""
        self.headers = []
        self.expect_100_continue = False
        self._heads_begun += 1
        self._field_bytes = 0
        self._hosts = 0
        self._is_chunked = False
        if self._phase != "head":
            self._enter("head")

    def on_url(self, url: bytes) -> None:
        self._target += url
        if len(self._target) > self._limits.url_bytes:
            raise Problem("uri_too_long", f"The URL must be at most {self._limits.url_bytes} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a complete header."""
        self._field_bytes += len(name) + len(value) + 4
        if len(self.headers) >= self._limits.head_fields or self._field_bytes > self._limits.head_bytes:
            raise self._head_too_large()
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        elif name == b"host":
            self._hosts += 1
            self._host = value
        elif name == b"transfer-encoding":
            self._check_coding(value)
            self._is_chunked = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Pass the request to the application, or queue it after earlier ones."""
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            self._upgrading = True
            return
        version = self.parser.get_http_version()
        self._check_head(version)
        headers = self.headers
        self._arriving = HttpExchange(
            self,
            self.parser.get_method().decode("ascii"),
            split_target(self._target, headers),
            headers,
            version,
            default_headers=self.server_state.default_headers,
            keep_alive=version == "1.1" and self.parser.should_keep_alive() and not self.stopping,
            expects_100_continue=self.expect_100_continue and version == "1.1",
        )
        self.headers = []  # trailers after the body are not headers (RFC 9110, 6.5.1)
        self._head_bytes, self._head_end = 0, b""
        self._framing_bytes = 0
        self._enter("body")
        if self._running is None:
            self._running = self._ready = self._arriving
        else:
            self.flow.pause_reading()
            self.queued.append(self._arriving)

    def on_body(self, body: bytes) -> None:
        """Add a part of the body."""
        exchange = self._arriving
        if self._is_chunked:
            self._framing_bytes -= len(body) + len(f"{len(body):x}") + 4  # the chunk with its size and two line breaks
        if exchange.response_complete:
            self._discard(len(body))
            return
        exchange.body.extend(body)
        if len(exchange.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        exchange.message_event.set()

    def on_message_complete(self) -> None:
        """Mark the request as complete."""
        if self._upgrading:
            return
        self._enter("idle" if self._phase == "discard" else "busy")
        self._arriving.more_body = False
        self._arriving.message_event.set()

    def _check_coding(self, coding: bytes) -> None:
        """Reject transfer codings that make the end or content of the body ambiguous (RFC 9112, 6.1)."""
        repeated = any(name == b"transfer-encoding" for name, _ in self.headers)
        if repeated or coding.strip(b" \t").lower() != b"chunked":
            raise _malformed('Transfer-Encoding must be "chunked", and appear only once')

    def _check_head(self, version: str) -> None:
        if version not in {"1.0", "1.1"}:
            raise Problem("version_not_supported", "Only HTTP/1.0 and HTTP/1.1 are supported")
        if self.parser.get_method() == b"CONNECT":
            raise _malformed("CONNECT is not supported")
        if self._hosts > 1 or (self._hosts == 0 and version == "1.1"):
            raise _malformed("Exactly one Host header is required")
        if self._host != self._valid_host and self._hosts:
            if not is_host(self._host):
                raise _malformed("The Host header must be a host, optionally with a port")
            self._valid_host = self._host

    # Responses

    def _run_ready(self) -> None:
        """Run requests until one blocks. After `_MAX_CONSECUTIVE` requests, let other connections run first."""
        self._stepping = True
        try:
            for _ in range(_MAX_CONSECUTIVE):
                exchange, self._ready = self._ready, None
                if exchange is None:
                    return
                run(exchange.run(self.app), self._start_task)
        finally:
            self._stepping = False
        self.loop.call_soon(self._run_ready)

    def _start_task(self, rest: RequestCoroutine) -> None:
        task = self.loop.create_task(rest)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def on_response_complete(self) -> None:
        """Run the next request. If there is none, send the pending error, close, or wait for a request."""
        if self.transport.is_closing() or self._phase == "linger":
            self._running = None
            return
        self._choose_next()
        if self._running is not None:
            if not self._stepping:
                self._run_ready()
        elif self._problem is not None:
            self._send_problem(self._problem)
        elif self.stopping:
            self.close()
        elif self._phase == "busy":
            self._enter("idle")
        elif self._phase == "body":
            self._enter("discard")

    def _choose_next(self) -> None:
        self._running = self._ready = self.queued.popleft() if self.queued else None
        if self._unparsed:
            self._parse_waiting()
        if not (self.queued or self._unparsed):  # otherwise reading more would only use memory
            self.flow.resume_reading()

    def _reject(self, problem: Problem) -> None:
        """Read no more requests, and send the problem after all pending responses.

        While a body is arriving: if the response to its request is complete, just linger; if it has started but is not
        complete, drop the connection.
        """
        if self._phase in {"rejected", "linger"} or self.transport.is_closing():
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
        self._enter("rejected")
        if self._running is None:
            self._send_problem(problem)

    def _abandon(self, exchange: HttpExchange) -> None:
        """Cancel a request whose body will never be complete. To the application, the client has disconnected."""
        exchange.disconnected = True
        exchange.message_event.set()
        if exchange is self._running:
            self._running = self._ready = None
        else:
            self.queued.pop()

    def _send_problem(self, problem: Problem) -> None:
        # Without a target, the parser still has the method of the previous request.
        method = self.parser.get_method().decode("ascii") if self._target else ""
        self.write(self._render_error(problem, method))
        self._linger()

    def fail(self, exchange: HttpExchange) -> None:
        """Handle a failure of the application: send a 500 and close, or reset if the response has started."""
        if exchange.response_started:
            self.drop()
            return
        exchange.response_started = exchange.response_complete = True
        self.write(self._render_error(Problem("internal_error", "Something went wrong on our side"), exchange.method))
        self.close()

    # Closing

    def stop(self) -> None:
        """Shut down: respond to the requests that are parsed, and close with the last response.

        A connection without requests stays open until `close_if_idle` closes it.
        """
        self._begin_stop()
        last = self.queued[-1] if self.queued else self._running
        if last is not None:
            last.keep_alive = False

    def _begin_stop(self) -> None:
        """Close after the pending responses, and end the wait of a long poll."""
        self.stopping = True
        if self._running is not None:
            self._running.message_event.set()

    def close_if_idle(self, now: float, idle_seconds: float) -> None:
        """Close if there is no request and nothing has arrived for `idle_seconds`."""
        if self._phase in {"silent", "idle"} and now - self._phase_since >= idle_seconds:
            self._close()

    def write(self, data: bytes) -> None:
        """Flush buffered responses, then write to the transport."""
        self._written_bytes += len(data)
        self.write_buffer.flush()
        self.transport.write(data)

    def write_response(self, data: Data) -> None:
        self._written_bytes += len(data) if isinstance(data, bytes) else len(data[0]) + len(data[1])
        self.write_buffer.put(self.transport, data)

    def begin_large_response(self, owner: int) -> bool:
        self._owner = owner
        return self._unsent.has_room(owner)

    def acquire_throttle(self) -> AbstractAsyncContextManager[None]:
        return self.throttle.acquire(self._owner)

    def begin_body(self) -> None:
        """Prepare for pieces of a body: as long as any bytes are unsent, writing is paused."""
        self._sending_body = True
        self.transport.set_write_buffer_limits(0)

    def write_body(self, piece: bytes) -> None:
        """Write a piece of a body, unless the client has disconnected since the piece was requested."""
        self._written_bytes += len(piece)
        if not self.transport.is_closing():
            self.transport.write(piece)

    def end_body(self) -> None:
        """End the body, and restore the default write limits."""
        self._sending_body = False
        if not self.transport.is_closing():
            self.transport.set_write_buffer_limits()

    def is_closing(self) -> bool:
        return self.transport.is_closing()

    def close(self) -> None:
        """Close once everything written is sent. If the client is sending, first give it time to read the response.

        If a socket is closed with unread bytes, the kernel resets the connection and the response is lost.
        """
        if self._phase in {"busy", "idle"} and not self._has_unread_bytes():
            self._close()
        else:
            self._linger()

    def _has_unread_bytes(self) -> bool:
        if self._unparsed:
            return True
        if self.transport.is_closing():
            return False
        descriptor = self.transport.get_extra_info("socket").fileno()
        return fcntl.ioctl(descriptor, termios.FIONREAD, _ZERO_INT) != _ZERO_INT

    def _close(self) -> None:
        self.write_buffer.flush()
        self.transport.close()

    def _linger(self) -> None:
        if self._phase != "linger":
            self._enter("linger")
            self._unparsed = b""
            self.flow.resume_reading()
            self.write_buffer.flush()
            if not self.transport.is_closing():
                self.transport.write_eof()

    def _discard(self, size: int) -> None:
        self._discarded_bytes += size
        if self._discarded_bytes > _MAX_DISCARDED_BYTES:
            self.drop()

    def drop(self) -> None:
        """Reset the connection immediately and discard unsent data, including the kernel's.

        If the connection is already closing, the kernel still sends what is buffered.
        """
        self._disconnect_all()
        if not self.transport.is_closing():
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.transport.abort()

    def _disconnect_all(self) -> None:
        for exchange in [self._running, *self.queued]:
            if exchange is not None:
                exchange.disconnected = True
                exchange.message_event.set()
        self.queued.clear()

    def _enter(self, phase: Phase) -> None:
        self._phase = phase
        self._phase_since = self.loop.time()
        self._discarded_bytes = 0

    # Deadlines

    def sweep(self, now: float) -> None:
        """Reject or close the connection if it is past its deadline."""
        unsent = self.transport.get_write_buffer_size()
        is_sending_last = unsent > 0 and self._phase in {"discard", "linger"}
        if is_sending_last or self.flow.read_paused:  # the client is still receiving, or we have paused reading
            self._phase_since = now
        limits, elapsed = self._limits, now - self._phase_since
        if is_sending_last or self.flow.write_paused or self._sending_body or self.transport.is_closing():
            self._check_reader(now)
            return
        self._last_reader_check = None
        self._count_unsent(unsent)
        if self._phase == "head" and elapsed > limits.header_seconds:
            self._reject(_timeout("headers", limits.header_seconds))
        elif self._phase == "body" and elapsed > limits.body_seconds:
            self._reject(_timeout("body", limits.body_seconds))
        elif (self._phase == "silent" and elapsed > limits.header_seconds) or (
            self._phase == "idle" and elapsed > limits.idle_seconds
        ):
            self._close()
        elif self._phase in {"discard", "linger"} and elapsed > _DISCARD_SECONDS:
            self._close()  # not `drop`, which would discard what the kernel has not sent yet

    def _check_reader(self, now: float) -> None:
        """Drop a client that reads its responses too slowly. Do nothing if no bytes are unsent."""
        unsent = self.transport.get_write_buffer_size()
        self._count_unsent(unsent)
        if not unsent:
            self._last_reader_check = None
            return
        sent = self._written_bytes - unsent
        since, before = self._last_reader_check = self._last_reader_check or (now, sent)
        seconds = self._limits.write_seconds
        if now - since >= (min(seconds, _HURRIED_SECONDS) if self._unsent.is_exceeded else seconds):
            if sent - before < _MIN_SEND_RATE * (now - since):
                self.drop()
            self._last_reader_check = (now, sent)

    def _head_too_large(self) -> Problem:
        limits = self._limits
        return Problem(
            "header_too_large",
            f"The request may have at most {limits.head_fields} headers, of at most {limits.head_bytes} bytes in total",
        )


def _remove_upgrade(connection: bytes) -> bytes:
    options = (option.strip() for option in connection.split(b","))
    return b", ".join(option for option in options if option.lower() not in {b"upgrade", b"http2-settings"})


def _to_problem(error: httptools.HttpParserError) -> Problem:
    cause = error.__context__  # what a callback raised
    if isinstance(cause, Problem):
        return cause
    if isinstance(cause or error, httptools.HttpParserInvalidURLError):
        return _malformed(
            "The URL is not valid: check its host and port, and percent-encode all characters that URLs do not allow"
        )
    return _malformed("The request is not valid HTTP")


def _malformed(text: str) -> Problem:
    return Problem("malformed_request", text)


def _timeout(part: str, seconds: float) -> Problem:
    return Problem("request_timeout", f"The request {part} took longer than {seconds:g} seconds")
