"""The export of an account's listings, as a download."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from time import perf_counter

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from listings.domain import timestamps
from listings.domain.errors import Unavailable
from listings.domain.model import Listing
from listings.service.members.sessions import Member
from listings.service.transfer.file_formats import Format
from listings.site.console.guards import for_member
from listings.site.console.upload import find_format
from listings.site.context import site_of

_MAX_EXPORTS = 16  # each has about 1.5 MB in memory if its client does not read
_MAX_EXPORTS_OF_ACCOUNT = 2
_RETRY_SECONDS = 30  # after which a client that does not read is dropped
FORMATS = {"csv": ("listings.csv", "text/csv; charset=utf-8"), "jsonl": ("listings.jsonl", "application/jsonl")}


class Exports:
    """The exports that are being sent. They take turns, and use at most half of the event loop's time."""

    def __init__(self) -> None:
        self._running: Counter[int] = Counter()
        self._turn = asyncio.Lock()

    def require_room(self, account_id: int) -> None:
        """Raise Unavailable if too many exports are being sent."""
        if self._running[account_id] >= _MAX_EXPORTS_OF_ACCOUNT:
            raise _build_error("Other exports of your account are running: try again later")
        if self._running.total() >= _MAX_EXPORTS:
            raise _build_error("Too many exports are running: try again later")

    @contextmanager
    def count(self, account_id: int) -> Iterator[None]:
        """Count a running export of an account."""
        self._running[account_id] += 1
        try:
            yield
        finally:
            self._running[account_id] -= 1
            if not self._running[account_id]:
                del self._running[account_id]

    async def encode(self, pages: AsyncIterator[list[Listing]], file_format: Format) -> AsyncIterator[bytes]:
        """Yield the pieces of a file."""
        yield file_format.header
        while True:
            async with self._turn:
                started = perf_counter()
                page = await anext(pages, None)
                if page is None:
                    return
                await asyncio.sleep(perf_counter() - started)  # p99 of others with texts of 400 kB: 4.7 -> 3.4 ms
                started = perf_counter()
                piece = file_format.encode(page)
                await asyncio.sleep(perf_counter() - started)
            yield piece


def _build_error(message: str) -> Unavailable:
    return Unavailable(message, retry_after=_RETRY_SECONDS, for_visitors=True)


class _Download(StreamingResponse):
    """A download that is counted while it is being sent."""

    def __init__(
        self, exports: Exports, account_id: int, content: AsyncIterator[bytes], headers: dict[str, str], media_type: str
    ) -> None:
        super().__init__(content, 200, headers, media_type)
        self._exports = exports
        self._account_id = account_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._exports.count(self._account_id):
            await super().__call__(scope, receive, send)


@for_member
async def export(request: Request, member: Member) -> Response:
    """Send all listings of the account as a file, page by page."""
    name, media_type = FORMATS.get(request.query_params.get("format", ""), FORMATS["csv"])
    services, exports = site_of(request).services, site_of(request).exports
    exports.require_room(member.account.id)
    day = timestamps.to_local(int(services.clock())).date().isoformat()
    stem, _, extension = name.partition(".")
    headers = {"Content-Disposition": f'attachment; filename="{stem}-{day}.{extension}"', "Cache-Control": "no-store"}
    content = exports.encode(services.transfer.read_pages(member.account), find_format(name))
    return _Download(exports, member.account.id, content, headers, media_type)


ROUTES = [Route("/console/export", export)]
