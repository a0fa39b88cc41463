"""One connection: the order of its requests, and its deadlines.

This is uvicorn's httptools protocol with a parser and limits of our own (OWASP ASVS 13.1.3, 15.2.2). Each phase in
which the connection waits for the client has a deadline. A sweep checks all connections twice a second, so that
requests need no timers. Invalid HTTP gets an error in the API's format, after the responses to all earlier requests.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from listings.domain.errors import Problem, Unavailable
from listings.http.asgi import LARGE_RESPONSE_BYTES, HttpApplication, Owner
from listings.http.connection.exchange import HttpExchange, split_target
from listings.http.connection.parser import RequestParser
from listings.http.connection.shared import Shared
from listings.http.connection.sockets import has_unread_bytes, is_reset, reset
from listings.http.connection.unsent import UnsentBytes
from listings.http.connection.write_buffer import Data, Transport
from listings.http.eager import RequestCoroutine, run
from listings.http.limits import ConnectionLimits
from listings.http.uvicorn_base import HttpToolsProtocol

_MAX_DISCARDED_BYTES = 64 * 1024 * 1024
DISCARD_SECONDS = 5.0
_MAX_CONSECUTIVE = 8  # requests of one connection, before others run
_MIN_PARSED_BYTES, _MAX_PARSED_BYTES = 64, 2048  # at a time: up to the end of a head
_MAX_BODY_PART_BYTES = 64 * 1024  # parsed at a time, of a body of unknown length
_HEAD_END = b"\r\n\r\n"
_HEAD_BYTES = 4096  # that a parsed head takes on average
_MAX_WAITING_BYTES = 16 * 1024 * 1024  # of requests behind running ones, on all connections
_MIN_REJECTED_BYTES = 16 * 1024  # that wait on a connection
_MAX_AHEAD_BYTES = _MAX_WAITING_BYTES // 4  # beyond which a connection queues only one request
_MIN_BODY_RATE = 16  # KiB per second that must arrive, on average over the deadline of a body
_MAX_UNSENT_BYTES = 16 * 1024  # beyond which the next response waits for the client
_MAX_QUEUED = 12  # requests; further bytes stay unparsed

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
        shared: Shared,
        **uvicorn_options: Any,
    ) -> None:
        """Set up a connection.

        `render_error` returns the complete response for a problem and a request method, which may be empty.
        """
        super().__init__(**uvicorn_options)
        del self.parser  # uvicorn's
        self._parser = RequestParser(self, limits)
        self._limits = limits
        self._render_error = render_error
        self._shared = shared
        self.write_buffer, self._turns = shared.write_buffer, shared.turns
        self.throttle, self.receiving = shared.throttle, shared.receiving
        self.unsent = UnsentBytes(shared.budgets)
        self._written_bytes = 0
        self._sending_body = False
        self._phase: Phase = "silent"
        self._phase_since = self.loop.time()
        self._body_bytes = self._checked_body_bytes = 0  # received of the body, and by the last check of its rate
        self._running: HttpExchange | None = None
        self.queued: deque[HttpExchange] = deque()  # later requests
        self._ready: HttpExchange | None = None  # runs once the received bytes are parsed
        self._stepping = False  # whether requests are running, or wait for their turn
        self._unparsed = b""  # received after the queued requests
        self._waiting_bytes = 0  # in the queued requests and after them, as counted in the sum of all connections
        self._problem: Problem | None = None  # the error to send to a rejected client
        self.stopping = self.stopped = False  # close after the pending responses; `stopped`: the service stops
        self._discarded_bytes = 0

    # The connection

    def connection_made(self, transport: Transport) -> None:
        super().connection_made(transport)
        transport.set_write_buffer_limits(_MAX_UNSENT_BYTES)
        if self.client is not None:
            self.unsent.owner = ("visitors", self.client[0])
        if len(self.connections) > self._limits.connections:
            self._enter("linger")
            self.transport.write(self._render_error(Unavailable("Too many connections"), ""))
            self.transport.close()  # immediately: it must not take up a connection

    def connection_lost(self, exc: Exception | None) -> None:
        self._disconnect_all()
        self._unparsed = b""
        self._count_waiting()
        self._turns.forget(self)
        super().connection_lost(exc)
        self.unsent.count(self._written_bytes, 0)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._count_unsent()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._count_unsent()

    def _count_unsent(self) -> None:
        self.unsent.count(self._written_bytes, self.transport.get_write_buffer_size())

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
        if self._unparsed or len(data) > _MAX_PARSED_BYTES or data.count(_HEAD_END) > 1:
            self._unparsed += data
            self._parse_waiting()
        else:
            self._parse(data)
        if self._phase == "body" and self._arriving.body:
            self.flow.pause_reading()  # until the application asks for more
        if self.flow.read_paused:
            self._count_waiting()
        if self._ready is not None and not self._stepping:
            self._start_ready()

    def _parse_waiting(self) -> None:
        data, start = self._unparsed, 0
        limit = _MAX_QUEUED if self._shared.waiting_bytes < _MAX_AHEAD_BYTES else 1
        while start < len(data) and (len(self.queued) < limit or self._phase in {"rejected", "linger"}):
            end = self._find_part_end(data, start)
            self._parse(data[start:end])
            start = end
        self._unparsed = data[start:]
        if self._unparsed:
            self.flow.pause_reading()

    # A part is of a body, or ends with a head, so that at most a few requests begin in it.
    def _find_part_end(self, data: bytes, start: int) -> int:
        size = _MAX_PARSED_BYTES
        if self._phase in {"body", "discard"} and self._parser.is_chunked:
            size = _MAX_BODY_PART_BYTES
        elif self._phase in {"body", "discard"}:
            lengths = [value for name, value in self._arriving.headers if name == b"content-length"]
            if lengths and int(lengths[0]) > self._body_bytes:
                return start + int(lengths[0]) - self._body_bytes
        found = data.find(_HEAD_END, start + _MIN_PARSED_BYTES, start + size)
        return found + len(_HEAD_END) if found >= 0 else start + size

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
        parser = self._parser
        self._arriving = HttpExchange(
            self,
            parser.method,
            split_target(parser.target, parser.headers),
            parser.headers,
            parser.version,
            keep_alive=parser.keep_alive and not self.stopping,
            expects_100_continue=parser.expects_100_continue,
        )
        self._enter("body")
        self._body_bytes = self._checked_body_bytes = 0
        if self._running is None:
            self._running = self._ready = self._arriving
        else:
            self.flow.pause_reading()
            self.queued.append(self._arriving)

    def receive_body(self, part: bytes) -> None:
        exchange = self._arriving
        self._body_bytes += len(part)
        if exchange.response_complete:
            self._discard(len(part))
            return
        exchange.body.extend(part)
        exchange.message_event.set()

    def end_request(self) -> None:
        if self._phase == "discard":
            self._enter("idle")
        else:
            self._phase = "busy"  # which has no deadline
        self._arriving.more_body = False
        self._arriving.message_event.set()

    # Responses

    def _start_ready(self) -> None:
        self._stepping = True
        self._turns.run(self)

    @property
    def owner(self) -> Owner:
        return self.unsent.owner

    @property
    def body_bytes(self) -> int:
        return 0 if self._ready is None else len(self._ready.body)

    def run_ready(self) -> None:
        """Run requests until one blocks. After `_MAX_CONSECUTIVE` requests, it is the turn of other connections."""
        try:
            for _ in range(_MAX_CONSECUTIVE):
                exchange, self._ready = self._ready, None
                if exchange is None:
                    return
                run(exchange.run(self.app), self._start_task)
        finally:
            self._stepping = self._ready is not None
        if self._stepping:
            self._turns.wait(self)

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
                self._start_ready()
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
        if self._waiting_bytes:
            self._count_waiting()
        if not (self.queued or self._unparsed):  # otherwise reading more would only use memory
            self.flow.resume_reading()

    def _count_waiting(self) -> None:
        size = len(self._unparsed) + _HEAD_BYTES * len(self.queued)
        for exchange in self.queued:
            size += len(exchange.body)
        self._shared.waiting_bytes += size - self._waiting_bytes
        self._waiting_bytes = size
        # If all connections have too many, reject the requests of this one.
        if size > _MIN_REJECTED_BYTES and self._shared.waiting_bytes > _MAX_WAITING_BYTES:
            self._reject(Unavailable("Too many requests are waiting for earlier ones on their connections"))
            self._unparsed = b""
            self.queued.clear()
            self._count_waiting()

    def _reject(self, problem: Problem) -> None:
        if self._phase in {"rejected", "linger"} or self.transport.is_closing():
            return
        if self._phase == "body":
            if self._arriving.response_started:
                self.drop()  # the response can't be completed, and no other may follow it
                return
            self._abandon(self._arriving)
        if self._phase == "discard":  # the response is complete
            self._linger()
            return
        self._problem = problem
        self._enter("rejected")
        if self._running is None:
            self._send_problem(problem)

    def _abandon(self, exchange: HttpExchange) -> None:
        exchange.disconnected = True  # to the application: the body will never be complete
        exchange.message_event.set()
        exchange.body.clear()  # `_arriving` still refers to it
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
        self.stopped = True
        self._begin_stop()
        last = self.queued[-1] if self.queued else self._running
        if last is not None:
            last.keep_alive = False

    def _begin_stop(self) -> None:
        self.stopping = True
        if self._running is not None:
            self._running.message_event.set()  # ends the wait of a long poll

    def close_if_idle(self, now: float, idle_seconds: float) -> None:
        if self._phase in {"silent", "idle"} and now - self._phase_since >= idle_seconds:
            self._close()

    def write(self, data: bytes) -> None:
        self._add_written(len(data))
        self.write_buffer.flush()
        self.transport.write(data)

    def write_response(self, data: Data, reserved: int) -> None:
        if isinstance(data, bytes) and not reserved:
            self._written_bytes += len(data)
            self.write_buffer.put(self.transport, data)
        else:
            self._add_written(len(data) if isinstance(data, bytes) else len(data[0]) + len(data[1]))
            self.unsent.release(reserved)
            self.write_buffer.put(self.transport, data, self._count_unsent)

    def _add_written(self, size: int) -> None:
        if size >= LARGE_RESPONSE_BYTES:
            self.unsent.note_large(self._written_bytes, self._written_bytes + size)
        self._written_bytes += size

    def set_owner(self, owner: Owner) -> None:
        self.write_buffer.flush()  # earlier responses are those of their owner
        self.unsent.set_owner(owner, self._written_bytes, self.transport.get_write_buffer_size())

    def release(self, size: int) -> None:
        self.unsent.release(size)
        self.loop.call_soon(self._count_unsent)  # once the transport has tried to send them

    def begin_body(self) -> None:
        self._sending_body = True
        self.transport.set_write_buffer_limits(0)  # as long as any bytes are unsent, writing is paused

    def write_body(self, piece: bytes) -> None:
        """Write a piece of a body, unless the client has disconnected since the piece was requested."""
        self._add_written(len(piece))
        if not self.transport.is_closing():
            self.transport.write(piece)

    def end_body(self) -> None:
        self._sending_body = False
        if not self.transport.is_closing():
            self.transport.set_write_buffer_limits(_MAX_UNSENT_BYTES)

    def is_closing(self) -> bool:
        return self.transport.is_closing()

    def close(self) -> None:
        """Close once everything written is sent. If the client is sending, first give it time to read the response.

        If a socket is closed with unread bytes, the kernel resets the connection and the response is lost.
        """
        if self._phase in {"busy", "idle"} and not self._unparsed and not has_unread_bytes(self.transport):
            self._close()
        else:
            self._linger()

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

        If the connection is already closing, the kernel still sends its buffer.
        """
        self._disconnect_all()
        reset(self.transport)

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
        """Reject or close the connection if it is past its deadline, or has been reset while we do not read."""
        if self.flow.read_paused and is_reset(self.transport):
            self.drop()
            return
        unsent = self.transport.get_write_buffer_size()
        is_sending_last = unsent > 0 and self._phase in {"discard", "linger"}
        if is_sending_last or self.flow.read_paused:  # the client is still receiving, or we have paused reading
            self._phase_since = now
        limits = self._limits
        due_kibibytes = _MIN_BODY_RATE * limits.body_seconds
        if self._phase == "body" and self._body_bytes >= self._checked_body_bytes + due_kibibytes * 1024:
            self._phase_since, self._checked_body_bytes = now, self._body_bytes
        elapsed = now - self._phase_since
        if is_sending_last or self.flow.write_paused or self._sending_body or self.transport.is_closing():
            if self.unsent.is_read_too_slowly(now, self._written_bytes, unsent, limits.write_seconds):
                self.drop()
            return
        self.unsent.forget_rate()
        self.unsent.count(self._written_bytes, unsent)
        if self._phase == "head" and elapsed > limits.header_seconds:
            message = f"The request headers took longer than {limits.header_seconds:g} seconds"
            self._reject(Problem("request_timeout", message))
        elif self._phase == "body" and elapsed > limits.body_seconds:
            due = f"{due_kibibytes:g} KiB of the request body arrived in {limits.body_seconds:g} seconds"
            self._reject(Problem("request_timeout", f"Less than {due}"))
        elif (self._phase == "silent" and elapsed > limits.header_seconds) or (
            self._phase == "idle" and elapsed > limits.idle_seconds
        ):
            self._close()
        elif self._phase in {"discard", "linger"} and elapsed > DISCARD_SECONDS:
            self._close()  # not `drop`, which would discard what the kernel has not sent yet
