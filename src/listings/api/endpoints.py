"""The type of an endpoint."""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeAlias

from listings.api.codec import Response
from listings.api.docs.operations import Operation
from listings.api.request import Request
from listings.service import Services

Handler: TypeAlias = Callable[[Services, Request], Awaitable[Response]]


class Endpoint(NamedTuple):
    """A handler, its documentation, and the checks that run before it."""

    handle: Handler
    operation: Operation | None = None  # None: not in the OpenAPI document
    needs_key: bool = True
    takes_body: bool = False
    takes_upload: bool = False  # a picture, which goes to a file
    counts: bool = True  # towards the rate limit of the key


Routes: TypeAlias = Mapping[str, Mapping[str, Endpoint]]
"""Path, method, endpoint."""
