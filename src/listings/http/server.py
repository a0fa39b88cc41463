"""The HTTP server under the application: uvicorn, with the guarded protocol and a stop that loses nothing."""

import asyncio
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

import uvicorn

from listings.domain.errors import Problem
from listings.http.acceptor import HANDSHAKE_SECONDS, Acceptor, reject_new_connections
from listings.http.asgi import HttpApplication
from listings.http.connection import ConnectionLimits, HttpConnection
from listings.http.write_buffer import WriteBuffer

_SWEEP_SECONDS = 0.5
_SWEPT_AT_ONCE = 2
_LOOK_AGAIN = 0.02  # seconds between two looks at who is quiet while the service stops
_STOOD_STILL = 0.1  # seconds after which a look comes too late to tell
_UNSENT = 64 * 1024  # bytes of an answer that the kernel takes ahead of the network


class _Patience(NamedTuple):
    """What a stop allows, in seconds: to the last requests, and to an idle client to send another one."""

    last: float
    quiet: float


_LAST_REQUESTS_SECONDS = 10.0
_STOPPING = _Patience(_LAST_REQUESTS_SECONDS, 0.5)
_RETIRING = _Patience(60.0, 5.0)  # longer than any request may take to arrive

_log = logging.getLogger(__name__)


class Server(uvicorn.Server):
    """Serves one application on sockets that are bound already, until a signal or `should_exit`."""

    def __init__(
        self,
        application: HttpApplication,
        bounds: ConnectionLimits,
        on_start: Callable[[], None] = lambda: None,
        on_stop: Callable[[], None] = lambda: None,
        *,
        alone: bool = True,
    ) -> None:
        """`on_start` is called once connections are accepted, `on_stop` when new requests are no longer served.

        `alone`: whether no other process accepts from the same sockets.
        """
        protocol = partial(HttpConnection, bounds, application.refusal, WriteBuffer())
        super().__init__(
            uvicorn.Config(
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
        self._on_stop = on_stop
        self._bounds = bounds
        self._on_start = on_start
        self._alone = alone
        self._patience = _STOPPING
        self._deadline = float("inf")  # of the stop, on the loop's clock

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, begin to look after the connections, and tell it."""
        try:
            await super().startup(sockets)
        except OSError as error:  # another program began to listen after the socket was bound
            raise _cannot_listen("the address", error) from None
        self._acceptor = Acceptor(self._protocol, self._room, self._bounds.accepted_at_once)
        self._acceptor.start(sockets or [])
        self._sweeper = asyncio.create_task(self._sweep())
        self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what was sent, for ten seconds at most (see `retire` for longer), and take nothing new."""
        _log.info("Stopping")
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + self._patience.last
        if self._patience is _STOPPING:
            self._on_stop()
        self._stop_connections()
        await self._stop_listening(sockets or [])
        self._stop_connections()  # those that came meanwhile
        while self.server_state.connections and (looked := loop.time()) < self._deadline:
            await asyncio.sleep(_LOOK_AGAIN)
            if loop.time() - looked < _STOOD_STILL:  # else what has come meanwhile is read first
                for connection in self._connections():
                    connection.end_quiet(loop.time(), self._patience.quiet)
        for connection in self._connections():
            connection.drop()
        self._sweeper.cancel()

    def _stop_connections(self) -> None:
        for connection in self._connections():
            connection.stop()

    async def _stop_listening(self, sockets: list[socket.socket]) -> None:
        """Take in the connections that the kernel has accepted for us, then close; it would reset them.

        Beside other processes that listen, those are theirs to take.
        """
        if self._alone and self._patience is _STOPPING and all(map(reject_new_connections, sockets)):
            await asyncio.sleep(HANDSHAKE_SECONDS)
        for server in self.servers:
            server.close()
        for listener in sockets:
            listener.close()
        # Its descriptors are the last ones: where newcomers can't be turned away, one that comes between its last look
        # and their end is reset.
        self._acceptor.stop(take_in=self._patience is _STOPPING)
        await self._acceptor.finish()
        await asyncio.sleep(0)  # a connection that the loop has just taken becomes one of ours in its next turn

    def _protocol(self) -> asyncio.Protocol:
        kind = cast("Any", self.config.http_protocol_class)
        return cast("asyncio.Protocol", kind(config=self.config, server_state=self.server_state, app_state={}))

    def _room(self) -> int:
        return self._bounds.connections - self.open_connections

    @property
    def open_connections(self) -> int:
        """How many there are now; may be asked from any thread."""
        return len(self.server_state.connections)

    def _connections(self) -> list[HttpConnection]:
        return [cast("HttpConnection", connection) for connection in self.server_state.connections]

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            for number, connection in enumerate(self._connections(), 1):
                try:
                    connection.sweep(loop.time())
                except Exception:  # noqa: BLE001 - one connection's fault must not end the deadlines of all
                    _log.exception("A connection could not be looked after")
                if number % _SWEPT_AT_ONCE == 0:
                    await asyncio.sleep(0)  # many may be past their deadline, and others wait for answers

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but without raising the signal again at the end."""
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
        """Stop in order; at the second signal at once. What was acknowledged is on disk either way."""
        if self.should_exit and self._patience is _STOPPING:
            os._exit(128 + sig)
        self.stop()

    def stop(self) -> None:
        """Stop in order, as at a signal. On the event loop."""
        if self._patience is _RETIRING:
            self._patience = _STOPPING
            self._deadline = asyncio.get_running_loop().time() + _STOPPING.last
            self._on_stop()
        self.should_exit = True

    def retire(self) -> None:
        """Stop in order while other processes go on with the same listening socket, hence without haste.

        A connection ends with the answer to its next request, for which it has five seconds; after a minute all end.
        """
        if not self.should_exit:
            self._patience = _RETIRING
            self.should_exit = True


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket that has its address but doesn't listen yet: a taken port is told before anything is changed."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):  # else the kernel keeps megabytes for each slow reader
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT)
        listener.bind(address)
    except (OSError, UnicodeError) as error:
        raise _cannot_listen(f"{host} port {port}", error) from None
    return listener


def _cannot_listen(place: str, error: Exception) -> Problem:
    reason = getattr(error, "strerror", None) or "this is no name of a host"
    return Problem("invalid_setting", f"Can't listen on {place}: {reason}. Choose another with --host or --port")


def base_url_of(listener: socket.socket) -> str:
    """Where a client on this machine reaches the service."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not listened on
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
