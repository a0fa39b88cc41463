"""`listings backup`, `listings restore` and `listings compact`."""

import time
from pathlib import Path

import click

from listings import maintenance
from listings.cli.machine_checks import check_pictures
from listings.cli.migrate import report_backup
from listings.cli.output import json_option, print_message, show, show_json, show_progress
from listings.cli.parameters import load_settings
from listings.domain.errors import Problem

END_OF_RESTORE = (
    "Everybody must sign in again: sessions, known browsers, invitations, links to reset passwords and to confirm"
    " addresses, and queued mail with links were deleted. Let Stripe send its events since the backup again."
)
_FILE = click.Path(path_type=Path)


@click.command(short_help="Back up the database to a file.")
@click.argument("file", type=_FILE)
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@json_option
def backup(file: Path, *, force: bool) -> None:
    """Back up the SQLite database to FILE, even while the service is running.

    The backup is a consistent snapshot and is checked for damage. If it fails, FILE is not created. Only its owner can
    read FILE. Use pg_dump for a PostgreSQL database.

    \b
    Example: listings backup listings-backup.db
    """
    settings = load_settings()
    start = time.monotonic()
    with show_progress("Copying") as progress:
        target = maintenance.back_up_database(settings, file, force=force, progress=progress)
    seconds = round(time.monotonic() - start, 3)
    show({"backup": str(target), "bytes": target.stat().st_size, "seconds": seconds})


@click.command(short_help="Restore the database from a backup.")
@click.argument("file", type=_FILE)
@click.option("--force", is_flag=True, help="Discard the data that the current database has and the backup lacks.")
@json_option
def restore(file: Path, *, force: bool) -> None:
    """Replace the database with the backup FILE. Stop the service first.

    FILE is checked before anything changes. The current database is saved to another file in the same folder.

    To restore one deleted listing, use `listings undelete`.

    \b
    Example: listings restore listings-backup.db
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
@click.option(
    "--above", type=click.IntRange(0, 2**53), metavar="ID", help="The highest known id of a listing. Default: unknown."
)
def restored(above: int | None) -> None:
    """Run this after pg_restore, or a failover that lost writes, before the service writes again.

    Ids, entity tags and change ids that clients may have from lost writes are then never used again. Sessions and links
    that were valid at the time of the dump end.

    \b
    Example: listings restored --above 104857601
    """
    maintenance.finish_restore(load_settings(), above)
    print_message(END_OF_RESTORE)


@click.command(short_help="Return free space of the database to the disk.")
@json_option
def compact() -> None:
    """Make the SQLite file smaller after much was deleted. Stop the service first.

    The disk needs as much free space as the database takes. If this is interrupted, nothing is lost.

    \b
    Example: listings compact
    """
    settings = load_settings()
    before = settings.file.stat().st_size if settings.file.exists() else 0
    with show_progress("Compacting") as progress:
        maintenance.compact_database(settings, progress)
    show({"database": settings.redacted_database, "bytes_before": before, "bytes": settings.file.stat().st_size})
