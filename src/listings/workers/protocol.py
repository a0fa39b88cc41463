"""What the supervisor and a worker say to each other: lines of JSON over a pair of sockets.

The pair is also how each learns that the other has ended, however it did.
"""

from typing import TypeAlias

import msgspec

from listings.domain.errors import Code
from listings.telemetry.metrics import Family

LONGEST = 16 * 1024 * 1024  # bytes of a line


class Begin(msgspec.Struct, tag="begin"):
    """The first word to a worker: the settings that were given as flags, by attribute."""

    flags: dict[str, str | None]


class Retire(msgspec.Struct, tag="retire"):
    """To a worker: stop in order and without haste; others go on."""


class Ask(msgspec.Struct, tag="ask"):
    """To a worker: report the metrics."""


class Ready(msgspec.Struct, tag="ready"):
    """The worker accepts connections."""


class Refused(msgspec.Struct, tag="refused"):
    """The worker ends since it can't do its work: a Problem."""

    code: Code
    message: str


class Report(msgspec.Struct, tag="report"):
    """The worker's metrics, when asked for and at its end."""

    families: list[Family]


Order: TypeAlias = Begin | Retire | Ask
News: TypeAlias = Ready | Refused | Report

_orders: msgspec.json.Decoder[Order] = msgspec.json.Decoder(Order)
_news: msgspec.json.Decoder[News] = msgspec.json.Decoder(News)


def line_of(message: Order | News) -> bytes:
    """A message as it is sent."""
    return msgspec.json.encode(message) + b"\n"


def order_of(line: bytes) -> Order:
    """What the supervisor said."""
    return _orders.decode(line)


def news_of(line: bytes) -> News:
    """What a worker said."""
    return _news.decode(line)
