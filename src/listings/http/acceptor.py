"""Taking in clients who come together, and turning away those who come too late.

uvloop's server takes in one connection in each turn of the loop. A turn lasts as long as the answers in it, so that
of hundreds of clients who connect to a busy service the last ones wait for seconds.
"""

import asyncio
import ctypes
import socket
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

# A classic BPF program over a TCP segment that reaches a listening socket: it drops those that ask for a connection
# (SYN without ACK) and lets all others pass. Each line: operation, jump if true, jump if false, operand.
_DROP_NEW = (
    (0x30, 0, 0, 13),  # load the byte of the flags
    (0x54, 0, 0, 0x12),  # keep SYN and ACK of it
    (0x15, 0, 1, 0x02),  # SYN alone?
    (0x06, 0, 0, 0),  # drop
    (0x06, 0, 0, 0xFFFF_FFFF),  # pass
)
HANDSHAKE_SECONDS = 0.1
"""For the clients whose connection is half made when newcomers are turned away."""
_SO_ATTACH_FILTER = 26  # asm-generic/socket.h; the socket module doesn't have it


class Acceptor:
    """Takes in connections of listening sockets beside the server, many at once. For one event loop.

    What there is no room for is left to the server, which refuses it; so is a lack of open files.
    """

    def __init__(self, protocol: Callable[[], asyncio.Protocol], room: Callable[[], int], at_once: int) -> None:
        """`protocol` makes a connection's; `room` tells how many more connections there may be.

        `at_once`: in a turn of the loop. Few, where other processes accept from the same sockets: each is to get some.
        """
        self._loop = asyncio.get_running_loop()
        self._protocol = protocol
        self._room = room
        self._at_once = at_once
        self._listeners: list[socket.socket] = []
        self._arriving: set[asyncio.Task[None]] = set()

    def start(self, listeners: Iterable[socket.socket]) -> None:
        """Begin with sockets that listen already; each is watched through a descriptor of its own."""
        for listener in listeners:
            watched = listener.dup()
            watched.setblocking(False)  # noqa: FBT003 - the socket module's own signature
            self._listeners.append(watched)
            self._loop.add_reader(watched, self._take_in, watched)

    def stop(self, *, take_in: bool) -> None:
        """Take in nothing more; with `take_in`, only after what the kernel has accepted, which it would reset."""
        for listener in self._listeners:
            self._loop.remove_reader(listener)
            for connection in _waiting(listener) if take_in else ():
                self._connect(connection)
            listener.close()
        self._listeners.clear()

    async def finish(self) -> None:
        """Wait until all that were taken in have their protocol; one that fails keeps no other from it."""
        if self._arriving:
            await asyncio.wait(self._arriving)

    def _take_in(self, listener: socket.socket) -> None:
        room = min(self._at_once, self._room() - len(self._arriving))
        for connection in islice(_waiting(listener), max(0, room)):
            self._connect(connection)

    def _connect(self, connection: socket.socket) -> None:
        task = self._loop.create_task(self._connected(connection))
        self._arriving.add(task)
        task.add_done_callback(self._arriving.discard)

    async def _connected(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._protocol, connection)
        except OSError:  # the client has gone again
            connection.close()


def reject_new_connections(listener: socket.socket) -> bool:
    """Let nobody connect any more who has not begun to; False where this system can't.

    The kernel resets what it has accepted when a listening socket is closed. From now on it accepts nothing new, so
    that who takes in what it has accepted, and then closes, resets nobody. Who comes now asks again a second later,
    and is refused then, or reaches whoever listens there then.
    """
    if sys.platform != "linux":
        return False
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in _DROP_NEW))
    try:
        listener.setsockopt(
            socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", len(_DROP_NEW), ctypes.addressof(program))
        )
    except OSError:  # a sandbox that knows no filters
        return False
    return True


def _waiting(listener: socket.socket) -> Iterator[socket.socket]:
    """The connections that nobody has taken from the kernel yet."""
    try:
        while True:
            yield listener.accept()[0]
    except OSError:  # none is left, or no file may be opened
        return
