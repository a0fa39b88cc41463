"""`listings migrate`, `backup`, `restore`, `restored`, `compact` and `copy`: the database as a whole."""

import os
import time
from collections.abc import Iterable
from pathlib import Path

import click

from listings import maintenance
from listings.cli.group import example
from listings.cli.output import Value, json_option, print_dry_run, print_message, show, show_json, show_progress
from listings.cli.parameters import load_settings, setting_option
from listings.cli.shared_checks import check_pictures
from listings.domain.errors import Problem
from listings.domain.postgres_url import PostgresUrl
from listings.settings import COPY_TARGET, resolve_setting
from listings.store.migrations import Migration

END_OF_RESTORE = (
    "Everybody must sign in again: sessions, known browsers, invitations, links to reset passwords and to confirm"
    " addresses, and queued mail with links were deleted. Let Stripe send its events since the backup again."
)
_FILE = click.Path(path_type=Path)


@click.command(short_help="Create the database or update its schema.")
@example("listings migrate")
@click.option("--dry-run", is_flag=True, help="Show the pending migrations and change nothing.")
@json_option
def migrate(*, dry_run: bool) -> None:
    """Create the database if it does not exist, or update its schema.

    Before an update, a SQLite database is backed up to another file in the same folder.
    """
    settings = load_settings()
    path = settings.redacted_database
    if dry_run:
        pending = _list_names(maintenance.list_pending_migrations(settings))
        if not show_json({"database": path, "pending": pending}):
            print_message(f"Pending migrations of {path}: {', '.join(pending) or 'none'}")
        print_dry_run()
        return
    backups: list[Path] = []
    applied = _list_names(maintenance.migrate_database(settings, backups.append))
    maintenance.require_schema(settings)
    if show_json({"database": path, "applied": applied, "backup": str(backups[0]) if backups else None}):
        return
    for file in backups:
        report_backup(file)
    if applied and applied[0].startswith("0001_"):
        print_message(f"Created {path} ({len(applied)} migrations)")
    else:
        print_message(f"{path} is up to date; applied migrations: {', '.join(applied) or 'none'}")


def _list_names(migrations: Iterable[Migration]) -> list[str]:
    return [f"{migration.version:04}_{migration.name}" for migration in migrations]


def report_backup(backup: Path) -> None:
    """Print where the previous database was saved."""
    print_message(f"Saved the previous database as {backup}")


@click.command(short_help="Back up the database to a file.")
@example("listings backup listings-backup.db")
@click.argument("file", type=_FILE)
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@json_option
def backup(file: Path, *, force: bool) -> None:
    """Back up the SQLite database to FILE, even while the service is running.

    The backup is a consistent snapshot and is checked for damage. If it fails, FILE is not created. Only its owner can
    read FILE. Use pg_dump for a PostgreSQL database.
    """
    settings = load_settings()
    start = time.monotonic()
    with show_progress("Copying") as progress:
        target = maintenance.back_up_database(settings, file, force=force, progress=progress)
    seconds = round(time.monotonic() - start, 3)
    show({"backup": str(target), "bytes": target.stat().st_size, "seconds": seconds})


@click.command(short_help="Restore the database from a backup.")
@example("listings restore listings-backup.db")
@click.argument("file", type=_FILE)
@click.option("--force", is_flag=True, help="Discard the data that the current database has and the backup lacks.")
@json_option
def restore(file: Path, *, force: bool) -> None:
    """Replace the database with the backup FILE. Stop the service first.

    FILE is checked before anything changes. The current database is saved to another file in the same folder.

    To restore one deleted listing, use `listings undelete`.
    """
    settings = load_settings()
    if file.name.isdecimal() and not file.exists():
        hint = f"to restore a deleted listing, run `listings undelete {file.name}`"
        raise Problem("invalid_request", f"There is no backup {file}; {hint}")
    with show_progress("Restoring") as progress:
        previous = maintenance.restore_database(settings, file, force=force, progress=progress)
    if not show_json(
        {"database": str(settings.file.absolute()), "kept": str(previous) if previous is not None else None}
    ):
        if previous is not None:
            report_backup(previous)
        print_message(f"Restored {settings.file.absolute()} from {file}")
    print_message(END_OF_RESTORE)
    pictures = check_pictures(settings)
    if pictures.verdict != "ok":
        print_message(f"{pictures.found}: {pictures.advice}")


@click.command(short_help="Finish the restore of a PostgreSQL database.")
@example("listings restored --above 104857601")
@click.option(
    "--above", type=click.IntRange(0, 2**53), metavar="ID", help="The highest known id of a listing. Default: unknown."
)
def restored(above: int | None) -> None:
    """Run this after pg_restore, or a failover that lost writes, before the service writes again.

    Ids, entity tags and change ids that clients may have from lost writes are then never used again. Sessions and links
    that were valid at the time of the dump end.
    """
    maintenance.finish_restore(load_settings(), above)
    print_message(END_OF_RESTORE)


@click.command(short_help="Return free space of the database to the disk.")
@example("listings compact")
@json_option
def compact() -> None:
    """Make the SQLite file smaller after much was deleted. Stop the service first.

    The disk needs as much free space as the database takes. If this is interrupted, nothing is lost.
    """
    settings = load_settings()
    before = settings.file.stat().st_size if settings.file.exists() else 0
    with show_progress("Compacting") as progress:
        maintenance.compact_database(settings, progress)
    show({"database": settings.redacted_database, "bytes_before": before, "bytes": settings.file.stat().st_size})


@click.command(short_help="Copy the SQLite database to PostgreSQL.")
@example("listings copy --to postgresql://listings@db.example/listings --dry-run")
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
    """
    settings = load_settings()
    given = resolve_setting(COPY_TARGET, os.environ, copy_to)
    if given.source == "default":
        message = "No target database given: use --to, LISTINGS_COPY_TO or LISTINGS_COPY_TO_FILE"
        raise Problem("invalid_setting", message)
    if given.error:
        raise Problem("invalid_setting", given.error)
    target = PostgresUrl(given.text)
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
