"""`listings migrate`: make the database, or bring its schema up to date."""

from collections.abc import Iterable
from pathlib import Path

import click

from listings import maintenance
from listings.cli.output import json_option, show, tell
from listings.cli.parameters import settings_of
from listings.store.migrations import Migration


@click.command(short_help="Make the database, or bring its schema up to date.")
@click.option("--dry-run", is_flag=True, help="Tell what would be applied, and change nothing.")
@json_option
@click.pass_context
def migrate(context: click.Context, *, dry_run: bool, as_json: bool) -> None:
    """Create the database where there is none, and bring its schema up to date.

    Before the schema of a database that is there already is changed, the database is copied to a file beside it.

    \b
    Example: listings migrate
    """
    settings = settings_of(context)
    path = settings.database_shown
    if dry_run:
        pending = names_of(maintenance.pending_migrations(settings))
        if as_json:
            show({"database": path, "pending": pending}, as_json=True)
        else:
            tell(f"{path} is as it was; would be applied: {', '.join(pending) or 'nothing'}")
        return
    kept: list[Path] = []
    applied = names_of(maintenance.migrate_database(settings, kept.append))
    if as_json:
        show({"database": path, "applied": applied, "backup": str(kept[0]) if kept else None}, as_json=True)
        return
    for backup in kept:
        tell_kept(backup)
    tell(f"{path} is up to date; applied: {', '.join(applied) or 'nothing'}")


def names_of(migrations: Iterable[Migration]) -> list[str]:
    """Such as 0001_listings."""
    return [f"{migration.version:04}_{migration.name}" for migration in migrations]


def tell_kept(backup: Path) -> None:
    """Say where the database is kept as it was before a migration."""
    tell(f"The database as it was is kept in {backup}")
