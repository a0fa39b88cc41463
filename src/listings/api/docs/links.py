"""What the header of the documentation shows: the market's brand, and links."""

from typing import NamedTuple

from listings.service import Services


class Links(NamedTuple):
    """What the header depends on. `logo` is the path of the market's logo, or empty."""

    console: str = "/console"  # empty without a console
    market_name: str = "Listings"
    logo: str = ""


def find_links(services: Services) -> Links:
    """Return what the header of a service depends on."""
    about = services.about
    return Links(about.plan.console_url, about.market_name, about.logo)
