"""Chromium, driven by Playwright, and a running service for it to visit."""

import asyncio
import base64
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    Route,
    expect,
    sync_playwright,
)

from listings.domain import fields
from listings.service import Services
from tests.harness import TIMEOUT, Person, RunningService, index_market

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")  # the former takes 40% of the CPU time
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium-headless-shell; .ci/run installs it")

USER_AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"
_REPLACED = ("htmx:afterRequest", "htmx:sendAbort")  # htmx logs these when a newer search replaces one
_UNREACHABLE = "net::ERR_NAME_NOT_RESOLVED"  # of a picture on another host
_DAY = 86_400
_COUNT_SECONDS = 10  # counts of results are cached
_TIMEOUT_MS = 60_000  # generous, because the machine may be busy with other tests
_GIF = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # no other host can be reached
]


expect.set_options(timeout=_TIMEOUT_MS)


@contextmanager
def chromium(*arguments: str) -> Iterator[Browser]:
    """Open a browser, perhaps with other arguments.

    While it is open, its thread runs an event loop, so use it in module fixtures only.
    """
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=list(arguments) or _ARGUMENTS, timeout=2 * _TIMEOUT_MS
        )
        yield browser
        browser.close()


class Visit:
    """A browser tab that records requests to other hosts, console messages and dialogs."""

    def __init__(self, context: BrowserContext, base_url: str) -> None:
        self._base_url = base_url
        self._is_opening = False
        self.external_urls: list[str] = []
        self.console_messages: list[str] = []
        self.dialogs: list[str] = []
        self.page: Page = context.new_page()
        self.page.on("request", self._record_request)
        self.page.on("console", self._record_message)
        self.page.on("pageerror", lambda error: self.console_messages.append(str(error)))
        self.page.on("dialog", self._dismiss)

    def open(self, path: str) -> Page:
        self._is_opening = True
        self.page.goto(self._base_url + path)
        self._is_opening = False
        return self.page

    def _record_message(self, message: ConsoleMessage) -> None:
        if not message.text.startswith(_REPLACED) and not message.text.endswith(_UNREACHABLE):
            self.console_messages.append(f"{message.type}: {message.text}")

    def _record_request(self, request: Request) -> None:
        if not request.url.startswith(f"{self._base_url}/"):
            self.external_urls.append(request.url)

    def _dismiss(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        if self._is_opening and dialog.type == "beforeunload":
            dialog.accept()  # leave the page
        else:
            dialog.dismiss()


@contextmanager
def visit(browser: Browser, base_url: str, **options: Any) -> Iterator[Visit]:
    """Open a tab in its own context, with the User-Agent of a regular browser."""
    context = browser.new_context(user_agent=USER_AGENT, **options)
    context.set_default_timeout(_TIMEOUT_MS)
    yield Visit(context, base_url)
    context.close()


class HeldRequests:
    """A page's requests for a URL, which are not sent until the test says so."""

    def __init__(self, page: Page, url: str) -> None:
        self._page = page
        self._routes: list[Route] = []
        page.route(url, lambda route: self._routes.append(route))  # noqa: PLW0108 - Playwright needs a function

    def wait(self, count: int) -> None:
        """Wait until this many are held. Fails if there are more, or after TIMEOUT."""
        end = time.monotonic() + TIMEOUT
        while len(self._routes) < count:
            assert time.monotonic() < end
            self._page.wait_for_timeout(10)  # in which Playwright calls the function above
        assert len(self._routes) == count

    def send_first(self) -> None:
        """Send the one that was held first."""
        self._routes.pop(0).continue_()


def resize(page: Page, width: int) -> None:
    """Set the page's width in pixels. A page that has just been opened may apply it late, so wait until it has."""
    page.set_viewport_size({"width": width, "height": 800})
    page.wait_for_function("width => innerWidth === width", arg=width)


class _PictureHandler(BaseHTTPRequestHandler):
    """Responds with an image to every request."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "image/gif")
        self.send_header("Content-Length", str(len(_GIF)))
        self.end_headers()
        self.wfile.write(_GIF)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def serve_pictures() -> Iterator[str]:
    """Run an image server. Yields its URL, which ends with a slash."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _PictureHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


class NoonClock:
    """A clock that starts at noon, so that tests do not cross midnight, when views count again."""

    def __init__(self) -> None:
        self._offset = _DAY / 2 - time.time() % _DAY

    def __call__(self) -> float:
        return time.time() + self._offset

    def advance(self, seconds: float) -> None:
        self._offset += seconds


class RunningMarket(NamedTuple):
    service: RunningService
    alice: Person
    clock: NoonClock

    @property
    def base_url(self) -> str:
        return self.service.base_url + urlsplit(self.service.settings.base_url).path

    def create(self, *listings: dict[str, Any]) -> list[int]:
        """Create listings, wait until they are on the market and in its counts, and return their IDs."""

        async def create(services: Services) -> list[int]:
            caller = await services.keys.find(self.alice.key)
            assert caller is not None
            ids = []
            for one in listings:
                new, _ = fields.parse_new_listing({"title": "Bicycle", "content": "Two wheels.", **one}, strict=False)
                ids.append((await services.listings.create(caller, new)).listing_id)
            await index_market(services, self.service.settings)
            return ids

        ids = self.service.run(create)
        self.clock.advance(_COUNT_SECONDS)
        return ids


@contextmanager
def run_market(folder: Path, base_url: str = "") -> Iterator[RunningMarket]:
    """Run a service with an empty market."""
    clock = NoonClock()
    with RunningService(folder, clock=clock, base_url=base_url) as service:
        yield RunningMarket(service, service.cast().alice, clock)


def wait_for_views(running: RunningService, listing_id: int) -> int:
    """Return the number of views once it is not 0. The service may be writing views at the same time."""

    async def count(services: Services) -> int:
        while not (await services.market.get_listing(listing_id)).view_count:
            await services.market.write_views()
            await asyncio.sleep(0.01)
        await services.market.write_views()
        return (await services.market.get_listing(listing_id)).view_count

    return running.run(count)
