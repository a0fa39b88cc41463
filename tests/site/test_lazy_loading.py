"""The pages are loaded once, on the first request for one."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from listings.site.lazy import LazyPages
from tests.harness import Harness
from tests.site.market import get

API_ONLY = """
import sys
from pathlib import Path
from tests.harness import Harness
with Harness(Path(sys.argv[1])) as harness:
    for path in ("/healthz", "/api/v1/listings", "/api/nothing", "/openapi.json"):
        harness.fetch("GET", path)
        assert not sys.modules.keys() & {"starlette", "jinja2", "markdown_it"}, path
    assert harness.fetch("GET", "/docs").status == 200
    assert "jinja2" in sys.modules
    assert "markdown_it" not in sys.modules
    assert "starlette" not in sys.modules
    assert harness.fetch("GET", "/").status == 200
    assert sys.modules.keys() >= {"starlette", "jinja2"}
"""

FAILING = """
import sys
from pathlib import Path
import httpx2
from tests.harness import RunningService
with RunningService(Path(sys.argv[1])) as service:
    sys.modules["jinja2"] = None
    for _ in range(2):
        assert httpx2.get(service.base_url, timeout=60).status_code == 500
        assert httpx2.get(service.base_url + "/healthz", timeout=60).status_code == 200
    del sys.modules["jinja2"]
    assert httpx2.get(service.base_url, timeout=60).status_code == 200
"""


def test_api_requests_do_not_load_the_pages(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", API_ONLY, str(tmp_path)], check=True)


def test_simultaneous_requests_load_the_pages_once() -> None:
    loaded: list[int] = []

    async def pages(scope: Any, receive: Any, send: Any) -> bool:  # noqa: ARG001 - the signature of ASGI
        return bool(scope["known"])

    def load() -> Any:
        loaded.append(1)
        return pages

    async def fetch() -> list[bool]:
        lazy = LazyPages(load)
        scopes: list[dict[str, Any]] = [{"known": True}, {"known": False}, {"known": True}]
        return await asyncio.gather(*(lazy(scope, _nothing, _nothing) for scope in scopes))  # type: ignore[arg-type]

    assert asyncio.run(fetch()) == [True, False, True]
    assert loaded == [1]


def test_a_failed_load_is_retried_by_the_next_request() -> None:
    attempts: list[int] = []

    async def pages(*_: object) -> bool:
        return True

    def load() -> Any:
        attempts.append(1)
        if len(attempts) < 3:
            raise OSError(f"failed attempt {len(attempts)}")
        return pages

    async def fetch() -> list[object]:
        lazy = LazyPages(load)
        failures = await asyncio.gather(*(lazy({}, _nothing, _nothing) for _ in range(3)), return_exceptions=True)  # type: ignore[arg-type]
        with pytest.raises(OSError, match="failed attempt 2"):
            await lazy({}, _nothing, _nothing)  # type: ignore[arg-type]
        return [*map(str, failures), await lazy({}, _nothing, _nothing), await lazy({}, _nothing, _nothing)]  # type: ignore[arg-type]

    assert asyncio.run(fetch()) == [*["failed attempt 1"] * 3, True, True]
    assert len(attempts) == 3


def test_every_failed_load_is_logged(tmp_path: Path) -> None:
    outcome = subprocess.run(
        [sys.executable, "-c", FAILING, str(tmp_path)], check=True, stderr=subprocess.PIPE, text=True
    )
    assert outcome.stderr.count("ModuleNotFoundError: import of jinja2 halted") == 2


async def _nothing(*_: object) -> None:
    """Do nothing."""


def test_an_error_after_the_response_started_is_raised(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    from starlette.responses import Response  # noqa: PLC0415 - loaded lazily

    async def fail(self: Response, scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG001 - the signature of ASGI
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("half a response")

    get(harness, "/")
    monkeypatch.setattr(Response, "__call__", fail)
    with pytest.raises(RuntimeError, match="half a response"):
        get(harness, "/")
