"""Accept connections in batches, and drop new attempts to connect during a shutdown.

uvloop's server accepts one connection per loop iteration. An iteration lasts as long as the requests that it serves, so
on a busy service the last of hundreds of connecting clients would wait for seconds.
"""

import asyncio
import ctypes
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

# A classic BPF program that runs on each TCP segment for a listening socket. It drops connection attempts (SYN without
# ACK) and passes all other segments. Each line: operation, jump if true, jump if false, operand.
_DROP_NEW = (
    (0x30, 0, 0, 13),  # load the flags byte
    (0x54, 0, 0, 0x12),  # mask SYN and ACK
    (0x15, 0, 1, 0x02),  # SYN only?
    (0x06, 0, 0, 0),  # drop
    (0x06, 0, 0, 0xFFFF_FFFF),  # pass
)
_MIN_BATCH_SIZE = 2
HANDSHAKE_SECONDS = 0.1
"""How long handshakes that are in progress may take after new ones are dropped."""
_SO_ATTACH_FILTER = 26  # asm-generic/socket.h; missing from the socket module


class Acceptor:
    """Accepts connections in batches, in addition to uvicorn's server. For one event loop.

    Connections beyond the limit, and those for which there is no file descriptor, are left to uvicorn's server, which
    rejects them.
    """

    def __init__(
        self,
        build_protocol: Callable[[], asyncio.Protocol],
        count_free: Callable[[], int],
        batch_size: int,
        count_pieces: Callable[[], int],
    ) -> None:
        """Set up the acceptor.

        `build_protocol` builds the protocol of a connection. `count_free` returns how many more connections may be
        opened. At most `batch_size` connections are accepted per loop iteration. Keep it small if other processes
        accept from the same sockets, so that each gets some. `count_pieces` returns how many large pieces of bodies
        have arrived. While these arrive, at most two connections are accepted: the first 256 KB of sixteen clients'
        bodies would take 15 ms.
        """
        self._loop = asyncio.get_running_loop()
        self._build_protocol = build_protocol
        self._count_free = count_free
        self._batch_size = batch_size
        self._count_pieces = count_pieces
        self._pieces = 0  # at the last batch
        self._listeners: list[socket.socket] = []
        self._connecting: set[asyncio.Task[None]] = set()

    def start(self, listeners: Iterable[socket.socket]) -> None:
        """Watch listening sockets. Each is duplicated, because the server watches the original descriptor."""
        for listener in listeners:
            watched = listener.dup()
            watched.setblocking(False)  # noqa: FBT003 - the socket module's own signature
            self._listeners.append(watched)
            self._loop.add_reader(watched, self._accept_batch, watched)

    def stop(self, *, accept_pending: bool) -> None:
        """Stop accepting. With `accept_pending`, first accept the queued connections that a close would reset."""
        for listener in self._listeners:
            self._loop.remove_reader(listener)
            for connection in _accept_all(listener) if accept_pending else ():
                self._connect(connection)
            listener.close()
        self._listeners.clear()

    async def finish(self) -> None:
        """Wait until all accepted connections have a protocol. Failures do not affect other connections."""
        if self._connecting:
            await asyncio.wait(self._connecting)

    def _accept_batch(self, listener: socket.socket) -> None:
        before, self._pieces = self._pieces, self._count_pieces()
        batch_size = _MIN_BATCH_SIZE if self._pieces > before else self._batch_size
        count = min(batch_size, self._count_free() - len(self._connecting))
        for connection in islice(_accept_all(listener), max(0, count)):
            self._connect(connection)

    def _connect(self, connection: socket.socket) -> None:
        task = self._loop.create_task(self._set_up(connection))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _set_up(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._build_protocol, connection)
        except OSError:  # the client has left
            connection.close()


def drop_new_connections(listener: socket.socket) -> bool:
    """Drop new connection attempts from now on. Return False if a sandbox forbids it.

    When a listening socket is closed, the kernel resets all connections in its queue. After this call, only handshakes
    in progress add to the queue, for `HANDSHAKE_SECONDS`. So a caller that waits for them, and accepts the queued
    connections before it closes the socket, resets none. A client whose attempt is dropped retries after a second: it
    is then refused, or reaches the next process that listens.
    """
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in _DROP_NEW))
    try:
        listener.setsockopt(
            socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", len(_DROP_NEW), ctypes.addressof(program))
        )
    except OSError:  # a sandbox without socket filters
        return False
    return True


def _accept_all(listener: socket.socket) -> Iterator[socket.socket]:
    try:
        while True:
            yield listener.accept()[0]
    except OSError:  # the queue is empty, or there is no free file descriptor
        return
