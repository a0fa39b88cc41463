"""`listings picture`: an operator's access to sellers' pictures."""

import click

from listings.cli.output import Data, json_option, show
from listings.cli.service import with_service
from listings.service import Services


@click.group()
def picture() -> None:
    """Delete pictures that sellers have uploaded."""


@picture.command(short_help="Delete a picture.")
@click.argument("url")
@click.option("--block", is_flag=True, help="Reject the same file from now on, from every account.")
@json_option
def delete(url: str, *, block: bool) -> None:
    """Permanently delete the picture with this URL or name, also if listings show it.

    Copies in caches can stay visible for a day, and in browsers that have loaded it for a year.

    \b
    Example: listings picture delete https://market.example/media/0123456789abcdef0123456789abcdef.jpg --block
    """

    async def use(services: Services) -> Data:
        found, listings = await services.pictures.remove(url, block=block)
        shown = ", ".join(map(str, listings)) or None
        return {"deleted": found.name, "account": found.account_id, "shown_in": shown, "blocked": block}

    show(with_service(use))
