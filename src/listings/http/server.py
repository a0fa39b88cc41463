"""The HTTP server: uvicorn with an asyncio protocol of our own (`HttpConnection`) and a graceful shutdown."""

import asyncio
import ctypes
import gc
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, NamedTuple, cast

from listings.domain.errors import Problem
from listings.http.acceptor import HANDSHAKE_SECONDS, Acceptor, drop_new_connections
from listings.http.asgi import OWNERS, HttpApplication
from listings.http.byte_budget import ByteBudget
from listings.http.connection.protocol import HttpConnection
from listings.http.connection.shared import Shared
from listings.http.limits import ConnectionLimits
from listings.http.uvicorn_base import Config, UvicornServer

SWEEP_SECONDS = 0.5
_SWEEP_BATCH_SIZE = 2
_MANY_CONNECTIONS = 100  # after which it is worthwhile to return memory
_QUIET_SECONDS = 5.0  # after half of them have ended; their last requests may still run
_POLL_SECONDS = 0.02  # between two checks for idle connections during shutdown
_STALL_SECONDS = 0.1  # if the loop was blocked this long, data may have arrived that is not read yet
_MAX_KERNEL_BYTES = 64 * 1024  # of responses that the kernel buffers per connection


class _ShutdownTimeouts(NamedTuple):
    drain: float  # seconds for the last requests to finish
    idle: float  # seconds for an idle client to send another request


_DRAIN_SECONDS = 10.0
_STOPPING = _ShutdownTimeouts(drain=_DRAIN_SECONDS, idle=0.5)
_RETIRING = _ShutdownTimeouts(drain=180.0, idle=5.0)  # drain: a request of 2 MiB may take 160 s to arrive

_log = logging.getLogger(__name__)


class Server(UvicornServer):
    """Serves one application on bound sockets, until a signal or `should_exit`."""

    def __init__(
        self,
        application: HttpApplication,
        limits: ConnectionLimits,
        on_start: Callable[[], None] = lambda: None,
        on_stop: Callable[[], None] = lambda: None,
        *,
        sole_process: bool = True,
    ) -> None:
        """Configure uvicorn for our protocol.

        `on_start` is called when the server has started to accept connections. A stop calls `on_stop`, possibly twice.
        `retire` does not. `sole_process` is whether this is the only process that accepts from the sockets.
        """
        self.shared = Shared({owners: ByteBudget() for owners in OWNERS})
        protocol = partial(HttpConnection, limits, application.render_error, self.shared)
        super().__init__(
            Config(
                cast("Any", application),  # uvicorn's own type of a scope is narrower than ASGI's
                loop="none",
                http=cast("Any", protocol),
                interface="asgi3",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
            )
        )
        self._build_protocol = partial(protocol, config=self.config, server_state=self.server_state, app_state={})
        self._on_stop = on_stop
        self._limits = limits
        self._on_start = on_start
        self._sole_process = sole_process
        self._is_signalled = False
        self._timeouts = _STOPPING
        self._deadline = float("inf")  # for the shutdown, on the loop's clock

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, start to accept and to enforce deadlines, and call `on_start`."""
        await self.on_tick(0)  # sets the Date header of the first responses
        address = ", ".join(map(format_base_url, sockets or []))
        try:
            await super().startup(sockets)
        except OSError as error:  # another program started to listen after the socket was bound
            raise _listen_problem(address, error) from None
        self._acceptor = Acceptor(
            self._build_protocol,
            self._count_free,
            self._limits.accept_batch_size,
            lambda: self.shared.receiving.passed,
        )
        self._acceptor.start(sockets or [])
        self._sweeper = asyncio.create_task(self._sweep())
        self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, and finish the requests that are parsed, within 10 seconds, or 180 after `retire`."""
        _log.info("Stopping")
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + self._timeouts.drain
        if self._timeouts is _STOPPING:
            self._on_stop()
        self._stop_connections()
        await self._stop_listening(sockets or [])
        self._stop_connections()  # those that were accepted meanwhile
        while self.server_state.connections and (checked := loop.time()) < self._deadline:
            await asyncio.sleep(_POLL_SECONDS)
            await self.on_tick(0)  # updates the Date header
            if loop.time() - checked < _STALL_SECONDS:  # otherwise, first read the data that arrived
                for connection in self._connections():
                    connection.close_if_idle(loop.time(), self._timeouts.idle)
        for connection in self._connections():
            connection.drop()
        self._sweeper.cancel()

    def _stop_connections(self) -> None:
        for connection in self._connections():
            connection.stop()

    async def _stop_listening(self, sockets: list[socket.socket]) -> None:
        # Before a socket is closed, the connections in the kernel's queue are accepted, which would otherwise be reset.
        # After `retire`, the other processes that listen on the sockets accept them.
        if self._sole_process and self._timeouts is _STOPPING and all(map(drop_new_connections, sockets)):
            await asyncio.sleep(HANDSHAKE_SECONDS)
        for server in self.servers:
            server.close()
        for listener in sockets:
            listener.close()
        # Only the acceptor's duplicates are still open. If new connections can't be dropped, one that arrives between
        # the acceptor's last accept and the close is reset.
        self._acceptor.stop(accept_pending=self._timeouts is _STOPPING)
        await self._acceptor.finish()
        await asyncio.sleep(0)  # a connection accepted by the loop is set up in the next iteration

    def _count_free(self) -> int:
        return self._limits.connections - self.connection_count

    @property
    def connection_count(self) -> int:
        """The number of open connections. Thread-safe."""
        return len(self.server_state.connections)

    def _connections(self) -> list[HttpConnection]:
        return [cast("HttpConnection", connection) for connection in self.server_state.connections]

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        most, busy_at = 0, 0.0
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            most = max(most, self.connection_count)
            if self.connection_count > most // 2:
                busy_at = loop.time()
            elif most >= _MANY_CONNECTIONS and loop.time() > busy_at + _QUIET_SECONDS:
                most = self.connection_count
                await _return_memory()
            for count, connection in enumerate(self._connections(), 1):
                try:
                    connection.sweep(loop.time())
                except Exception:  # noqa: BLE001 - one failure must not disable all other deadlines
                    _log.exception("Checking the deadline of a connection failed")
                if count % _SWEEP_BATCH_SIZE == 0:
                    await asyncio.sleep(0)  # other requests must not wait for a long sweep

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals like uvicorn, but do not raise them again at the end."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - uvicorn's signature
        """Shut down gracefully; on the second signal exit immediately. Acknowledged writes are on disk either way."""
        if self._is_signalled:
            os._exit(128 + sig)
        self._is_signalled = True
        self.stop()

    def stop(self) -> None:
        """Shut down gracefully, as on a signal. Shortens a running `retire`. Call it on the event loop."""
        if self._timeouts is _RETIRING:
            self._timeouts = _STOPPING
            self._deadline = min(self._deadline, asyncio.get_running_loop().time() + _STOPPING.drain)
            self._on_stop()
        self.should_exit = True

    def retire(self) -> None:
        """Shut down slowly, while other processes continue to serve the same listening socket.

        A connection with requests closes after the last response. Any other closes after its next response, or once it
        has been idle for five seconds. After three minutes, all that are left are dropped.
        """
        if not self.should_exit:
            self._timeouts = _RETIRING
            self.should_exit = True


async def _return_memory() -> None:
    # The pages of a thousand connections leave 90,000 objects in reference cycles, because full collections are rare,
    # and malloc would keep the freed memory.
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # missing in musl
    if trim is not None:
        await asyncio.to_thread(trim, 0)


def bind_socket(host: str, port: int) -> socket.socket:
    """Bind a socket without listening, so that a port in use is reported before anything is changed."""
    listener: socket.socket | None = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):  # otherwise the kernel buffers megabytes for each slow reader
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _MAX_KERNEL_BYTES)
        listener.bind(address)
    except (OSError, UnicodeError) as error:
        if listener is not None:
            listener.close()
        raise _listen_problem(f"{host} port {port}", error) from None
    return listener


def _listen_problem(address: str, error: Exception) -> Problem:
    reason = getattr(error, "strerror", None) or "not a valid host name"
    advice = "Choose another address with --host or --port"
    return Problem("invalid_setting", f"Can't listen on {address}: {reason}. {advice}")


def format_base_url(listener: socket.socket) -> str:
    """Return the URL at which clients on this machine reach the service."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not listened on
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
