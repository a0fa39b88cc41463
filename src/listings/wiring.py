"""Build store, rate limiter, service, application and server from settings."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from listings.domain.account_limits import UNLIMITED, AccountLimits
from listings.domain.accounts import PlanTerms
from listings.domain.errors import Problem
from listings.domain.rate_limiter import RateLimiter
from listings.http.limits import ConnectionLimits
from listings.ratelimit.mapped import MappedLimiter
from listings.search.folders import find_root
from listings.service import DEFAULTS, Options, ServiceInfo, Services
from listings.service.mail.smtp_types import SmtpServer
from listings.service.payments.provider import ManualPayments, PaymentProvider
from listings.service.pictures import PictureOptions
from listings.service.pictures.files import PictureFiles
from listings.service.pictures.folder import PictureFolder
from listings.settings import BucketUrl, RedisAddress, Settings
from listings.store.sqlite.connections import open_without_writes
from listings.store.sqlite.index_steps import MarketReads
from listings.store.sqlite.maintenance import backup
from listings.store.sqlite.store import SqliteStore
from listings.telemetry.logs import RequestLog

if TYPE_CHECKING:  # imported in functions, because most commands need neither HTTP nor metrics
    from listings.api.app import Application, Trace
    from listings.http.asgi import Pages
    from listings.http.body_files import BodyFolder
    from listings.http.server import Server
    from listings.ratelimit.redis import RedisLimiter
    from listings.ratelimit.redis_connection import Endpoint
    from listings.search.comparison import Comparison
    from listings.store.postgres.store import PostgresStore
    from listings.telemetry.metrics import Metrics

_PAGE_SIZE = 1_000  # names of pictures

_log = logging.getLogger(__name__)

_WORKER_ACCEPT_BATCH_SIZE = 4  # connections per loop iteration; with more, other workers would get too few


class Observers(NamedTuple):
    """Metrics and traces of a running service."""

    metrics: "Metrics | None" = None
    trace: "Trace | None" = None


NO_OBSERVERS = Observers()


@contextmanager
def open_observers(settings: Settings, *, listening: bool = True) -> Iterator[Observers]:
    """Open the metrics and traces that the settings turn on. Raises Problem("invalid_setting").

    Without `listening`, the metrics are not served over HTTP, as in a worker, which reports them to the supervisor.
    """
    with ExitStack() as stack:
        trace = metrics = None
        if settings.tracing:
            try:
                from listings.telemetry.tracing import Tracing
            except ImportError:
                packages = "install the packages in requirements/tracing.txt"
                raise _missing("LISTINGS_TRACING is on", "OpenTelemetry", packages) from None
            trace = stack.enter_context(closing(Tracing())).record_response
        if settings.metrics_address is not None:
            from listings.telemetry.metrics import Listener, Metrics

            file = settings.database
            get_last_backup = partial(backup.get_last_backup, file) if isinstance(file, Path) else None
            metrics = Metrics(settings.file, get_last_backup)
            if listening:
                metrics.url = stack.enter_context(closing(Listener(metrics.registry, *settings.metrics_address))).url
        yield Observers(metrics, trace)


@asynccontextmanager
async def open_services(
    settings: Settings,
    *,
    clock: Callable[[], float] = time.time,
    metrics: "Metrics | None" = None,
    background: bool = True,
) -> AsyncIterator[Services]:
    """Open a service on the database of the settings, which must exist.

    On exit, store the counts that are still in memory. `background`: whether it runs the background tasks.
    """
    options = build_options(settings, metrics)
    store = _build_store(settings, metrics)
    async with AsyncExitStack() as stack:
        await store.open()
        stack.push_async_callback(store.close)
        if metrics is not None:
            metrics.writes_waiting.set_function(lambda: store.writes_waiting)
            if not isinstance(store, SqliteStore):
                count = store.count_sessions
                metrics.sessions.labels("in_use").set_function(lambda: count()[0])
                metrics.sessions.labels("waiting").set_function(lambda: count()[1])
        limiter = _build_limiter(settings, await store.get_database_id(), metrics)
        if limiter is not None:
            stack.push_async_callback(limiter.close)
        services = Services(store, limiter, clock, options)
        if metrics is not None:
            metrics.market_lag.set_function(services.market.measure_lag)
        stack.callback(services.close)
        stack.push_async_callback(services.write_pending)
        if background:
            tasks = asyncio.create_task(services.run_background_tasks())
            stack.push_async_callback(asyncio.wait, [tasks])  # cancelled, it puts unsaved counts back for write_pending
            stack.callback(tasks.cancel)
        yield services


@asynccontextmanager
async def open_store(settings: Settings) -> AsyncIterator["SqliteStore | PostgresStore"]:
    """Open the store alone, with one connection, for a process that only reads it."""
    store = _build_store(replace(settings, database_connections=2), None)
    try:
        await store.open()
        yield store
    finally:
        await store.close()


async def compare_index(settings: Settings) -> "Comparison | None":
    """Compare a sample of listings with the search index, or return None if there is none. Raises ValueError."""
    from listings.search.comparison import compare

    if isinstance(settings.database, Path):
        with closing(open_without_writes(settings.database)) as connection:
            return await compare(MarketReads(connection), find_root(settings.file))
    async with open_store(settings) as store:
        return await compare(store, find_root(settings.file))


async def find_missing_pictures(settings: Settings, count: int) -> list[str]:
    """Return the names of at most `count` pictures of which a file is missing. Raises Problem, OSError."""
    files, missing = build_picture_files(settings), list[str]()
    if isinstance(settings.database, Path):
        with closing(open_without_writes(settings.database)) as connection:
            found = (name for (name,) in connection.execute("SELECT name FROM pictures ORDER BY name"))
            while len(missing) < count and (names := list(islice(found, _PAGE_SIZE))):
                missing += files.find_missing(names)
        return missing[:count]
    after = ""
    async with open_store(settings) as store:
        while len(missing) < count and (names := await store.page_picture_names(after, _PAGE_SIZE)):
            missing += files.find_missing(names)
            after = names[-1]
    return missing[:count]


def build_picture_files(settings: Settings) -> PictureFiles:
    """Build the folder or the bucket of pictures. Raises Problem("invalid_setting")."""
    url = settings.media_url
    if not isinstance(url, BucketUrl):
        return PictureFolder(settings.media_folder)
    try:
        from listings.service.pictures.bucket import PictureBucket
    except ImportError:
        packages = "install the packages in requirements/s3.txt"
        raise _missing("LISTINGS_MEDIA_URL is s3://", "obstore", packages) from None
    if not settings.media_base_url:
        raise _missing("LISTINGS_MEDIA_URL is s3://", "LISTINGS_MEDIA_BASE_URL")
    return PictureBucket(settings.media_folder, url.bucket, url.prefix, settings.media_base_url)


def build_options(settings: Settings, metrics: "Metrics | None" = None) -> Options:
    """Build the options of the service. Raises Problem("invalid_setting") if one lacks a library or another setting."""
    return Options(
        about=_describe_service(settings),
        market_open=settings.site,
        index_folder=find_root(settings.file),
        payments=_build_payments(settings),
        change_days=settings.change_days,
        deleted_days=settings.deleted_days,
        message_days=settings.message_days,
        trial_days=settings.trial_days,
        pictures=PictureOptions(build_picture_files(settings), settings.max_account_picture_bytes or UNLIMITED),
        mail_server=build_mail_server(settings),
        on_mail=metrics.record_mail if metrics is not None else DEFAULTS.on_mail,
        on_state=metrics.record_state if metrics is not None else None,
    )


def _describe_service(settings: Settings) -> ServiceInfo:
    return ServiceInfo(
        base_url=settings.base_url,
        contact=settings.contact,
        plan=build_plan(settings),
        market_name=settings.market_name,
        logo="/logo" if settings.site else "",
        links=settings.market_links,
        sign_up_open=settings.sign_up,
    )


def _build_store(settings: Settings, metrics: "Metrics | None") -> "SqliteStore | PostgresStore":
    limits = AccountLimits(
        settings.max_account_listings or UNLIMITED,
        settings.max_account_bytes or UNLIMITED,
        settings.max_account_stored_bytes,
    )
    if isinstance(settings.database, Path):
        return SqliteStore(settings.database, metrics.record_batch if metrics is not None else None, limits)
    from listings.store.postgres.pool import PoolLimits
    from listings.store.postgres.store import PostgresStore

    create_data_folder(settings)
    pool_limits = PoolLimits(settings.database_connections, settings.database_timeout)
    record_failed_write = metrics.failed_batches.inc if metrics is not None else lambda: None
    return PostgresStore(settings.database, pool_limits, account_limits=limits, record_failed_write=record_failed_write)


def create_data_folder(settings: Settings) -> None:
    """Create the folder of this machine's files. Raises Problem("invalid_setting")."""
    try:
        settings.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Problem(
            "invalid_setting", f"The folder {settings.file.parent} can't be created: {error.strerror}"
        ) from error


def build_application(
    services: Services, settings: Settings, request_log: RequestLog | None = None, observers: Observers = NO_OBSERVERS
) -> "Application":
    """Build the ASGI application of a service."""
    from listings.api import app
    from listings.http.body_files import LISTS, REQUESTS, UPLOADS, BodyFolder
    from listings.site.lazy import LazyPages

    body_folder = BodyFolder(settings.file.parent, REQUESTS)
    uploads = BodyFolder(_create_upload_folder(settings), UPLOADS)
    options = app.Options(
        cors_origins=settings.cors_origins,
        max_cache_bytes=settings.list_cache_bytes,
        list_folder=BodyFolder(settings.file.parent, LISTS),
        body_folder=body_folder,
        upload_folder=uploads,
        request_log=request_log,
        on_response=observers.metrics.record_response if observers.metrics is not None else None,
        trace=observers.trace,
        pages=LazyPages(partial(_build_pages, services, settings, body_folder, uploads)) if settings.site else None,
    )
    return app.Application(services, options)


def _create_upload_folder(settings: Settings) -> Path:
    files = build_picture_files(settings)
    try:
        files.create()
    except OSError as error:
        _log.warning(
            "The folder %s can't be created: %s: uploads of pictures get 503", files.drafts.parent, error.strerror
        )
    return files.drafts


def _build_pages(
    services: Services, settings: Settings, body_folder: "BodyFolder", upload_folder: "BodyFolder"
) -> "Pages":
    from listings.site import app
    from listings.site.context import Brand, SiteOptions

    brand = Brand(settings.market_name, settings.market_tagline, settings.market_logo, settings.market_links)

    return app.build_pages(
        services,
        SiteOptions(
            base_url=settings.base_url,
            operator_page=settings.operator_page,
            exact_locations=settings.exact_locations,
            trusted_proxies=settings.trusted_proxies,
            body_folder=body_folder,
            upload_folder=upload_folder,
            brand=brand,
        ),
    )


def build_server(
    services: Services,
    settings: Settings,
    request_log: RequestLog | None = None,
    on_start: Callable[[], None] = lambda: None,
    observers: Observers = NO_OBSERVERS,
    *,
    limits: ConnectionLimits | None = None,
) -> "Server":
    """Build the HTTP server of a service. Tests pass `limits` to change limits without a setting."""
    from listings.http.server import Server

    limits = (limits or ConnectionLimits())._replace(connections=settings.max_connections)
    if settings.workers > 1:
        limits = limits._replace(accept_batch_size=_WORKER_ACCEPT_BATCH_SIZE)
    server = Server(
        build_application(services, settings, request_log, observers),
        limits,
        on_start,
        services.begin_shutdown,
        sole_process=settings.workers == 1,
    )
    if observers.metrics is not None:
        observers.metrics.connections.set_function(lambda: server.connection_count)
        observers.metrics.max_connections.set(settings.max_connections)
    return server


def rehearse_faults(server: "Server") -> None:
    """Make a server that has not started cause the faults that requests ask for."""
    from listings.api.rehearsal import Rehearsal

    server.config.app = cast("Any", Rehearsal(cast("Any", server.config.app)))


def build_plan(settings: Settings) -> PlanTerms:
    """Return the terms of the Business plan."""
    return PlanTerms(
        settings.plan_price, settings.stripe_currency, f"{settings.base_url}/console" if settings.site else ""
    )


def _build_payments(settings: Settings) -> PaymentProvider:
    if settings.payment_provider == "manual":
        return ManualPayments()
    try:
        from listings.service.payments.stripe import StripeAccount, StripePayments
    except ImportError:
        packages = "install the packages in requirements/stripe.txt"
        raise _missing("LISTINGS_PAYMENT_PROVIDER is stripe", "its library", packages) from None
    for setting, value in (
        ("LISTINGS_STRIPE_SECRET_KEY", settings.stripe_secret_key),
        ("LISTINGS_STRIPE_WEBHOOK_SECRET", settings.stripe_webhook_secret),
    ):
        if not value:
            raise _missing("LISTINGS_PAYMENT_PROVIDER is stripe", setting)
    return StripePayments(
        StripeAccount(settings.stripe_secret_key, settings.stripe_webhook_secret, build_plan(settings))
    )


def build_mail_server(settings: Settings) -> SmtpServer | None:
    """Return the server that sends mail, or None if mail is off. Raises Problem("invalid_setting")."""
    if settings.smtp_url is None:
        return None
    for setting, value in (("LISTINGS_MAIL_FROM", settings.mail_from), ("LISTINGS_BASE_URL", settings.base_url)):
        if not value:
            raise _missing("LISTINGS_SMTP_URL is set", setting)
    return SmtpServer(
        **settings.smtp_url._asdict(),
        sender=settings.mail_from,
        sender_name=settings.market_name,
        base_url=settings.base_url,
    )


def _build_limiter(settings: Settings, database_id: str, metrics: "Metrics | None") -> RateLimiter | None:
    if not settings.rate_limit:
        return None
    local = MappedLimiter(settings.file, database_id, settings.rate_limit, settings.rate_window)
    if settings.redis is None:
        return local
    from listings.ratelimit.fallback import FallbackLimiter

    shared = build_redis_limiter(settings.redis, settings, database_id)
    limiter = FallbackLimiter(shared, local, required=settings.redis_required)
    if metrics is not None:
        limiter.on_local_hit = metrics.counted_locally.inc
        metrics.limiter_away.set_function(lambda: limiter.is_redis_unavailable)
    return limiter


def build_redis_limiter(address: RedisAddress, settings: Settings, database_id: str) -> "RedisLimiter":
    """Build the limiter that counts in Redis."""
    from listings.ratelimit.redis import RedisLimiter

    return RedisLimiter(build_redis_endpoint(address, settings), database_id, settings.rate_limit, settings.rate_window)


def build_redis_endpoint(address: RedisAddress, settings: Settings) -> "Endpoint":
    """Return the address and timeout of the Redis server."""
    from listings.ratelimit.redis_connection import Endpoint

    return Endpoint(**address._asdict(), timeout_seconds=settings.redis_timeout / 1000)


def _missing(reason: str, needed: str, remedy: str = "set it") -> Problem:
    return Problem("invalid_setting", f"{reason}, which needs {needed}: {remedy}")
