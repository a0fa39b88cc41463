"""The reference: an application on plain uvicorn that knows one answer by heart, of the service's size and headers."""

import os
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any, TypeAlias

_Message: TypeAlias = MutableMapping[str, Any]
_Application: TypeAlias = Callable[
    [_Message, Callable[[], Awaitable[_Message]], Callable[[_Message], Awaitable[None]]], Awaitable[None]
]

ANSWER_VARIABLE = "BENCH_ANSWER"


def application() -> _Application:
    """The ASGI application that gives the answer of the file that the environment names."""
    head, _, body = Path(os.environ[ANSWER_VARIABLE]).read_bytes().partition(b"\r\n\r\n")
    status_line, *lines = head.split(b"\r\n")
    fields = [line.split(b": ", 1) for line in lines]
    start = {
        "type": "http.response.start",
        "status": int(status_line.split(b" ")[1]),
        "headers": [(name, value) for name, value in fields if name.lower() != b"date"],  # uvicorn adds its own
    }
    finish = {"type": "http.response.body", "body": body}

    async def answer(
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

    return answer
