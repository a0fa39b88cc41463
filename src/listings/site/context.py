"""Objects that all pages share."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import jinja2
from starlette.requests import Request

from listings.domain.errors import Unavailable
from listings.domain.model import ListingCounts
from listings.http.body_files import BodyFolder
from listings.queues import FairQueue
from listings.service import Services
from listings.service.members.sessions import Member

Network: TypeAlias = IPv4Network | IPv6Network

Kind: TypeAlias = Literal["imports", "exports", "lists", "pages of changes"]

_MAX_COUNTED_ACCOUNTS = 1_000
_MAX_REMEMBERED_FORMS = 1_000
_MAX_COSTLY_PAGES = 16  # an unread export has about 1.5 MB in memory
_MAX_COSTLY_PAGES_OF_ACCOUNT = 2
_WAIT_SECONDS = 5.0  # enough for the tabs of a browser that starts
_RETRY_SECONDS = 30  # after which a client that does not read is dropped
_MAX_REST_SECONDS = 0.01
_ERROR_SECONDS = 0.002  # between two errors


class Brand(NamedTuple):
    """How the market presents itself. `links` are the labels and URLs at the foot of each page."""

    name: str = "Listings"
    tagline: str = "Find it in Aotearoa"
    logo: Path | None = None
    links: tuple[tuple[str, str], ...] = ()


class SiteOptions(NamedTuple):
    """The operator's settings. `base_url` has no trailing slash; if it is empty, the request's Host header is used."""

    base_url: str = ""
    trusted_proxies: tuple[Network, ...] = ()
    max_body_bytes: int = 2 * 1024 * 1024
    body_folder: BodyFolder | None = None  # for large forms; None: in the system's folder of temporary files
    upload_folder: BodyFolder | None = None  # for pictures that are being received; None: likewise
    operator_page: bool = False  # whether there is the operator's page
    exact_locations: bool = False  # whether pages show coordinates with all their decimals
    brand: Brand = Brand()


class ListingCountCache:
    """Listing counts by account, because counting many takes a while. Each entry is valid for one revision."""

    def __init__(self) -> None:
        self._counts: dict[int, tuple[int, ListingCounts]] = {}

    async def get(self, services: Services, member: Member) -> ListingCounts:
        """Return the listing counts of the member's account."""
        revision = (await services.listings.get_revisions(member.caller)).revision
        cached = self._counts.pop(member.account.id, None)
        if cached is None or cached[0] != revision:
            cached = (revision, await services.listings.count(member.account))
        self._counts[member.account.id] = cached
        if len(self._counts) > _MAX_COUNTED_ACCOUNTS:
            del self._counts[next(iter(self._counts))]  # the least recently used entry
        return cached[1]


class SentMessages:
    """The forms that sent messages recently, so that a double click sends one message. Each process has its own."""

    def __init__(self) -> None:
        self._tasks: dict[bytes, asyncio.Task[None]] = {}

    async def send_once(self, digest: bytes, send: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Send a message, unless a form with this digest has sent it or is sending it."""
        if digest not in self._tasks:
            while len(self._tasks) >= _MAX_REMEMBERED_FORMS:
                del self._tasks[next(iter(self._tasks))]
            self._tasks[digest] = asyncio.create_task(send())
        try:
            await asyncio.shield(self._tasks[digest])
        except Exception:
            self._tasks.pop(digest, None)
            raise


class CostlyPages:
    """The costly pages that run. Each kind has places of its own, so a long download does not block the activity."""

    def __init__(self) -> None:
        limits = partial(
            FairQueue, None, slots=_MAX_COSTLY_PAGES, slots_of_owner=_MAX_COSTLY_PAGES_OF_ACCOUNT, seconds=_WAIT_SECONDS
        )
        self._queues: dict[Kind, FairQueue] = {kind: limits() for kind in get_args(Kind)}
        self._turn = asyncio.Lock()

    async def enter(self, kind: Kind, account_id: int, held: AsyncExitStack) -> None:
        """Take a place, which `held` returns. Raises Unavailable if none becomes free in time."""
        try:
            await held.enter_async_context(self._queues[kind].acquire(account_id))
        except Unavailable:
            await self.rest(_ERROR_SECONDS)  # many may be rejected at the same time
            message = f"Too many {kind} are in progress. Try again when one has finished"
            raise Unavailable(message, retry_after=_RETRY_SECONDS, for_visitors=True) from None

    async def rest(self, seconds: float) -> None:
        """Wait as long as the last step took, in turn: costly pages use at most half of the event loop's time.

        With texts of 400 kB, p99 of others during exports is 3.4 ms instead of 4.7.
        """
        async with self._turn:
            await asyncio.sleep(min(seconds, _MAX_REST_SECONDS))


class Site(NamedTuple):
    """The service, the options, the templates, and what requests share."""

    services: Services
    options: SiteOptions
    templates: jinja2.Environment
    counts: ListingCountCache
    visitor_forms: FairQueue
    sitemaps: FairQueue
    costly_pages: CostlyPages
    sent_messages: SentMessages
    sessions: OrderedDict[str, int]  # the account of each session token that was valid lately in this process

    @property
    def path_prefix(self) -> str:
        """The path of the site's URL, such as /shop, or "". Requests, routes and templates have paths without it."""
        return self.services.about.path_prefix


def site_of(request: Request) -> Site:
    """Return the site of a request."""
    site: Site = request.app.state.site
    return site


def held_of(request: Request) -> AsyncExitStack:
    """Return what a request holds until its response is sent."""
    held: AsyncExitStack = request.state.held
    return held
