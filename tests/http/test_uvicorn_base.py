"""The undocumented classes of uvicorn are as `listings.http` expects them."""

import hashlib
import inspect
from types import SimpleNamespace
from typing import Any

import pytest
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import Server as UvicornServer

from listings.http.connection.exchange import HttpExchange
from listings.http.connection.protocol import HttpConnection
from listings.http.server import Server
from listings.http.uvicorn_base import STATUS_LINE

REVIEWED = {  # the start of the SHA-256 of a class's source
    HttpToolsProtocol: "18fdf324b11bf160",
    RequestResponseCycle: "e67d470d435dcc1c",
    FlowControl: "126debcdaa894c83",
    UvicornServer: "06e799f7c58f8be6",
}
OVERRIDDEN = [
    (
        HttpConnection,
        HttpToolsProtocol,
        "connection_made connection_lost eof_received data_received on_response_complete",
    ),
    (HttpExchange, RequestResponseCycle, "send"),
    (Server, UvicornServer, "startup shutdown capture_signals handle_exit"),
]


@pytest.mark.parametrize("reviewed", REVIEWED, ids=lambda reviewed: reviewed.__name__)
def test_uvicorn_has_not_changed(reviewed: type) -> None:
    digest = hashlib.sha256(inspect.getsource(reviewed).encode()).hexdigest()[:16]
    assert digest == REVIEWED[reviewed], (
        f"uvicorn has changed {reviewed.__name__}. Compare its source with the last version's: does it set new "
        "attributes (uvicorn_base.py), or call methods that listings/http overrides? Then store the digest here."
    )


@pytest.mark.parametrize(("own", "base", "names"), OVERRIDDEN)
def test_uvicorn_has_the_methods_that_are_overridden(own: type, base: type, names: str) -> None:
    missing = [name for name in names.split() if name not in vars(base)]
    assert missing == [], f"uvicorn no longer calls these methods of {own.__name__}: find out what does their work now"


def test_an_exchange_has_the_attributes_that_uvicorn_uses() -> None:
    parts: Any = {"transport": 1, "flow": 2, "default_headers": [], "message_event": 3, "on_response": 4}
    request: Any = {"scope": {}, "keep_alive": True, "expect_100_continue": False}
    log: Any = {"logger": None, "access_logger": None, "access_log": False}
    theirs = vars(RequestResponseCycle(**parts, **request, **log))
    connection: Any = SimpleNamespace(flow=2, server_state=SimpleNamespace(default_headers=[]))
    own = HttpExchange(connection, "GET", (b"/", "/", b""), [], "1.1", keep_alive=True, expects_100_continue=False)
    theirs |= {"transport": connection, "message_event": own.message_event, "on_response": own.on_response}
    for name in ("scope", "logger", "access_logger"):  # unused
        del theirs[name]
    assert {name: getattr(own, name, "missing") for name in theirs} == theirs, "BaseExchange must set what uvicorn sets"


def test_the_constants_of_uvicorn() -> None:
    assert STATUS_LINE[404] == b"HTTP/1.1 404 Not Found\r\n", "HttpExchange.respond begins each response with it"
