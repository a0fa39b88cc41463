"""`listings serve`: run the service."""

import asyncio
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from functools import partial

import click
import uvloop

from listings import maintenance, wiring
from listings.cli import demo as demonstration
from listings.cli import seed as seeding
from listings.cli.gc_tuning import spare_lasting_objects
from listings.cli.migrate import report_backup
from listings.cli.output import tell
from listings.cli.parameters import SettingText, configure_logs, settings_of
from listings.domain.errors import Problem, Unavailable
from listings.http.server import bind_socket, format_base_url
from listings.service import Service
from listings.settings import Settings
from listings.telemetry.logs import RequestLog
from listings.telemetry.metrics import start_listener
from listings.workers.supervisor import Supervisor
from listings.workers.worker import Worker

OTHER_FILES = 64  # than connections
_WORKER = (sys.executable, "-P", "-m", "listings.cli.worker")

_log = logging.getLogger(__name__)


@click.command(short_help="Run the service.")
@click.option("--host", type=SettingText("host"), help="The address to listen on. Default: 127.0.0.1")
@click.option("--port", type=SettingText("port"), help="The port to listen on; 0 lets the system choose. Default: 8000")
@click.option("--workers", type=SettingText("workers"), help="How many processes answer requests. Default: 1")
@click.option(
    "--demo", is_flag=True, help="Create three demo accounts with keys and listings, and print curl commands to try."
)
@click.option("-v", "--verbose", is_flag=True, help="With --demo on a terminal: log every request.")
@click.option(
    "--seed",
    type=SettingText("seed_file"),
    metavar="FILE",
    help="A JSON file of accounts and keys to make sure of.",
)
@click.pass_context
def serve(
    context: click.Context,
    host: str | None,
    port: str | None,
    workers: str | None,
    *,
    demo: bool,
    verbose: bool,
    seed: str | None,
) -> None:
    """Create the database where there is none, bring it up to date, and answer requests until stopped.

    \b
    Example: listings serve --port 8080 --seed accounts.json
    """
    flags = {"host": host, "port": port, "workers": workers, "seed_file": seed}
    if demo and not verbose and sys.stderr.isatty() and "LISTINGS_LOG_LEVEL" not in os.environ:
        flags["log_level"] = "error"  # so that the banner stays in view
    settings = settings_of(context, **flags)
    plan = seeding.read(settings.seed_file) if settings.seed_file is not None else None
    if settings.workers > 1:
        _supervise(settings, {**context.obj, **flags}, plan, demo=demo)
        return
    settings = with_possible_connections(settings)
    with wiring.open_observers(settings) as observers, bind_socket(settings.host, settings.port) as listener:
        uvloop.run(_serve(settings, listener, plan, observers, demo=demo))


async def _serve(
    settings: Settings,
    listener: socket.socket,
    plan: seeding.Seed | None,
    observers: wiring.Observers,
    *,
    demo: bool,
) -> None:
    maintenance.migrate_database(settings, report_backup)
    with maintenance.watch_for_damage(settings) as on_damage:
        await _answer(settings, listener, plan, observers, on_damage, demo=demo)


async def _answer(
    settings: Settings,
    listener: socket.socket,
    plan: seeding.Seed | None,
    observers: wiring.Observers,
    on_damage: maintenance.OnDamage,
    *,
    demo: bool,
) -> None:
    base_url = format_base_url(listener)
    as_json = configure_logs(settings)
    request_log = RequestLog(sys.stderr.buffer, settings.log_level, as_json=as_json)
    if observers.metrics is not None:
        tell(f"Metrics are at {observers.metrics.url}")
    async with wiring.open_service(settings, metrics=observers.metrics) as service:
        with suppress(Unavailable):
            await service.require_ready()  # which connects to Redis, so that no request waits for that
        prepared = await _prepare(service, settings, plan, demo=demo)
        spare_lasting_objects()

        def begin() -> None:
            _announce(settings, base_url, prepared)
            on_damage(server.stop)

        server = wiring.build_server(service, settings, request_log, begin, observers)
        _heed_hangups(_tell_no_reload, server.stop)
        await server.serve([listener])
    request_log.close()
    _log.info("Stopped")


async def _prepare(
    service: Service, settings: Settings, plan: seeding.Seed | None, *, demo: bool
) -> demonstration.Demo | None:
    """Make sure of what the seed and the demo want."""
    if plan is not None:
        await seeding.apply(service, plan)
    return await demonstration.prepare(service, settings.file.parent) if demo else None


def _supervise(settings: Settings, flags: Mapping[str, str | None], plan: seeding.Seed | None, *, demo: bool) -> None:
    """Run many workers. Raises Problem."""
    if sys.platform != "linux":  # the rate limit is shared by what only Linux has
        raise Problem("invalid_setting", "LISTINGS_WORKERS must be 1 here: more than one worker needs Linux")
    with bind_socket(settings.host, settings.port) as listener:
        in_order = asyncio.run(_supervised(settings, flags, listener, plan, demo=demo))
    if not in_order:
        raise Problem("unavailable", "A worker did not stop in time and was killed; what it acknowledged is kept")


async def _supervised(
    settings: Settings,
    flags: Mapping[str, str | None],
    listener: socket.socket,
    plan: seeding.Seed | None,
    *,
    demo: bool,
) -> bool:
    supervisor = Supervisor(partial(Worker.start, _WORKER, flags, listener), settings.workers, listener)
    with ExitStack() as stack:
        if settings.metrics_address is not None:
            told = stack.enter_context(closing(start_listener(supervisor.report, *settings.metrics_address)))
            tell(f"Metrics are at {told.url}")
        maintenance.migrate_database(settings, report_backup)
        on_damage = stack.enter_context(maintenance.watch_for_damage(settings))
        base_url = format_base_url(listener)
        configure_logs(settings, pid=os.getpid())
        prepared = None
        if plan is not None or demo:
            async with wiring.open_service(settings) as service:
                prepared = await _prepare(service, settings, plan, demo=demo)
        _heed_hangups(supervisor.reload, supervisor.stop)

        def begin() -> None:
            _announce(settings, base_url, prepared)
            on_damage(supervisor.stop)

        in_order = await supervisor.run(begin)
    _log.info("Stopped")
    return in_order


def _heed_hangups(reload: Callable[[], None], stop: Callable[[], None]) -> None:
    """SIGHUP asks for a reload, or tells that the terminal is gone on which the service was started."""
    on_terminal = sys.stderr.isatty()

    def heed() -> None:
        (stop if on_terminal and not sys.stderr.isatty() else reload)()

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, heed)


def _tell_no_reload() -> None:
    _log.warning("One process can't be reloaded without a gap: restart it, or set LISTINGS_WORKERS to 2 or more")


def _announce(settings: Settings, base_url: str, prepared: demonstration.Demo | None) -> None:
    if prepared is None:
        tell(f"Listings answers at {base_url}, data in {settings.redacted_database}")
        return
    environment = demonstration.write_environment(prepared, base_url, settings.file.parent)
    click.echo(demonstration.banner(prepared, base_url, settings.redacted_database, environment))


def with_possible_connections(settings: Settings) -> Settings:
    """Settings with as many connections as the system lets this process have open files for."""
    return settings._replace(max_connections=_possible_connections(settings.max_connections))


def _possible_connections(wanted: int) -> int:
    """As many as there can be, after asking the system for enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return max(1, most - OTHER_FILES)
