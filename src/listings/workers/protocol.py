"""Messages between supervisor and worker: lines of JSON over a socket pair.

A closed socket means that the other side has ended. A reload may start workers of a newer version than the
supervisor's, so the tags of existing messages never change.
"""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from listings.telemetry.metrics import Family

MAX_LINE_BYTES = 16 * 1024 * 1024


class Begin(msgspec.Struct, tag="begin"):
    """First command to a worker: the settings given as flags, by the name of the `Settings` attribute."""

    flags: dict[str, str | None]


class Retire(msgspec.Struct, tag="retire"):
    """Command to a worker: stop gracefully, with more time than at a shutdown, because the others keep running."""


class Stop(msgspec.Struct, tag="stop"):
    """Command to a worker: stop gracefully. It also shortens a running retirement."""


class RequestMetrics(msgspec.Struct, tag="ask"):
    """Command to a worker: report the metrics."""


class Ping(msgspec.Struct, tag="ping"):
    """Command to a worker: show that the event loop runs."""


class Ready(msgspec.Struct, tag="ready"):
    """Event: the worker accepts connections."""


class Failed(msgspec.Struct, tag="refused"):
    """Event: the worker exits because of a Problem."""

    code: str  # a `Code`, but a newer version may have others
    message: str


class Pong(msgspec.Struct, tag="pong"):
    """Event: the response to a ping."""


class Report(msgspec.Struct, tag="report"):
    """Event: the worker's metrics, on request and before it exits."""

    families: list[Family]


Command: TypeAlias = Begin | Retire | Stop | RequestMetrics | Ping
Event: TypeAlias = Ready | Failed | Pong | Report

decode_command: Callable[[bytes], Command] = msgspec.json.Decoder(Command).decode
"""Decode a line from the supervisor."""

decode_event: Callable[[bytes], Event] = msgspec.json.Decoder(Event).decode
"""Decode a line from a worker. Raises msgspec.MsgspecError for an event that only a newer version has."""


async def read_line(reader: asyncio.StreamReader) -> bytes:
    """Return the next line, or b"" if the other side has ended, even if it was killed while sending one."""
    try:
        line = await reader.readline()
    except (ConnectionError, ValueError):  # ValueError: it is longer than the reader's limit
        return b""
    return line if line.endswith(b"\n") else b""


def encode(message: Command | Event) -> bytes:
    """Return the line of a message."""
    return msgspec.json.encode(message) + b"\n"
