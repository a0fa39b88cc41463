"""`listings serve`: run the service."""

import logging
import socket
from pathlib import Path

import click
import uvloop

from listings import assemble
from listings.api.server import Server, base_url_of, bound_socket
from listings.cli import demo as demonstration
from listings.cli import seed as seeding
from listings.cli.output import tell
from listings.cli.parameters import SettingText, settings_of
from listings.settings import Settings


@click.command()
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

    Example: listings serve --port 8080 --seed accounts.json
    """
    settings = settings_of(context, host=host, port=port, seed_file=seed)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    plan = seeding.read(settings.seed_file) if settings.seed_file is not None else None
    with bound_socket(settings.host, settings.port) as listener:
        uvloop.run(_serve(settings, listener, plan, demo=demo))


async def _serve(settings: Settings, listener: socket.socket, plan: seeding.Seed | None, *, demo: bool) -> None:
    assemble.migrate_database(settings)
    base_url = base_url_of(listener)
    async with assemble.opened_service(settings) as service:
        if plan is not None:
            await seeding.apply(service, plan)
        prepared = await demonstration.prepare(service, settings.database.parent) if demo else None
        server = Server(
            assemble.application(service, settings), lambda: _announce(settings.database, base_url, prepared)
        )
        await server.serve([listener])


def _announce(database: Path, base_url: str, prepared: demonstration.Demo | None) -> None:
    if prepared is None:
        tell(f"Listings answers at {base_url}, data in {database.absolute()}")
        return
    environment = demonstration.write_environment(prepared, base_url, database.parent)
    click.echo(demonstration.banner(prepared, base_url, database, environment))
