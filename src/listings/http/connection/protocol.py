"""One connection: the order of its requests, and its deadlines.

This is uvicorn's httptools protocol with a parser and limits of our own (OWASP ASVS 13.1.3, 15.2.2). Each phase in
which the connection waits for the client has a deadline. A sweep checks all connections twice a second, so that
requests need no timers. Invalid HTTP gets an error in the API's format, after the responses to all earlier requests.
"""

import fcntl
import socket
import struct
import termios
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, TypeAlias

from listings.domain.errors import Problem, Unavailable
from listings.http.asgi import HttpApplication
from listings.http.byte_budget import ByteBudget
from listings.http.connection.exchange import HttpExchange, split_target
from listings.http.connection.parser import RequestParser
from listings.http.connection.unsent import UnsentBytes
from listings.http.connection.write_buffer import Data, Transport, WriteBuffer
from listings.http.eager import RequestCoroutine, run
from listings.http.limits import ConnectionLimits
from listings.http.throttle import Throttle
from listings.http.uvicorn_base import HIGH_WATER_LIMIT, HttpToolsProtocol

_MAX_DISCARDED_BYTES = 64 * 1024 * 1024
_DISCARD_SECONDS = 5.0
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
        del self.parser  # uvicorn's
        self._parser = RequestParser(self, limits)
        self._limits = limits
        self._render_error = render_error
        self.write_buffer = write_buffer
        self.throttle = throttle
        self._unsent = UnsentBytes(unsent)
        self._written_bytes = 0
        self._sending_body = False
        self._phase: Phase = "silent"
        self._phase_since = self.loop.time()
        self._running: HttpExchange | None = None
        self.queued: deque[HttpExchange] = deque()  # later requests
        self._ready: HttpExchange | None = None  # runs once the received bytes are parsed
        self._stepping = False
        self._unparsed = b""  # received after the queued requests
        self._problem: Problem | None = None  # the error to send to a rejected client
        self.stopping = False  # close after the pending responses
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
        self._unsent.count(0)

    def pause_writing(self) -> None:
        """Count the unsent bytes."""
        super().pause_writing()
        self._unsent.count(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Reset the count: few bytes are still unsent."""
        super().resume_writing()
        self._unsent.count(0)

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
        try:
            self._parser.feed(data)
        except Problem as problem:
            self._reject(problem)

    # Calls from the parser

    def begin_head(self) -> None:
        if self._phase != "head":
            self._enter("head")

    def receive_head(self) -> None:
        """Run the request, or queue it after earlier ones."""
        parser = self._parser
        self._arriving = HttpExchange(
            self,
            parser.method,
            split_target(parser.target, parser.headers),
            parser.headers,
            parser.version,
            default_headers=self.server_state.default_headers,
            keep_alive=parser.keep_alive and not self.stopping,
            expects_100_continue=parser.expects_100_continue,
        )
        self._enter("body")
        if self._running is None:
            self._running = self._ready = self._arriving
        else:
            self.flow.pause_reading()
            self.queued.append(self._arriving)

    def receive_body(self, part: bytes) -> None:
        exchange = self._arriving
        if exchange.response_complete:
            self._discard(len(part))
            return
        exchange.body.extend(part)
        if len(exchange.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        exchange.message_event.set()

    def end_request(self) -> None:
        self._enter("idle" if self._phase == "discard" else "busy")
        self._arriving.more_body = False
        self._arriving.message_event.set()

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
        self.write(self._render_error(problem, self._parser.method))
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
        self._unsent.owner = owner
        return self._unsent.has_room()

    def acquire_throttle(self) -> AbstractAsyncContextManager[None]:
        return self.throttle.acquire(self._unsent.owner)

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
            if self._unsent.is_read_too_slowly(now, self._written_bytes, unsent, limits.write_seconds):
                self.drop()
            return
        self._unsent.forget_rate()
        self._unsent.count(unsent)
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


def _timeout(part: str, seconds: float) -> Problem:
    return Problem("request_timeout", f"The request {part} took longer than {seconds:g} seconds")
