"""`listings copy`: everything from a SQLite database to PostgreSQL."""

import os
import time

import click

from listings import maintenance
from listings.cli.output import Value, json_option, progress_shown, show, tell
from listings.cli.parameters import SettingText, settings_of
from listings.domain.errors import Problem
from listings.domain.postgres_url import PostgresUrl
from listings.settings import COPY_TARGET, resolve


@click.command(short_help="Copy everything from SQLite to PostgreSQL.")
@click.option(
    "--to",
    type=SettingText("copy_to"),
    metavar="URL",
    help="The PostgreSQL database; without a password, which others on this machine could see here.",
)
@click.option("--dry-run", is_flag=True, help="Tell what would be copied, and change nothing.")
@json_option
@click.pass_context
def copy(context: click.Context, to: str | None, *, dry_run: bool, as_json: bool) -> None:
    """Copy everything from the SQLite database to an empty PostgreSQL database, and verify it row by row.

    Ids, keys and plans stay as they are, and so does what the rate limit has counted. Stop the service first. A copy
    that was interrupted goes on when it is run again, and one that is complete copies only what differs.

    Where the URL has a password, put it into a file that LISTINGS_COPY_TO_FILE names, or into LISTINGS_COPY_TO.

    \b
    Example: listings copy --to postgresql://listings@db.example/listings --dry-run
    """
    settings = settings_of(context)
    target = _target(to)
    start = time.monotonic()
    with progress_shown("Comparing" if dry_run else "Copying") as progress:
        copied = maintenance.copy_database(settings, target, dry_run=dry_run, progress=progress)
    data: dict[str, Value] = {
        "database": settings.database_shown,
        "target": target.shown,
        **copied.rows,
        "written": copied.written,
        "removed": copied.removed,
    }
    if not dry_run:
        data["rate_limits"] = maintenance.copy_limits(settings, target, copied.database_id)
    show(data | {"seconds": round(time.monotonic() - start, 3)}, as_json=as_json)
    if dry_run:
        tell("Nothing is written: this was a dry run")


def _target(to: str | None) -> PostgresUrl:
    given = resolve(COPY_TARGET, os.environ, to)
    if given.source == "default":
        raise Problem(
            "invalid_setting", "Where to copy to is not told: name a database with --to or LISTINGS_COPY_TO_FILE"
        )
    if given.fault:
        raise Problem("invalid_setting", given.fault)
    return PostgresUrl(given.text)
