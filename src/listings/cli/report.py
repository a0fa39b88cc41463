"""`listings report`: key figures of the last 24 hours on one screen."""

from pathlib import Path

import click

from listings.cli.group import example
from listings.cli.output import json_option, show
from listings.cli.parameters import load_settings
from listings.cli.service import with_service
from listings.domain import timestamps
from listings.store.sqlite import connections

_MIB = 1024**2


@click.command(short_help="Show key figures of the last 24 hours.")
@example("listings report")
@json_option
def report() -> None:
    """Show accounts, plans, requests, the market and the database on one screen.

    New accounts and listings, requests and rejections are those of this hour and the 23 hours before. Plans that end
    soon do so within 14 days. The largest accounts are listed by id, with the bytes that each stores, with pictures.
    Nothing is changed, and the service may be running.
    """
    times, found = with_service(lambda services: services.reports.build())
    settings = load_settings()
    free = connections.get_free_bytes(settings.file) // _MIB if isinstance(settings.database, Path) else None
    data = found._asdict()
    size = -(-data.pop("database_bytes") // _MIB)
    since = timestamps.format_timestamp(times.since)
    show({"since": since, **data, "database_mib": size, "free_disk_mib": free})
