"""`listings backup` and `listings restore`."""

import time
from pathlib import Path

import click

from listings import maintenance
from listings.cli.migrate import names_of
from listings.cli.output import json_option, progress_shown, show, tell
from listings.cli.parameters import settings_of

_FILE = click.Path(path_type=Path)


@click.command(short_help="Back up the database to a file.")
@click.argument("file", type=_FILE)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@json_option
@click.pass_context
def backup(context: click.Context, file: Path, *, force: bool, as_json: bool) -> None:
    """Back up the database to FILE; the service may be running.

    The backup is a consistent snapshot and is checked for damage. FILE is either complete or not created, and only its
    owner may read it.

    \b
    Example: listings backup listings-backup.db
    """
    settings = settings_of(context)
    start = time.monotonic()
    with progress_shown("Copying") as progress:
        target = maintenance.back_up_database(settings, file, force=force, progress=progress)
    seconds = round(time.monotonic() - start, 3)
    show({"backup": str(target), "bytes": target.stat().st_size, "seconds": seconds}, as_json=as_json)


@click.command(short_help="Restore the database from a backup.")
@click.argument("file", type=_FILE)
@click.option("--force", is_flag=True, help="Discard the data that the current database has and the backup lacks.")
@json_option
@click.pass_context
def restore(context: click.Context, file: Path, *, force: bool, as_json: bool) -> None:
    """Restore the database from the backup FILE. Stop the service first.

    FILE is checked before anything changes. The current database is kept in a file next to it.

    \b
    Example: listings restore listings-backup.db
    """
    settings = settings_of(context)
    with progress_shown("Restoring") as progress:
        restored = maintenance.restore_database(settings, file, force=force, progress=progress)
    kept = str(restored.previous_file) if restored.previous_file is not None else None
    pending = names_of(restored.pending)
    if as_json:
        show({"database": str(restored.database), "kept": kept, "pending": pending}, as_json=True)
        return
    if kept is not None:
        tell(f"The previous database is kept in {kept}")
    tell(f"Restored {restored.database} from {file}")
    if pending:
        tell("Its schema is older: run `listings migrate` or `listings serve` to update it")
