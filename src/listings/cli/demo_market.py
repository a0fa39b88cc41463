"""The sellers of the demo and their listings, which are in `demo_market.json`. The service has their pictures."""

from importlib.resources import files
from typing import Any

import msgspec


class DemoSeller(msgspec.Struct, frozen=True):
    """A seller with listings as in the body of a create."""

    name: str
    email: str
    listings: tuple[dict[str, Any], ...]
    contact: str = ""


def read_sellers() -> tuple[DemoSeller, ...]:
    """Return the sellers. The first three are Alice, Bob and Charlie, who get a key and a password."""
    return msgspec.json.decode(
        files("listings.cli").joinpath("demo_market.json").read_bytes(), type=tuple[DemoSeller, ...]
    )
