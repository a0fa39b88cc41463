"""What an endpoint is."""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeAlias

from listings.api.codec import Response
from listings.api.docs.operations import Operation
from listings.api.request import Request
from listings.service import Service

Handler: TypeAlias = Callable[[Service, Request], Awaitable[Response]]


class Endpoint(NamedTuple):
    """A handler, what it does in words, and what the gate does before it."""

    handle: Handler
    about: Operation
    needs_key: bool = True
    takes_body: bool = False
    counts: bool = True  # towards the limit of the key


Routes: TypeAlias = Mapping[str, Mapping[str, Endpoint]]
"""Path, method, endpoint."""
