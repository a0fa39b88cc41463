"""`listings backup` and `listings restore`."""

import time
from pathlib import Path

import click

from listings import maintenance
from listings.cli.migrate import format_migrations, report_backup
from listings.cli.output import json_option, print_message, show, show_json, show_progress
from listings.cli.parameters import load_settings
from listings.domain.errors import Problem

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
        restored = maintenance.restore_database(settings, file, force=force, progress=progress)
    kept = str(restored.previous_file) if restored.previous_file is not None else None
    pending = format_migrations(restored.pending)
    if show_json({"database": str(restored.database), "kept": kept, "pending": pending}):
        return
    if restored.previous_file is not None:
        report_backup(restored.previous_file)
    print_message(f"Restored {restored.database} from {file}")
    if pending:
        print_message("The backup has an older schema: run `listings migrate` or `listings serve` to update it")
