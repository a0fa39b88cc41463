"""The classes and constants of uvicorn that our protocol builds on.

uvicorn does not document most of them, so only this module imports uvicorn, and `tests/http/test_uvicorn_base.py` fails
when they change.
"""

import logging
from collections.abc import Callable
from typing import Any

from uvicorn import Config
from uvicorn import Server as UvicornServer
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

__all__ = (
    "HIGH_WATER_LIMIT",
    "STATUS_LINE",
    "Config",
    "FlowControl",
    "HttpToolsProtocol",
    "UvicornServer",
)  # re-exported

_log = logging.getLogger(__name__)


class BaseExchange(RequestResponseCycle):
    """uvicorn's request and response, with a constructor that takes half as long.

    The initial values that all requests share are attributes of the class.
    """

    access_log = False
    disconnected = False
    response_started = False
    response_complete = False
    more_body = True
    chunked_encoding: bool | None = None
    expected_content_length = 0

    def __init__(
        self,
        transport: Any,  # has `write`, `close` and `is_closing`
        flow: FlowControl,
        default_headers: list[tuple[bytes, bytes]],
        message_event: Any,  # has `set`, `clear` and `wait`
        on_response: Callable[[], None],
    ) -> None:
        """Set what uvicorn sets, except `scope`, `keep_alive` and `waiting_for_100_continue`."""
        self.logger = self.access_logger = _log  # not an attribute of the class: mypyc supports no such default
        self.transport = transport
        self.flow = flow
        self.default_headers = default_headers
        self.message_event = message_event
        self.on_response = on_response
        self.body = bytearray()
