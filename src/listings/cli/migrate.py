"""`listings migrate`: create the database or update its schema."""

from collections.abc import Iterable
from pathlib import Path

import click

from listings import maintenance
from listings.cli.output import json_option, print_dry_run, print_message, show_json
from listings.cli.parameters import load_settings
from listings.store.migrations import Migration


@click.command(short_help="Create the database or update its schema.")
@click.option("--dry-run", is_flag=True, help="Show the pending migrations and change nothing.")
@json_option
def migrate(*, dry_run: bool) -> None:
    """Create the database if it does not exist, or update its schema.

    Before an update, a SQLite database is backed up to another file in the same folder.

    \b
    Example: listings migrate
    """
    settings = load_settings()
    path = settings.redacted_database
    if dry_run:
        pending = format_migrations(maintenance.list_pending_migrations(settings))
        if not show_json({"database": path, "pending": pending}):
            print_message(f"Pending migrations of {path}: {', '.join(pending) or 'none'}")
        print_dry_run()
        return
    backups: list[Path] = []
    applied = format_migrations(maintenance.migrate_database(settings, backups.append))
    maintenance.require_schema(settings)
    if show_json({"database": path, "applied": applied, "backup": str(backups[0]) if backups else None}):
        return
    for backup in backups:
        report_backup(backup)
    print_message(_describe(path, applied))


def _describe(path: str, applied: list[str]) -> str:
    if applied and applied[0].startswith("0001_"):
        return f"Created {path} ({len(applied)} migrations)"
    return f"{path} is up to date; applied migrations: {', '.join(applied) or 'none'}"


def format_migrations(migrations: Iterable[Migration]) -> list[str]:
    """Return names such as 0001_listings."""
    return [f"{migration.version:04}_{migration.name}" for migration in migrations]


def report_backup(backup: Path) -> None:
    """Print where the previous database was saved."""
    print_message(f"Saved the previous database as {backup}")
