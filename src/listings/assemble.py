"""Wires store, limiter, service and application out of settings: for the command line, tests and benchmarks alike."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from listings.api.app import Application
from listings.contract import RateLimiter
from listings.limiter.memory import MemoryLimiter
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
    try:
        yield Service(store, _limiter(settings), clock)
    finally:
        await store.close()


def application(service: Service, settings: Settings) -> Application:
    """The ASGI application over a service."""
    return Application(service, cors_origins=settings.cors_origins)


def _limiter(settings: Settings) -> RateLimiter | None:
    return MemoryLimiter(settings.rate_limit, settings.rate_window) if settings.rate_limit else None
