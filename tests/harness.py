"""Test harnesses: the service in this process with a manual clock, or on a real socket."""

import asyncio
import json as jsons
import socket
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from functools import partial
from io import StringIO
from pathlib import Path
from time import monotonic, time
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar, cast
from urllib.parse import unquote

import pytest
import uvloop

from bench.data import store_of
from listings import maintenance, service, wiring
from listings.api.app import Application
from listings.domain import api_keys
from listings.domain.model import Account
from listings.http.limits import ConnectionLimits
from listings.http.server import bind_socket, format_base_url
from listings.search.folders import find_root
from listings.search.indexer import Indexer
from listings.service import Options, Services
from listings.service.members.passwords import Cost, Passwords
from listings.settings import Settings, load
from listings.store.store import Store
from tests.sqlite_database import create_database

T = TypeVar("T")

MONTH = 31 * 24 * 3600
START = 1_790_000_000  # 2026-09-21 14:13:20
TIMEOUT = 120  # seconds, for anything that might hang


class Clock:
    """A clock that only the test advances; returns a Unix timestamp."""

    def __init__(self) -> None:
        self.now = float(START)

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class Person(NamedTuple):
    account: Account
    key: str
    key_id: int


async def index_market(services: Services, settings: Settings) -> None:
    """Number all changes, and follow them with the index of searches."""
    while await services.market.stamp():
        pass
    indexer = Indexer(store_of(services), find_root(settings.file), services.clock)
    try:
        await indexer.update()
    finally:
        indexer.close()


class Cast(NamedTuple):
    """The test accounts: alice, the owner; bob, another seller; charlie, whose plan has expired."""

    alice: Person
    bob: Person
    charlie: Person


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes
    cookies: tuple[str, ...] = ()  # the Set-Cookie headers

    def json(self) -> Any:
        return jsons.loads(self.body)


@contextmanager
def unused_port() -> Iterator[int]:
    """Yield a port that refuses connections; it stays bound, so that no other test can use it."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def build_sqlite_url(folder: Path) -> str:
    return f"sqlite:///{folder}/listings.db"


class DatabaseUrls:
    """Builds the database URL of a harness without an explicit one; fixtures replace `build` for other engines."""

    build: Callable[[Path], str] = staticmethod(build_sqlite_url)


def load_test_settings(folder: Path, **flags: str) -> Settings:
    if "database" not in flags:
        flags["database"] = DatabaseUrls.build(folder)
    return load({}, {"data_folder": str(folder), "port": "0", "database_timeout": str(TIMEOUT), **flags})


def prepare_database(settings: Settings) -> None:
    """Create a SQLite file, or apply pending migrations to it. Test databases in PostgreSQL have the schema already."""
    if not isinstance(settings.database, Path):
        return
    if settings.database.exists():
        maintenance.migrate_database(settings)
    else:
        create_database(settings.database)


async def create_person(services: Services, name: str, plan_ends_in: float) -> Person:
    """Create an account with a key; its plan ends in this many seconds, or has ended if that is negative."""
    count = len(_EMAILS)
    _EMAILS.append(f"{name}{count}@example.com")
    account = await services.accounts.add(name, _EMAILS[-1], int(services.clock() + plan_ends_in))
    issued = await services.keys.add(account, "test", api_keys.generate())
    return Person(account, issued.secret, issued.key.id)


_EMAILS: list[str] = []


async def create_cast(services: Services) -> Cast:
    return Cast(*[await create_member(services, name) for name in Cast._fields])


async def create_member(services: Services, name: str) -> Person:
    return await create_person(services, name, -MONTH if name == "charlie" else 12 * MONTH)


async def _wait_forever(_: Services) -> None:
    await asyncio.Event().wait()


@contextmanager
def cheap_passwords() -> Iterator[None]:
    """Hash the passwords of services that are created meanwhile at little cost."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service, "Passwords", partial(Passwords, Cost(kibibytes=8, passes=1)))
        yield


class Harness:
    """The complete service in this process, with its own event loop and clock.

    Background work is left to `MaintainedHarness`, because it uses real time.
    """

    _maintain: Callable[[Services], Coroutine[Any, Any, None]] = staticmethod(_wait_forever)

    def __init__(self, folder: Path, **flags: str) -> None:
        self.clock = Clock()
        self.settings = load_test_settings(folder, **flags)
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as on_error, pytest.MonkeyPatch.context() as patch:
            on_error.callback(self._runner.close)
            prepare_database(self.settings)
            patch.setattr(Services, "run_background_tasks", self._maintain)
            opened = wiring.open_services(self.settings, clock=self.clock)
            self.services = self.run(self._stack.enter_async_context(opened))
            on_error.pop_all()
        self.application = wiring.build_application(self.services, self.settings)
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._stack.aclose())
        self._runner.close()

    @property
    def store(self) -> Store:
        """The store of the service, to prepare or check what no use case does."""
        return store_of(self.services)

    def run(self, task: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(task)

    def replace_services(self, **options: Any) -> None:
        options = {"index_folder": find_root(self.settings.file), **options}
        self.services = Services(self.store, self.services.limiter, self.clock, Options(**options))
        self.application = wiring.build_application(self.services, self.settings)

    def index_market(self) -> None:
        """Bring the market's index up to date."""
        self.run(index_market(self.services, self.settings))

    def person(self, name: str, plan_ends_in: float = 12 * MONTH) -> Person:
        return self.run(create_person(self.services, name, plan_ends_in))

    def cast(self) -> Cast:
        return self.run(create_cast(self.services))

    def fetch(
        self,
        method: str,
        path: str,
        *,
        key: str | None = None,
        json: Any = None,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        client: str = "127.0.0.1",
    ) -> Reply:
        """Send one request directly to the application; `client` is the client's address."""
        content = jsons.dumps(json).encode() if json is not None else body
        sent = [(name.lower().encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
        if key is not None:
            sent.append((b"x-api-key", key.encode("latin-1")))
        if content:
            sent.append((b"content-length", b"%d" % len(content)))
        return self.run(fetch(self.application, method, path, sent, [content], client=client))


class MaintainedHarness(Harness):
    """A harness that also does the background work."""

    _maintain = staticmethod(Services.run_background_tasks)


def build_scope(
    method: str, path: str, headers: list[tuple[bytes, bytes]], client: str = "127.0.0.1"
) -> dict[str, Any]:
    """Return the ASGI scope of a request. `client` is the client's address."""
    raw, _, query = path.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},  # streaming responses need not listen for a disconnect
        "scheme": "http",
        "client": (client, 50_000),
        "method": method,
        "path": unquote(raw),
        "raw_path": raw.encode(),
        "query_string": query.encode(),
        "headers": headers,
    }


async def fetch(
    application: Application,
    method: str,
    path: str,
    headers: list[tuple[bytes, bytes]],
    chunks: list[bytes],
    *,
    complete: bool = True,
    client: str = "127.0.0.1",
    meanwhile: Callable[[], Awaitable[object]] | None = None,
) -> Reply:
    """Send one ASGI request with the body in these chunks; an incomplete one ends with a disconnect.

    `meanwhile` is called before the last chunk.
    """
    scope = build_scope(method, path, headers, client)
    waiting: list[dict[str, Any]] = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    if complete:
        waiting[-1]["more_body"] = False
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        if meanwhile is not None and len(waiting) == 1:
            await meanwhile()
        if complete and not waiting:
            await asyncio.Event().wait()  # the client stays connected
        return waiting.pop(0) if waiting else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await application(scope, receive, send)
    if not sent:
        return Reply(0, {}, b"")
    response_headers = {name.decode(): value.decode("latin-1") for name, value in sent[0]["headers"]}
    cookies = tuple(value.decode("latin-1") for name, value in sent[0]["headers"] if name == b"set-cookie")
    return Reply(sent[0]["status"], response_headers, b"".join(message["body"] for message in sent[1:]), cookies)


class PlainAsgi:
    """Calls the application like any ASGI server does."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def serve(self, exchange: Any) -> None:
        await self._application(exchange.scope, exchange.receive, exchange.send)


class RunningService:
    """The service on a real socket, in a thread of this process, started like `listings serve`."""

    def __init__(
        self,
        folder: Path,
        *,
        plain: bool = False,
        rehearses: bool = False,
        limits: ConnectionLimits | None = None,
        clock: Callable[[], float] = time,
        **flags: str,
    ) -> None:
        self.settings = load_test_settings(folder, **flags)
        self._clock = clock
        self._plain = plain
        self._rehearses = rehearses
        self._limits = limits
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Self:
        prepare_database(self.settings)
        self._thread.start()
        end = monotonic() + TIMEOUT
        while not self._started.wait(0.1):
            assert self._thread.is_alive()
            assert monotonic() < end
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.stop()
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive(), self._format_stacks()

    def _format_stacks(self) -> str:
        text = StringIO()
        traceback.print_stack(sys._current_frames().get(self._thread.ident or 0), file=text)  # noqa: SLF001 - documented
        for task in asyncio.all_tasks(self._loop):
            task.print_stack(file=text)
        return text.getvalue()

    def run(self, function: Callable[[Services], Awaitable[T]]) -> T:
        """Call the function on the service's event loop, from the test's thread."""

        async def task() -> T:
            return await function(self.services)

        return asyncio.run_coroutine_threadsafe(task(), self._loop).result(TIMEOUT)

    def cast(self) -> Cast:
        return self.run(create_cast)

    @property
    def connection_count(self) -> int:
        return self._server.connection_count

    def count_waiting_bytes(self) -> int:
        """Return the bytes of requests that wait behind others."""
        return self._server.shared.waiting_bytes

    def count_large_pieces(self) -> int:
        """Return how many large pieces of bodies have arrived."""
        return self._server.shared.receiving.passed

    def replace_application(self, application: Any) -> None:
        """Serve another application from now on; it needs the method `serve(exchange)`."""
        self._server.config.loaded_app = application

    def stop(self) -> None:
        """Shut down gracefully, as on a signal, without waiting for the end."""
        self._loop.call_soon_threadsafe(self._server.stop)

    def _work(self) -> None:
        with (
            wiring.open_observers(self.settings) as self.observers,
            bind_socket(self.settings.host, self.settings.port) as listener,
        ):
            self.base_url = format_base_url(listener)
            uvloop.run(self._serve(listener))

    async def _serve(self, listener: Any) -> None:
        self._loop = asyncio.get_running_loop()
        observers = self.observers
        async with wiring.open_services(self.settings, clock=self._clock, metrics=observers.metrics) as services:
            self.services = services
            self._server = wiring.build_server(
                services, self.settings, on_start=self._started.set, observers=observers, limits=self._limits
            )
            if self._plain:
                self._server.config.app = cast("Any", PlainAsgi(cast("Any", self._server.config.app)))
            if self._rehearses:
                wiring.rehearse_faults(self._server)
            await self._server.serve([listener])
