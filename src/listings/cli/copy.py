"""`listings copy`: copy a SQLite database to PostgreSQL."""

import os
import time

import click

from listings import maintenance
from listings.cli.output import Value, json_option, print_dry_run, show, show_progress
from listings.cli.parameters import load_settings, setting_option
from listings.domain.errors import Problem
from listings.domain.postgres_url import PostgresUrl
from listings.settings import COPY_TARGET, resolve_setting


@click.command(short_help="Copy the SQLite database to PostgreSQL.")
@setting_option(
    "copy_to",
    metavar="URL",
    help="The PostgreSQL database. Leave out the password: other users of this machine can see a command line.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be copied and change nothing.")
@json_option
def copy(copy_to: str | None, *, dry_run: bool) -> None:
    """Copy the SQLite database to an empty PostgreSQL database, and verify every row.

    Ids, keys, plans and rate limit counts are preserved. Stop the service first. Run the command again to continue an
    interrupted copy. After a complete copy, it copies only the differences.

    If the URL has a password, set the URL in LISTINGS_COPY_TO, or in a file whose path is in LISTINGS_COPY_TO_FILE.

    \b
    Example: listings copy --to postgresql://listings@db.example/listings --dry-run
    """
    settings = load_settings()
    target = _parse_target(copy_to)
    start = time.monotonic()
    with show_progress("Comparing" if dry_run else "Copying") as progress:
        copied = maintenance.copy_database(settings, target, dry_run=dry_run, progress=progress)
    data: dict[str, Value] = {
        "database": settings.redacted_database,
        "target": target.redacted,
        **copied.rows,
        "written": copied.written,
        "removed": copied.removed,
    }
    if not dry_run:
        data["rate_limits"] = maintenance.copy_rate_limits(settings, target, copied.database_id)
    show(data | {"seconds": round(time.monotonic() - start, 3)})
    if dry_run:
        print_dry_run()


def _parse_target(to: str | None) -> PostgresUrl:
    given = resolve_setting(COPY_TARGET, os.environ, to)
    if given.source == "default":
        raise Problem(
            "invalid_setting", "No target database given: use --to, LISTINGS_COPY_TO or LISTINGS_COPY_TO_FILE"
        )
    if given.error:
        raise Problem("invalid_setting", given.error)
    return PostgresUrl(given.text)
