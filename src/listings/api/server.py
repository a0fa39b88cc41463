"""The HTTP server under the application: uvicorn, set the one way it is run."""

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import uvicorn

from listings.api.app import Application
from listings.errors import Problem

_KEEP_ALIVE = 75  # seconds
_LAST_REQUESTS = 10  # seconds that running requests have when the service stops


class Server(uvicorn.Server):
    """uvicorn, telling when it answers and ending with exit code 0 when it is told to stop."""

    def __init__(self, application: Application, on_start: Callable[[], None]) -> None:
        """`on_start` is called once, when connections are accepted."""
        super().__init__(
            uvicorn.Config(
                cast("Any", application),  # uvicorn's own type of a scope is narrower than ASGI's
                loop="none",
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE,
                timeout_graceful_shutdown=_LAST_REQUESTS,
            )
        )
        self._on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and tell it."""
        await super().startup(sockets)
        self._on_start()

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


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket that has its address but doesn't listen yet: a taken port is told before anything is changed."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise Problem(
            "invalid_setting",
            f"Can't listen on {host} port {port}: {error.strerror}. Choose another with --port",
        ) from None
    return listener


def base_url_of(listener: socket.socket) -> str:
    """Where a client on this machine reaches the service."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not listened on
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
