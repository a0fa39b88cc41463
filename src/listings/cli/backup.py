"""`listings backup` and `listings restore`: copies of the database, and back."""

import time
from pathlib import Path

import click

from listings import maintenance
from listings.cli.migrate import names_of
from listings.cli.output import json_option, progress_shown, show, tell
from listings.cli.parameters import settings_of

_FILE = click.Path(path_type=Path)


@click.command(short_help="Copy the database to a file, while the service runs.")
@click.argument("file", type=_FILE)
@click.option("--force", is_flag=True, help="Replace FILE where it is there already.")
@json_option
@click.pass_context
def backup(context: click.Context, file: Path, *, force: bool, as_json: bool) -> None:
    """Copy the database to FILE as it is at one moment, while the service runs and writes.

    The copy is checked. FILE is whole or not there, and for its owner alone.

    \b
    Example: listings backup listings-backup.db
    """
    settings = settings_of(context)
    start = time.monotonic()
    with progress_shown("Copying") as progress:
        target = maintenance.back_up_database(settings, file, force=force, progress=progress)
    seconds = round(time.monotonic() - start, 3)
    show({"backup": str(target), "bytes": target.stat().st_size, "seconds": seconds}, as_json=as_json)


@click.command(short_help="Make the database what a backup is.")
@click.argument("file", type=_FILE)
@click.option("--force", is_flag=True, help="Give up what the present database has and the backup has not.")
@json_option
@click.pass_context
def restore(context: click.Context, file: Path, *, force: bool, as_json: bool) -> None:
    """Make the database what the backup in FILE is. Stop the service first.

    FILE is checked before anything is changed, and the present database is kept in a file beside it.

    \b
    Example: listings restore listings-backup.db
    """
    settings = settings_of(context)
    with progress_shown("Restoring") as progress:
        restored = maintenance.restore_database(settings, file, force=force, progress=progress)
    kept = str(restored.kept) if restored.kept is not None else None
    pending = names_of(restored.pending)
    if as_json:
        show({"database": str(restored.database), "kept": kept, "pending": pending}, as_json=True)
        return
    if kept is not None:
        tell(f"The database as it was is kept in {kept}")
    tell(f"{restored.database} is restored from {file}")
    if pending:
        tell("Its schema is an older one: `listings migrate` or `listings serve` brings it up to date")
