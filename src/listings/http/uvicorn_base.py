"""The classes and constants of uvicorn that our protocol builds on.

uvicorn does not document most of them, so only this module imports uvicorn, and `tests/http/test_uvicorn_base.py` fails
when they change.
"""

from typing import Any

from uvicorn import Config
from uvicorn import Server as UvicornServer
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

__all__ = ("STATUS_LINE", "Config", "FlowControl", "HttpToolsProtocol", "UvicornServer")  # re-exported


class BaseExchange(RequestResponseCycle):
    """uvicorn's request and response, with a constructor that takes half as long.

    The initial values that all requests share are attributes of the class.
    """

    access_log = False
    waiting_for_100_continue = False
    disconnected = False
    response_started = False
    response_complete = False
    more_body = True
    chunked_encoding: bool | None = None
    expected_content_length = 0

    def __init__(self, connection: Any, message_event: Any) -> None:
        """Set what uvicorn sets, except `scope`, `keep_alive`, `default_headers` and `on_response`.

        `connection` is what uvicorn calls the transport. `message_event` has `set`, `clear` and `wait`.
        """
        self.transport = connection
        self.flow: FlowControl = connection.flow
        self.message_event = message_event
        self.body = bytearray()
