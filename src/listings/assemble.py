"""Wires store, limiter, service and application out of settings: for the command line, tests and benchmarks alike."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from listings.api.app import Application
from listings.api.guard import Bounds
from listings.api.server import Server
from listings.contract import RateLimiter
from listings.limiter.mapped import MappedLimiter
from listings.limiter.memory import MemoryLimiter
from listings.logs import RequestLog
from listings.service import Service
from listings.settings import Settings
from listings.store import migrate
from listings.store.migrate import Migration
from listings.store.sqlite import SqliteStore


def migrate_database(settings: Settings) -> list[Migration]:
    """Create the database where there is none and bring its schema up to date; returns what was applied."""
    return migrate.migrate(settings.database)


@asynccontextmanager
async def opened_service(settings: Settings, *, clock: Callable[[], float] = time.time) -> AsyncIterator[Service]:
    """A service over the database of the settings, which must exist; everything is committed at the end."""
    store = SqliteStore(settings.database)
    await store.open()
    limiter = _limiter(settings, await store.get_id())
    service = Service(store, limiter, clock)
    key_uses = asyncio.create_task(service.keep_key_uses())
    try:
        yield service
    finally:
        key_uses.cancel()
        await service.write_key_uses()
        await store.close()
        if limiter is not None:
            await limiter.close()


def application(service: Service, settings: Settings, request_log: RequestLog | None = None) -> Application:
    """The ASGI application over a service."""
    return Application(
        service,
        cors_origins=settings.cors_origins,
        most_body=settings.max_body_bytes,
        request_log=request_log,
    )


def server(
    service: Service,
    settings: Settings,
    request_log: RequestLog | None = None,
    on_start: Callable[[], None] = lambda: None,
) -> Server:
    """The HTTP server over a service."""
    bounds = Bounds(
        header_seconds=settings.header_timeout,
        body_seconds=settings.body_timeout,
        idle_seconds=settings.idle_timeout,
        write_seconds=settings.write_timeout,
        head_bytes=settings.max_header_bytes,
        head_fields=settings.max_headers,
        url_bytes=settings.max_url_bytes,
        connections=settings.max_connections,
    )
    return Server(application(service, settings, request_log), service, bounds, on_start)


def _limiter(settings: Settings, database_id: str) -> RateLimiter | None:
    if not settings.rate_limit:
        return None
    if sys.platform != "linux":  # the mapped log needs Linux's locks and clock
        return MemoryLimiter(settings.rate_limit, settings.rate_window)
    return MappedLimiter(settings.database, database_id, settings.rate_limit, settings.rate_window)
