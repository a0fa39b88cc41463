"""The answers of one turn of the event loop, sent together.

A client on the other side sleeps while there is nothing to read, and to wake it is the dearest part of a `send`: it
takes the kernel as long as all the rest. Answers that follow each other at once find it awake.
"""

import asyncio
import logging
from itertools import cycle
from typing import Any, TypeAlias

Data: TypeAlias = bytes | tuple[bytes, bytes]
"""Of an answer: all of it, or its head and a body that is too long to be copied."""

MOST = 16
"""Answers that wait for others: so many are worth it, and no client waits long for the work of the rest."""

AT_ONCE = (16, 11)
"""Answers that wait for no other after one that has waited for nothing: a turn of the loop costs time, too.

Of two numbers by turns, or it could be the last one of a full turn that is looked at, each time again.
"""

_log = logging.getLogger(__name__)


class WriteBuffer:
    """What the connections of one event loop are about to send; until then it is not in their transports.

    Whoever writes to such a transport otherwise, or closes it, has to `flush` before.
    """

    __slots__ = ("_at_once", "_of_turn", "_spans", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[tuple[Any, Data]] = []
        self._of_turn = 0  # how many answers there were in this turn of the loop
        self._at_once = 0  # how many of the next answers wait for no other
        self._spans = cycle(AT_ONCE)

    def put(self, transport: Any, data: Data) -> None:  # noqa: ANN401 - asyncio's and uvloop's have no common type
        """Send it before the loop waits for anything."""
        if self._at_once:
            self._at_once -= 1
            _send(transport, data)
            return
        if not self._of_turn:
            asyncio.get_running_loop().call_soon(self._end_turn)
        self._of_turn += 1
        self._waiting.append((transport, data))
        if len(self._waiting) == MOST:
            self.flush()

    def flush(self) -> None:
        """Send what waits, to whoever is still there."""
        waiting, self._waiting = self._waiting, []
        for transport, data in waiting:
            _send(transport, data)

    def _end_turn(self) -> None:
        if self._of_turn == 1:
            self._at_once = next(self._spans)
        self._of_turn = 0
        self.flush()


def _send(transport: Any, data: Data) -> None:  # noqa: ANN401 - as above
    if transport.is_closing():
        return
    try:
        if type(data) is bytes:
            transport.write(data)
        else:
            transport.writelines(data)
    except Exception:  # noqa: BLE001 - whatever is wrong with one connection, the others get their answers
        _log.exception("An answer could not be sent")
        transport.abort()
