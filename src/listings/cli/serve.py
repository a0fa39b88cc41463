"""`listings serve`: run the service."""

import asyncio
import fcntl
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, closing, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

import click
import msgspec
import uvloop

from listings import maintenance, wiring
from listings.cli import demo as demonstration
from listings.cli import seed as seeding
from listings.cli.database import report_backup
from listings.cli.group import example
from listings.cli.memory_tuning import limit_malloc, tune_garbage_collector
from listings.cli.output import print_message
from listings.cli.parameters import load_settings, setting_option
from listings.cli.service import configure_logs
from listings.cli.systemd import Notifier
from listings.domain.errors import Problem, Unavailable
from listings.http.body_files import LISTS, REQUESTS
from listings.http.server import bind_socket, format_base_url
from listings.service import Services
from listings.settings import Settings
from listings.telemetry import logs
from listings.telemetry.logs import RequestLog
from listings.telemetry.metrics import start_listener
from listings.workers.companion import run_companion
from listings.workers.reload_record import ReloadRecord
from listings.workers.supervisor import Supervisor
from listings.workers.worker import Worker

_OTHER_FILES = 64 + LISTS.all.files  # open files that do not belong to connections
RESERVED_FILES = _OTHER_FILES + REQUESTS.all.files
"""Open files that are not connections, if there are many connections. Each has the file of at most one request."""
_WORKER = (sys.executable, "-P", "-m", "listings.cli.worker")
_INDEXER = (sys.executable, "-P", "-m", "listings.cli.indexer")

_Prepare: TypeAlias = Callable[[Services], Awaitable[demonstration.Demo | None]]

_log = logging.getLogger(__name__)


@click.command(short_help="Run the service.")
@example("listings serve --port 8080 --seed accounts.json")
@setting_option("host", metavar="ADDRESS")
@setting_option("port", metavar="PORT")
@setting_option("workers", metavar="N")
@click.option(
    "--demo", is_flag=True, help="Create three demo accounts with keys, and a market, and print curl commands to try."
)
@click.option(
    "--rehearse", is_flag=True, help="With --demo: cause the faults that requests name in X-Rehearse, to test clients."
)
@click.option("-v", "--verbose", is_flag=True, help="With --demo on a terminal: log every request.")
@setting_option("seed_file", metavar="FILE")
def serve(*, demo: bool, rehearse: bool, verbose: bool, **flags: str | None) -> None:
    """Run the service: create or update the database, then serve requests until stopped."""
    if rehearse and not demo:
        raise click.UsageError("--rehearse needs --demo: faults are for tests alone")
    if demo and not verbose and sys.stderr.isatty() and "LISTINGS_LOG_LEVEL" not in os.environ:
        flags["log_level"] = "error"  # so that the banner stays in view
    if demo:
        flags |= {
            name: text for name, text in demonstration.SETTINGS.items() if f"LISTINGS_{name.upper()}" not in os.environ
        }
    if not sys.stderr.isatty():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it is handled, a reload must not end the service
    notifier = Notifier()
    limit_malloc()
    settings = load_settings(**flags)
    if settings.warning:
        print_message(settings.warning)
    seed = seeding.read(settings.seed_file) if settings.seed_file is not None else None
    if rehearse and settings.workers > 1:
        raise click.UsageError("--rehearse needs a single process: leave out --workers")
    prepare = None
    if demo or seed is not None:
        prepare = partial(_prepare, settings=settings, seed=seed, demo=demo, rehearse=rehearse)
    given = {**click.get_current_context().obj, **flags}
    if settings.workers > 1:
        with bind_socket(settings.host, settings.port) as listener:
            stopped_gracefully = asyncio.run(_run_supervisor(settings, given, listener, prepare, notifier))
        if not stopped_gracefully:
            raise Problem("unavailable", "A worker did not stop gracefully: see the log. No acknowledged write is lost")
        return
    settings = limit_connections(settings)
    with wiring.open_observers(settings) as observers, bind_socket(settings.host, settings.port) as listener:
        uvloop.run(_serve(settings, listener, observers, prepare, notifier, given))


async def _prepare(
    services: Services, settings: Settings, seed: seeding.Seed | None, *, demo: bool, rehearse: bool
) -> demonstration.Demo | None:
    if seed is not None:
        await seeding.apply(services, seed)
    if not demo:
        return None
    return (await demonstration.prepare(services, settings.file.parent))._replace(rehearses=rehearse)


async def _serve(
    settings: Settings,
    listener: socket.socket,
    observers: wiring.Observers,
    prepare: _Prepare | None,
    notifier: Notifier,
    flags: Mapping[str, str | None],
) -> None:
    maintenance.migrate_database(settings, report_backup)
    as_json = configure_logs(settings)
    with (
        logs.write_in_thread(),
        maintenance.watch_for_damage(settings) as on_damage,
        ReloadRecord(settings.file.parent) as record,
    ):
        request_log = RequestLog(logs.open_stderr(), settings.log_level, as_json=as_json)
        if observers.metrics is not None:
            print_message(f"Metrics are at {observers.metrics.url}")
        async with wiring.open_services(settings, metrics=observers.metrics) as services:
            with suppress(Unavailable):
                await services.require_ready()  # connects to Redis, so that the first request does not wait for it
            prepared = await prepare(services) if prepare is not None else None
            tune_garbage_collector()

            def on_ready() -> None:
                start_indexer()
                notifier.notify_ready()
                _announce(settings, listener, prepared)
                on_damage(server.stop)

            server = wiring.build_server(services, settings, request_log, on_ready, observers)
            if prepared is not None and prepared.rehearses:
                wiring.rehearse_faults(server)
            _handle_hangup(partial(_refuse_reload, record), server.stop)
            async with _run_indexer(settings, flags) as start_indexer:
                await server.serve([listener])
        request_log.close()
        _log.info("Stopped")


async def _run_supervisor(
    settings: Settings,
    flags: Mapping[str, str | None],
    listener: socket.socket,
    prepare: _Prepare | None,
    notifier: Notifier,
) -> bool:
    record = ReloadRecord(settings.file.parent)
    supervisor = Supervisor(partial(Worker.start, _WORKER, flags, listener), settings.workers, listener, record)
    with ExitStack() as stack:
        if settings.metrics_address is not None:
            metrics = stack.enter_context(closing(start_listener(supervisor.report, *settings.metrics_address)))
            print_message(f"Metrics are at {metrics.url}")
        maintenance.migrate_database(settings, report_backup)
        on_damage = stack.enter_context(maintenance.watch_for_damage(settings))
        configure_logs(settings, pid=os.getpid())
        stack.enter_context(logs.write_in_thread())
        prepared = None
        if prepare is not None:
            async with wiring.open_services(settings) as services:
                prepared = await prepare(services)
        _handle_hangup(supervisor.reload, supervisor.stop)
        stack.enter_context(record)

        def on_ready() -> None:
            start_indexer()
            notifier.notify_ready()
            _announce(settings, listener, prepared)
            on_damage(supervisor.stop)

        async with _run_indexer(settings, flags) as start_indexer:
            stopped_gracefully = await supervisor.run(on_ready)
        _log.info("Stopped")
    return stopped_gracefully


def _run_indexer(
    settings: Settings, flags: Mapping[str, str | None]
) -> AbstractAsyncContextManager[Callable[[], None]]:
    if not settings.site:  # there is no market
        return nullcontext(lambda: None)
    return run_companion(_INDEXER, msgspec.json.encode(flags) + b"\n")


def _handle_hangup(reload: Callable[[], None], stop: Callable[[], None]) -> None:
    on_terminal = sys.stderr.isatty()

    def handle() -> None:  # stop if the terminal on which the service was started has closed
        (stop if on_terminal and not sys.stderr.isatty() else reload)()

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, handle)


def _refuse_reload(record: ReloadRecord) -> None:
    reason = "A single process can't reload without downtime: restart it, or set LISTINGS_WORKERS to 2 or more"
    _log.warning(reason)
    record.begin()
    record.end(reason)


def _announce(settings: Settings, listener: socket.socket, prepared: demonstration.Demo | None) -> None:
    base_url = format_base_url(listener) + urlsplit(settings.base_url).path
    if prepared is None:
        print_message(f"Listings is running at {base_url}, database {settings.redacted_database}")
        return
    environment = demonstration.write_environment(prepared, base_url, settings.file.parent)
    click.echo(demonstration.banner(prepared, base_url, settings.redacted_database, environment))


def count_connections(limit: int) -> int:
    """Return how many connections a limit on open files allows."""
    return max(1, limit - RESERVED_FILES, (limit - _OTHER_FILES) // 2)


def limit_connections(settings: Settings) -> Settings:
    """Raise the limit on open files if needed, and return settings with as many connections as it allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = settings.max_connections + RESERVED_FILES
    limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    # Let Linux allocate its table of open files now. Otherwise it doubles the table when a connection does not fit in,
    # which blocks the event loop of a process with threads for 7 to 20 ms each time.
    with Path(os.devnull).open() as file:
        os.close(fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, limit - 1))
    return replace(settings, max_connections=min(settings.max_connections, count_connections(limit)))
