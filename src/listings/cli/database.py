"""`listings migrate`: make the database, or bring its schema up to date."""

import click

from listings import assemble
from listings.cli.output import json_option, show, tell
from listings.cli.parameters import settings_of


@click.command(short_help="Make the database, or bring its schema up to date.")
@json_option
@click.pass_context
def migrate(context: click.Context, *, as_json: bool) -> None:
    """Create the database where there is none, and bring its schema up to date.

    \b
    Example: listings migrate
    """
    settings = settings_of(context)
    applied = [f"{migration.version:04}_{migration.name}" for migration in assemble.migrate_database(settings)]
    path = str(settings.database.absolute())
    if as_json:
        show({"database": path, "applied": applied}, as_json=True)
    else:
        tell(f"{path} is up to date; applied: {', '.join(applied) or 'nothing'}")
