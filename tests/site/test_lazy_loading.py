"""The pages are loaded once, when the first of them is asked for."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from listings.site.lazy import LazyPages
from tests.harness import Harness
from tests.site.market import get

CODE = """
import sys
from pathlib import Path
from tests.harness import Harness
with Harness(Path(sys.argv[1])) as harness:
    for path in ("/healthz", "/api/v1/listings", "/api/nothing"):
        harness.fetch("GET", path)
        assert not sys.modules.keys() & {"starlette", "jinja2"}, path
    assert harness.fetch("GET", "/").status == 200
    assert sys.modules.keys() >= {"starlette", "jinja2"}
"""

REPAIRED = """
import sys
from pathlib import Path
import httpx
from tests.harness import RunningService
with RunningService(Path(sys.argv[1])) as service:
    sys.modules["jinja2"] = None
    for _ in range(2):
        assert httpx.get(service.base_url, timeout=60).status_code == 500
        assert httpx.get(service.base_url + "/healthz", timeout=60).status_code == 200
    del sys.modules["jinja2"]
    assert httpx.get(service.base_url, timeout=60).status_code == 200
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

    async def fetch() -> list[bool]:
        late = LazyPages(load)
        scopes: list[dict[str, Any]] = [{"known": True}, {"known": False}, {"known": True}]
        return await asyncio.gather(*(late(scope, _nothing, _nothing) for scope in scopes))  # type: ignore[arg-type]

    assert asyncio.run(fetch()) == [True, False, True]
    assert loaded == [1]


def test_what_could_not_be_loaded_is_tried_again_for_the_next_visitor() -> None:
    tries: list[int] = []

    async def pages(*_: object) -> bool:
        return True

    def load() -> Any:
        tries.append(1)
        if len(tries) < 3:
            raise OSError(f"no page at try {len(tries)}")
        return pages

    async def fetch() -> list[object]:
        late = LazyPages(load)
        together = await asyncio.gather(*(late({}, _nothing, _nothing) for _ in range(3)), return_exceptions=True)  # type: ignore[arg-type]
        with pytest.raises(OSError, match="no page at try 2"):
            await late({}, _nothing, _nothing)  # type: ignore[arg-type]
        return [*map(str, together), await late({}, _nothing, _nothing), await late({}, _nothing, _nothing)]  # type: ignore[arg-type]

    assert asyncio.run(fetch()) == [*["no page at try 1"] * 3, True, True]
    assert len(tries) == 3


def test_a_load_that_fails_is_logged_each_time_until_it_succeeds(tmp_path: Path) -> None:
    outcome = subprocess.run(
        [sys.executable, "-c", REPAIRED, str(tmp_path)], check=True, stderr=subprocess.PIPE, text=True
    )
    assert outcome.stderr.count("ModuleNotFoundError: import of jinja2 halted") == 2


async def _nothing(*_: object) -> None:
    """Neither receives nor sends."""


def test_what_fails_behind_the_first_bytes_ends_the_connection(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    from starlette.responses import Response  # noqa: PLC0415 - as the pages do

    async def fail(self: Response, scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG001 - its signature
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("half an answer")

    get(harness, "/")
    monkeypatch.setattr(Response, "__call__", fail)
    with pytest.raises(RuntimeError, match="half an answer"):
        get(harness, "/")
