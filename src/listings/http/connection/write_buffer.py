"""Buffer the responses of one event loop iteration and send them together.

Waking up a client that sleeps in `recv` is the most expensive part of a `send`: it takes as long as the rest of
the call. Responses sent in quick succession find the client awake.
"""

import asyncio
import logging
from collections.abc import Callable
from itertools import cycle
from typing import Any, TypeAlias

Transport: TypeAlias = Any
"""The transport of a connection. asyncio and uvloop share no type for it."""

Data: TypeAlias = bytes | tuple[bytes, bytes]
"""A complete response, or its head and a body that is too large to copy."""

OnSent: TypeAlias = Callable[[], None] | None

MAX_BUFFERED = 16
"""Responses per batch: enough to profit, and few enough that no client waits long."""

UNBUFFERED_RUNS = (16, 11)
"""How many responses to send unbuffered after a loop iteration that had only one response.

Buffering a single response only costs time. After that many, responses are buffered again until the end of the loop
iteration, to see whether there are several. The two numbers alternate: with n alone, iterations of n + 1 responses
would always have n sent unbuffered and one buffered, so that they seem to have only one.
"""

_log = logging.getLogger(__name__)


class WriteBuffer:
    """The buffered responses of all connections of one event loop.

    Call `flush` before you write to a transport directly, or close it.
    """

    __slots__ = ("_buffer", "_count", "_runs", "_unbuffered")

    def __init__(self) -> None:
        self._buffer: list[tuple[Transport, Data, OnSent]] = []
        self._count = 0  # of responses in this loop iteration, without those sent directly
        self._unbuffered = 0  # how many of the next responses to send directly
        self._runs = cycle(UNBUFFERED_RUNS)

    def put(self, transport: Transport, data: Data, on_sent: OnSent = None) -> None:
        """Send the data by the end of this loop iteration, and call `on_sent` when the transport has tried to."""
        if self._unbuffered:
            self._unbuffered -= 1
            _send(transport, data, on_sent)
            return
        if not self._count:
            asyncio.get_running_loop().call_soon(self._end_iteration)
        self._count += 1
        self._buffer.append((transport, data, on_sent))
        if len(self._buffer) == MAX_BUFFERED:
            self.flush()

    def flush(self) -> None:
        """Send all buffered responses, except to clients that have left."""
        buffer, self._buffer = self._buffer, []
        for transport, data, on_sent in buffer:
            _send(transport, data, on_sent)

    def _end_iteration(self) -> None:
        if self._count == 1:
            self._unbuffered = next(self._runs)
        self._count = 0
        self.flush()


def _send(transport: Transport, data: Data, on_sent: OnSent) -> None:
    try:
        if transport.is_closing():
            return
        if type(data) is bytes:
            transport.write(data)
        else:
            transport.writelines(data)
    except Exception:  # noqa: BLE001 - a broken connection must not keep the others from their responses
        _log.exception("Sending a response failed")
        transport.abort()
    finally:
        if on_sent is not None:
            on_sent()
