"""The machine's own Chromium, driven by Playwright, and a service for it to visit."""

import asyncio
import base64
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, expect, sync_playwright

from listings.domain import fields
from listings.service import Service
from tests.harness import Person, RunningService

CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, which .ci/run installs")

AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"
_REPLACED = ("htmx:afterRequest", "htmx:sendAbort")  # htmx says so where a newer search takes the place of one
_DAY = 86_400
_PATIENCE = 60_000  # milliseconds: a page that is slow on a machine with much else to do is no fault of it
_DOT = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # the world is not there
]


expect.set_options(timeout=_PATIENCE)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser; while it is there, its thread is on an event loop, so let a module end it."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_ARGUMENTS, timeout=2 * _PATIENCE)
        yield browser
        browser.close()


class Visit:
    """A visitor's tab: what it has asked for elsewhere, and what its console has complained of."""

    def __init__(self, context: BrowserContext, base_url: str) -> None:
        self._base_url = base_url
        self.elsewhere: list[str] = []
        self.complaints: list[str] = []
        self.dialogs: list[str] = []
        self.page: Page = context.new_page()
        self.page.on("request", self._note)
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", self._dismiss)

    def open(self, path: str) -> Page:
        """The page at a path of the service."""
        self.page.goto(self._base_url + path)
        return self.page

    def _hear(self, said: ConsoleMessage) -> None:
        if not said.text.startswith(_REPLACED):
            self.complaints.append(f"{said.type}: {said.text}")

    def _note(self, request: Request) -> None:
        if not request.url.startswith(f"{self._base_url}/"):
            self.elsewhere.append(request.url)

    def _dismiss(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()


@contextmanager
def visit(browser: Browser, base_url: str, **options: Any) -> Iterator[Visit]:
    """A visitor of their own, as a person's browser presents itself."""
    context = browser.new_context(user_agent=AGENT, **options)
    context.set_default_timeout(_PATIENCE)
    yield Visit(context, base_url)
    context.close()


class _Picture(BaseHTTPRequestHandler):
    """A picture at every address."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "image/gif")
        self.send_header("Content-Length", str(len(_DOT)))
        self.end_headers()
        self.wfile.write(_DOT)

    def log_message(self, *_: object) -> None:
        """Nobody is told."""


@contextmanager
def pictures() -> Iterator[str]:
    """Where a seller's pictures are: an address that ends with a slash."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Picture)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


class Stall(NamedTuple):
    """A running service with alice's listings."""

    service: RunningService
    alice: Person

    @property
    def base_url(self) -> str:
        """Where it is."""
        return self.service.base_url

    def create(self, *listings: dict[str, Any]) -> list[int]:
        """Listings that the market shows at once; returns their ids."""

        async def create(service: Service) -> list[int]:
            caller = await service.find_key(self.alice.key)
            assert caller is not None
            ids = []
            for one in listings:
                new, _ = fields.parse_new_listing({"title": "Bicycle", "content": "Two wheels.", **one}, strict=False)
                ids.append((await service.create_listing(caller, new)).listing_id)
            while await service.index_market():
                pass
            return ids

        return self.service.run(create)


@contextmanager
def stall(folder: Path) -> Iterator[Stall]:
    """A service of its own for a module's tests."""
    with RunningService(folder) as service:
        yield Stall(service, service.cast().alice)


def away_from_midnight() -> Callable[[], float]:
    """The present time, moved so that it is noon now: a visitor counts once a day."""
    moved = _DAY / 2 - time.time() % _DAY
    return lambda: time.time() + moved


def views(running: RunningService, listing_id: int) -> int:
    """How many of a listing were counted, as soon as there is one: the service itself may be about to write it."""

    async def count(service: Service) -> int:
        while not (await service.get_public_listing(listing_id)).view_count:
            await service.write_views()
            await asyncio.sleep(0.01)
        await service.write_views()
        return (await service.get_public_listing(listing_id)).view_count

    return running.run(count)
