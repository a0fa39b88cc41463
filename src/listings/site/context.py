"""What every page has at hand."""

from ipaddress import IPv4Network, IPv6Network
from typing import NamedTuple, TypeAlias

import jinja2
from starlette.requests import Request

from listings.service import Service
from listings.site.count_cache import CountCache

Network: TypeAlias = IPv4Network | IPv6Network


class SiteOptions(NamedTuple):
    """What the operator has set. `base_url` is without a slash at its end; "": as the visitor calls it."""

    base_url: str = ""
    trusted_proxies: tuple[Network, ...] = ()
    most_body: int = 2 * 1024 * 1024


class Site(NamedTuple):
    """The use cases, the options, the templates, and what is kept between two pages."""

    service: Service
    options: SiteOptions
    templates: jinja2.Environment
    counts: CountCache


def site_of(request: Request) -> Site:
    """The site that a request is for."""
    site: Site = request.app.state.site
    return site
