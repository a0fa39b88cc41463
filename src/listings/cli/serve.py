"""`listings serve`: run the service."""

import gc
import logging
import resource
import socket
import sys
from functools import partial
from pathlib import Path

import click
import uvloop

from listings import assemble
from listings.api.server import base_url_of, bound_socket
from listings.cli import demo as demonstration
from listings.cli import seed as seeding
from listings.cli.database import tell_kept
from listings.cli.output import tell
from listings.cli.parameters import SettingText, configure_logs, settings_of
from listings.logs import RequestLog
from listings.settings import Settings

OTHER_FILES = 64  # than connections


@click.command(short_help="Run the service.")
@click.option("--host", type=SettingText("host"), help="The address to listen on. Default: 127.0.0.1")
@click.option("--port", type=SettingText("port"), help="The port to listen on; 0 lets the system choose. Default: 8000")
@click.option("--demo", is_flag=True, help="Make three demo accounts with keys and listings, and print curl lines.")
@click.option(
    "--seed",
    type=SettingText("seed_file"),
    metavar="FILE",
    help="A JSON file of accounts and keys to make sure of.",
)
@click.pass_context
def serve(context: click.Context, host: str | None, port: str | None, *, demo: bool, seed: str | None) -> None:
    """Create the database where there is none, bring it up to date, and answer requests until stopped.

    \b
    Example: listings serve --port 8080 --seed accounts.json
    """
    settings = settings_of(context, host=host, port=port, seed_file=seed)
    settings = settings._replace(max_connections=_possible_connections(settings.max_connections))
    plan = seeding.read(settings.seed_file) if settings.seed_file is not None else None
    with assemble.observed(settings) as observers, bound_socket(settings.host, settings.port) as listener:
        uvloop.run(_serve(settings, listener, plan, observers, demo=demo))


async def _serve(
    settings: Settings,
    listener: socket.socket,
    plan: seeding.Seed | None,
    observers: assemble.Observers,
    *,
    demo: bool,
) -> None:
    assemble.migrate_database(settings, tell_kept)
    base_url = base_url_of(listener)
    as_json = configure_logs(settings)
    request_log = RequestLog(sys.stderr.buffer, settings.log_level, as_json=as_json)
    if observers.metrics is not None:
        tell(f"Metrics are at {observers.metrics.url}")
    async with assemble.opened_service(settings, metrics=observers.metrics) as service:
        if plan is not None:
            await seeding.apply(service, plan)
        prepared = await demonstration.prepare(service, settings.database.parent) if demo else None
        gc.freeze()  # what is there now stays: the collector need not walk through it while requests wait
        announce = partial(_announce, settings.database, base_url, prepared)
        await assemble.server(service, settings, request_log, announce, observers).serve([listener])
    request_log.close()
    logging.getLogger(__name__).info("Stopped")


def _announce(database: Path, base_url: str, prepared: demonstration.Demo | None) -> None:
    if prepared is None:
        tell(f"Listings answers at {base_url}, data in {database.absolute()}")
        return
    environment = demonstration.write_environment(prepared, base_url, database.parent)
    click.echo(demonstration.banner(prepared, base_url, database, environment))


def _possible_connections(wanted: int) -> int:
    """As many connections as the system lets this process have open files for, after asking it for enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return max(1, most - OTHER_FILES)
