"""`listings market rebuild`: build the search index of this machine again."""

import click

from listings.cli.group import example
from listings.cli.output import print_message
from listings.cli.parameters import load_settings
from listings.domain.errors import Problem
from listings.search import folders


@click.group(short_help="Manage the market.")
def market() -> None:
    """Manage the market's search index."""


@market.command(short_help="Build the search index of this machine again.")
@example("listings market rebuild")
def rebuild() -> None:
    """Build the search index of this machine again, from the database.

    The running service does so in the background, or the next one does. Until then, searches use the present index.
    """
    root = folders.find_root(load_settings().file)
    try:
        folders.request_rebuild(root)
    except OSError as error:
        raise Problem("unavailable", f"The folder {root} can't be written: {error.strerror}") from error
    print_message("The search index is built again in the background")
