"""Where the links in the header of the documentation lead."""

from typing import NamedTuple

from listings.service import Services


class Links(NamedTuple):
    """What the links depend on."""

    console: str = "/console"  # empty without a console
    sign_up_open: bool = False


def find_links(services: Services) -> Links:
    """Return the links of a service."""
    return Links(services.about.plan.console_url, services.sessions.sign_up_open)
