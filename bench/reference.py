"""The reference: an ASGI application that returns one constant response with the size and headers of the service's."""

import os
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any, TypeAlias

_Message: TypeAlias = MutableMapping[str, Any]
_Application: TypeAlias = Callable[
    [_Message, Callable[[], Awaitable[_Message]], Callable[[_Message], Awaitable[None]]], Awaitable[None]
]

RESPONSE_VARIABLE = "BENCH_RESPONSE"


def application() -> _Application:
    """Build the application; the response is in the file that the environment names."""
    head, _, body = Path(os.environ[RESPONSE_VARIABLE]).read_bytes().partition(b"\r\n\r\n")
    status_line, *lines = head.split(b"\r\n")
    fields = [line.split(b": ", 1) for line in lines]
    start = {
        "type": "http.response.start",
        "status": int(status_line.split(b" ")[1]),
        "headers": [(name, value) for name, value in fields if name.lower() != b"date"],  # uvicorn adds its own
    }
    finish = {"type": "http.response.body", "body": body}

    async def response(
        scope: _Message,
        receive: Callable[[], Awaitable[_Message]],
        send: Callable[[_Message], Awaitable[None]],
    ) -> None:
        if scope["type"] != "http":
            return
        if scope["method"] == "POST":
            while (await receive()).get("more_body"):
                pass
        await send(start)
        await send(finish)

    return response
