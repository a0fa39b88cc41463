"""Wires store, limiter, service and application out of settings: for the command line, tests and benchmarks alike."""

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from listings.contract import RateLimiter
from listings.errors import Problem, Unavailable
from listings.limiter.mapped import LogFile, MappedLimiter, log_files
from listings.limiter.memory import MemoryLimiter
from listings.logs import RequestLog
from listings.postgres_url import PostgresUrl
from listings.service import Service
from listings.service.payments import ManualPayments, PaymentProvider
from listings.settings import RedisAddress, Settings
from listings.store import backup, connection, copies, inspection, migrate, restore
from listings.store.copies import Progress, ignore_progress
from listings.store.inspection import Inspection, PostgresInspection
from listings.store.migrate import Migration
from listings.store.restore import Restored
from listings.store.sqlite import SqliteStore

if TYPE_CHECKING:  # HTTP and metrics are loaded where they are used: most commands need neither
    from listings.api.app import Application, Pages, Trace
    from listings.api.server import Server
    from listings.limiter.redis import RedisLimiter
    from listings.limiter.redis_connection import Endpoint
    from listings.limiter.redis_inspection import RedisReport
    from listings.metrics import Metrics
    from listings.store.postgres import PostgresStore
    from listings.store.postgres_copy import Copied

T = TypeVar("T")

OnDamage: TypeAlias = Callable[[Callable[[], None]], None]
"""Is given what ends the service once damage is found, to be called on the event loop that runs."""

_IN_POSTGRES = "The data is in PostgreSQL"
_AMONG_WORKERS = 4  # connections that a worker takes at once, so that the others get some
_LOOK_SECONDS, _LOOK_BEFORE_SECONDS = 2.0, 0.2
_COPY_TIMEOUT = 5_000  # milliseconds that Redis may take to answer where no request waits for it


class Observers(NamedTuple):
    """Who hears what the service does, beside its log."""

    metrics: "Metrics | None" = None
    trace: "Trace | None" = None


NOBODY = Observers()


@contextmanager
def observed(settings: Settings, *, listening: bool = True) -> Iterator[Observers]:
    """Metrics and traces as far as the settings ask for them. Raises Problem("invalid_setting").

    `listening`: whether metrics are told at the address of the settings; else somebody asks for the reports.
    """
    with ExitStack() as stack:
        trace = stack.enter_context(_tracing()) if settings.tracing else None
        metrics = None
        if settings.metrics_address is not None:
            from listings.metrics import Metrics  # noqa: PLC0415 - see above

            metrics = stack.enter_context(closing(Metrics(settings.file)))
            if listening:
                metrics.listen(*settings.metrics_address)
        yield Observers(metrics, trace)


def migrate_database(settings: Settings, on_backup: Callable[[Path], None] = lambda _: None) -> list[Migration]:
    """Create the database where there is none and bring its schema up to date; returns what was applied.

    `on_backup` is told where the database is kept as it was before.
    """
    if isinstance(settings.database, PostgresUrl):
        from listings.store import postgres_migrate  # noqa: PLC0415 - its driver is for those who use it

        return _finished(postgres_migrate.migrate(settings.database))
    return migrate.migrate(settings.database, on_backup=on_backup)


@contextmanager
def sound_database(settings: Settings) -> Iterator[OnDamage]:
    """Look through the pages of a SQLite file, for two seconds at most, the block beginning after a fifth of one.

    Raises Unavailable, which names the damage: before the block, or behind it where it is found while that runs; who is
    given to what is yielded then ends it.
    """
    if isinstance(settings.database, PostgresUrl):
        yield lambda _: None
        return
    leaving = threading.Event()
    thread = ThreadPoolExecutor(1, "listings-look")
    looking = thread.submit(inspection.find_damage, settings.database, _LOOK_SECONDS, leaving.is_set)
    thread.shutdown(wait=False)  # it ends with the look
    if not wait([looking], _LOOK_BEFORE_SECONDS).not_done:
        _require_sound(settings, looking)
    try:
        yield partial(_call_on_damage, looking)
    finally:
        leaving.set()
    _require_sound(settings, looking)


def _call_on_damage(looking: Future[str], end: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    looking.add_done_callback(
        lambda looked: loop.call_soon_threadsafe(end) if looked.exception() or looked.result() else None
    )


def _require_sound(settings: Settings, looking: Future[str]) -> None:
    damage = looking.result()
    if damage:
        advice = "restore the last good backup with `listings restore FILE --force`"
        raise Unavailable(f"The database {settings.database_shown} is damaged: {damage}: {advice}")


def pending_migrations(settings: Settings) -> list[Migration]:
    """What `migrate_database` would apply. Changes nothing."""
    if isinstance(settings.database, PostgresUrl):
        from listings.store import postgres_migrate  # noqa: PLC0415 - as above

        return _finished(postgres_migrate.pending(settings.database))
    return migrate.pending(settings.database)


def back_up_database(settings: Settings, file: Path, *, force: bool, progress: Progress = ignore_progress) -> Path:
    """Copy the database to a file; returns the file, links resolved."""
    if isinstance(settings.database, PostgresUrl):
        raise Problem("backup_refused", f"{_IN_POSTGRES}: back it up with `pg_dump --format=custom`")
    return backup.back_up(settings.database, file, force=force, progress=progress)


def restore_database(settings: Settings, file: Path, *, force: bool, progress: Progress = ignore_progress) -> Restored:
    """Make the database what a backup is."""
    if isinstance(settings.database, PostgresUrl):
        raise Problem("restore_refused", f"{_IN_POSTGRES}: restore it with `pg_restore`")
    return restore.restore(settings.database, file, force=force, progress=progress)


def copy_database(settings: Settings, target: PostgresUrl, *, dry_run: bool, progress: Progress) -> "Copied":
    """Make a PostgreSQL database what the SQLite database of the settings is; `dry_run`: only count what differs."""
    if isinstance(settings.database, PostgresUrl):
        raise Problem("copy_refused", f"{_IN_POSTGRES} already: let LISTINGS_DATABASE_URL name the SQLite database")
    from listings.store import postgres_copy  # noqa: PLC0415 - as above

    return asyncio.run(postgres_copy.copy(settings.database, target, dry_run=dry_run, progress=progress))


def copy_limits(settings: Settings, target: PostgresUrl, database_id: str) -> int:
    """Let the limiters of a copied database go on from what was counted beside its source; returns of how many keys."""
    if not settings.rate_limit or sys.platform != "linux":
        return 0
    try:
        return asyncio.run(_copy_limits(settings, settings._replace(database=target), database_id))
    except Problem as problem:
        raise Problem(
            "copy_refused",
            f"All rows are copied, but not what the rate limit has counted: {problem.message}: run it again",
        ) from problem


async def _copy_limits(source: Settings, target: Settings, database_id: str) -> int:
    old, new = (MappedLimiter(it.file, database_id, it.rate_limit, it.rate_window) for it in (source, target))
    limiters: list[MappedLimiter | RedisLimiter] = [new]
    if target.redis is not None:
        limiters.append(_redis_limiter(target.redis, target._replace(redis_timeout=_COPY_TIMEOUT), database_id))
    _make_folder(target)
    keys = 0
    try:
        for key_id in await old.keys():
            ages = await old.ages(key_id)
            keys += bool(ages)
            for limiter in limiters if ages else ():
                await limiter.take_over(key_id, ages)
    finally:
        for limiter in (old, *limiters):
            await limiter.close()
    return keys


def inspect_database(settings: Settings) -> Inspection:
    """Look through the database, changing nothing."""
    return inspection.inspect(settings.file)


def inspect_postgres(settings: Settings) -> PostgresInspection:
    """Look at the server and its database, changing nothing. Raises Problem where that can't be."""
    from listings.store import postgres_inspection  # noqa: PLC0415 - as above

    return _finished(postgres_inspection.inspect(str(settings.database)))


def sqlite_version() -> str:
    """The SQLite in use. Raises Problem("schema_mismatch") when it is one that can corrupt the file."""
    connection.require_sound_sqlite()
    return connection.sqlite_version()


def left_behind(settings: Settings) -> tuple[Path | None, str]:
    """The WAL or journal of a database that is gone, if it is, and what to do then."""
    return connection.left_behind(settings.file), connection.LEFT_ADVICE


def free_room(settings: Settings) -> tuple[int, int]:
    """How many bytes the database can grow by, and with how few the store isn't ready any more."""
    return connection.free_room(settings.file), connection.LEAST_ROOM


def stale_drafts(settings: Settings) -> list[Path]:
    """What backups that were killed have left in the database's folder."""
    return copies.stale_drafts(settings.file.resolve().parent)


def limiter_files(settings: Settings) -> list[LogFile] | None:
    """The files of the rate limit; None where there are none to be."""
    if not settings.rate_limit or sys.platform != "linux":
        return None
    return log_files(settings.file)


def limit_reach(settings: Settings) -> str | None:
    """Whose requests the rate limit counts together, unless Redis is away; None where there is no limit."""
    if not settings.rate_limit:
        return None
    if settings.redis is not None:
        return "all machines that use this Redis"
    return MappedLimiter.reach if sys.platform == "linux" else MemoryLimiter.reach


def look_at_redis(settings: Settings) -> "RedisReport | None":
    """What the Redis of the rate limit says of itself; None where there is none. Raises Unavailable."""
    if settings.redis is None or not settings.rate_limit:
        return None
    from listings.limiter.redis_inspection import inspect  # noqa: PLC0415 - with Redis's client, which few need

    return inspect(_redis_endpoint(settings.redis, settings))


@asynccontextmanager
async def opened_service(
    settings: Settings, *, clock: Callable[[], float] = time.time, metrics: "Metrics | None" = None
) -> AsyncIterator[Service]:
    """A service over the database of the settings, which must exist; everything is committed at the end."""
    store = _store(settings, metrics)
    await store.open()
    if metrics is not None:
        metrics.watch_writes(lambda: store.writes_waiting)
    limiter = _limiter(settings, await store.get_id(), metrics)
    service = Service(
        store,
        limiter,
        clock,
        sign_up_open=settings.sign_up,
        market_open=settings.site,
        payments=_payments(settings),
    )
    upkeep = asyncio.create_task(service.keep_up())
    try:
        yield service
    finally:
        upkeep.cancel()
        await asyncio.wait([upkeep])  # what it has not stored is the service's again
        await service.write_key_uses()
        await service.write_views()
        await service.write_usage()
        await store.close()
        if limiter is not None:
            await limiter.close()


def _store(settings: Settings, metrics: "Metrics | None") -> "SqliteStore | PostgresStore":
    if isinstance(settings.database, Path):
        return SqliteStore(settings.database, metrics.note_batch if metrics is not None else None)
    from listings.store.postgres import PostgresStore  # noqa: PLC0415 - as above
    from listings.store.postgres_pool import Bounds  # noqa: PLC0415

    _make_folder(settings)
    return PostgresStore(settings.database, Bounds(settings.database_connections, settings.database_timeout))


def _make_folder(settings: Settings) -> None:
    """Of the files of this machine."""
    try:
        settings.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Problem(
            "invalid_setting", f"The folder {settings.file.parent} can't be made: {error.strerror}"
        ) from error


def _finished(work: Coroutine[Any, Any, T]) -> T:
    """What it comes to, on a loop of its own, since the caller may be on one already."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def application(
    service: Service, settings: Settings, request_log: RequestLog | None = None, observers: Observers = NOBODY
) -> "Application":
    """The ASGI application over a service."""
    from listings.api.app import Application  # noqa: PLC0415 - see above
    from listings.front import LatePages  # noqa: PLC0415 - see above

    application = Application(
        service,
        cors_origins=settings.cors_origins,
        most_body=settings.max_body_bytes,
        most_kept=settings.list_cache_bytes,
        request_log=request_log,
        on_answer=observers.metrics.note_answer if observers.metrics is not None else None,
        trace=observers.trace,
        pages=LatePages(partial(_pages, service, settings)) if settings.site else None,
    )
    service.store.on_replaced = application.forget_answers
    return application


def _pages(service: Service, settings: Settings) -> "Pages":
    from listings.site import app  # noqa: PLC0415 - see `LatePages`
    from listings.site.context import SiteOptions  # noqa: PLC0415

    return app.application(
        service,
        SiteOptions(
            base_url=settings.base_url,
            trusted_proxies=settings.trusted_proxies,
            most_body=settings.max_body_bytes,
        ),
    )


def server(
    service: Service,
    settings: Settings,
    request_log: RequestLog | None = None,
    on_start: Callable[[], None] = lambda: None,
    observers: Observers = NOBODY,
) -> "Server":
    """The HTTP server over a service."""
    from listings.api.guard import Bounds  # noqa: PLC0415 - see above
    from listings.api.server import Server  # noqa: PLC0415 - see above

    bounds = Bounds(
        header_seconds=settings.header_timeout,
        body_seconds=settings.body_timeout,
        idle_seconds=settings.idle_timeout,
        write_seconds=settings.write_timeout,
        head_bytes=settings.max_header_bytes,
        head_fields=settings.max_headers,
        url_bytes=settings.max_url_bytes,
        connections=settings.max_connections,
        accepted_at_once=Bounds().accepted_at_once if settings.workers == 1 else _AMONG_WORKERS,
    )
    server = Server(
        application(service, settings, request_log, observers), service, bounds, on_start, alone=settings.workers == 1
    )
    if observers.metrics is not None:
        observers.metrics.watch_connections(lambda: server.open_connections, settings.max_connections)
    return server


@contextmanager
def _tracing() -> Iterator["Trace"]:
    try:
        from listings.tracing import Tracing  # noqa: PLC0415 - its packages are an extra
    except ImportError:
        raise Problem(
            "invalid_setting",
            "LISTINGS_TRACING is on, which needs OpenTelemetry: install it with `pip install 'listings[tracing]'`",
        ) from None
    with closing(Tracing()) as tracing:
        yield tracing.note_answer


def _payments(settings: Settings) -> PaymentProvider:
    if settings.payment_provider == "manual":
        return ManualPayments()
    try:
        from listings.service.stripe_payments import StripeAccount, StripePayments  # noqa: PLC0415 - an extra, too
    except ImportError:
        raise Problem(
            "invalid_setting",
            "LISTINGS_PAYMENT_PROVIDER is stripe, which needs its library: install it with "
            "`pip install 'listings[stripe]'`",
        ) from None
    for setting, value in (
        ("LISTINGS_STRIPE_SECRET_KEY", settings.stripe_secret_key),
        ("LISTINGS_STRIPE_WEBHOOK_SECRET", settings.stripe_webhook_secret),
    ):
        if not value:
            raise Problem("invalid_setting", f"LISTINGS_PAYMENT_PROVIDER is stripe, which needs {setting}: set it")
    return StripePayments(
        StripeAccount(settings.stripe_secret_key, settings.stripe_webhook_secret, settings.stripe_currency)
    )


def _limiter(settings: Settings, database_id: str, metrics: "Metrics | None") -> RateLimiter | None:
    if not settings.rate_limit:
        return None
    local = _local_limiter(settings, database_id)
    if settings.redis is None:
        return local
    from listings.limiter.fallback import FallbackLimiter  # noqa: PLC0415 - with Redis's client, which few need

    shared = _redis_limiter(settings.redis, settings, database_id)
    if metrics is None:
        return FallbackLimiter(shared, local, required=settings.redis_required)
    limiter = FallbackLimiter(shared, local, required=settings.redis_required, on_local=metrics.note_local_count)
    metrics.watch_limiter(lambda: limiter.is_away)
    return limiter


def _redis_limiter(address: RedisAddress, settings: Settings, database_id: str) -> "RedisLimiter":
    from listings.limiter.redis import RedisLimiter  # noqa: PLC0415 - with Redis's client, which few need

    return RedisLimiter(_redis_endpoint(address, settings), database_id, settings.rate_limit, settings.rate_window)


def _redis_endpoint(address: RedisAddress, settings: Settings) -> "Endpoint":
    from listings.limiter.redis_connection import Endpoint  # noqa: PLC0415 - with Redis's client, which few need

    return Endpoint(**address._asdict(), answer_seconds=settings.redis_timeout / 1000)


def _local_limiter(settings: Settings, database_id: str) -> RateLimiter:
    if sys.platform != "linux":  # the mapped log needs Linux's locks and clock
        return MemoryLimiter(settings.rate_limit, settings.rate_window)
    return MappedLimiter(settings.file, database_id, settings.rate_limit, settings.rate_window)
