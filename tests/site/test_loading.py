"""The pages are loaded once, when the first of them is asked for."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from listings.front import LatePages
from tests.houses import House
from tests.site.market import get

CODE = """
import sys
from pathlib import Path
from tests.houses import House
with House(Path(sys.argv[1])) as house:
    for path in ("/healthz", "/api/v1/listings", "/api/nothing"):
        house.ask("GET", path)
        assert not sys.modules.keys() & {"starlette", "jinja2"}, path
    assert house.ask("GET", "/").status == 200
    assert sys.modules.keys() >= {"starlette", "jinja2"}
"""


def test_the_api_never_loads_them(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", CODE, str(tmp_path)], check=True)


def test_visitors_who_come_together_load_them_once() -> None:
    loaded: list[int] = []

    async def pages(scope: Any, receive: Any, send: Any) -> bool:  # noqa: ARG001 - an application's signature
        return bool(scope["known"])

    def load() -> Any:
        loaded.append(1)
        return pages

    async def ask() -> list[bool]:
        late = LatePages(load)
        scopes: list[dict[str, Any]] = [{"known": True}, {"known": False}, {"known": True}]
        return await asyncio.gather(*(late(scope, _nothing, _nothing) for scope in scopes))  # type: ignore[arg-type]

    assert asyncio.run(ask()) == [True, False, True]
    assert loaded == [1]


async def _nothing(*_: object) -> None:
    """Neither receives nor sends."""


def test_what_fails_behind_the_first_bytes_ends_the_connection(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    from starlette.responses import Response  # noqa: PLC0415 - as the pages do

    async def fail(self: Response, scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG001 - its signature
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("half an answer")

    get(house, "/")
    monkeypatch.setattr(Response, "__call__", fail)
    with pytest.raises(RuntimeError, match="half an answer"):
        get(house, "/")
