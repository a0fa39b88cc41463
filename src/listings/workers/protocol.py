"""Messages between supervisor and worker: lines of JSON over a socket pair.

A closed socket also tells each side that the other has ended.
"""

from typing import TypeAlias

import msgspec

from listings.domain.errors import Code
from listings.telemetry.metrics import Family

MAX_LINE_BYTES = 16 * 1024 * 1024


class Begin(msgspec.Struct, tag="begin"):
    """First command to a worker: the settings that were given as flags, by attribute."""

    flags: dict[str, str | None]


class Retire(msgspec.Struct, tag="retire"):
    """Command to a worker: stop gracefully, with more time than at a shutdown, because the others keep running."""


class RequestMetrics(msgspec.Struct, tag="ask"):
    """Command to a worker: report the metrics."""


class Ready(msgspec.Struct, tag="ready"):
    """Event: the worker accepts connections."""


class Failed(msgspec.Struct, tag="refused"):
    """Event: the worker exits because of a Problem."""

    code: Code
    message: str


class Report(msgspec.Struct, tag="report"):
    """Event: the worker's metrics, on request and before it exits."""

    families: list[Family]


Command: TypeAlias = Begin | Retire | RequestMetrics
Event: TypeAlias = Ready | Failed | Report

_commands: msgspec.json.Decoder[Command] = msgspec.json.Decoder(Command)
_events: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def encode(message: Command | Event) -> bytes:
    """Return the line of a message."""
    return msgspec.json.encode(message) + b"\n"


def decode_command(line: bytes) -> Command:
    """Decode a line from the supervisor."""
    return _commands.decode(line)


def decode_event(line: bytes) -> Event:
    """Decode a line from a worker."""
    return _events.decode(line)
