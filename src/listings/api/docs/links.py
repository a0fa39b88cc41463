"""Where the links in the header of the documentation lead."""

from typing import NamedTuple
from urllib.parse import urlsplit

from listings.service import Services


class Links(NamedTuple):
    """What the links depend on."""

    root: str = ""  # the path of the public URL, without a slash at the end
    console: str = "/console"  # empty without a console
    sign_up_open: bool = False


def find_links(services: Services) -> Links:
    """Return the links of a service."""
    about = services.about
    return Links(urlsplit(about.base_url).path, about.plan.console_url, services.sessions.sign_up_open)
