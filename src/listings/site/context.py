"""Objects that all pages share."""

import asyncio
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import jinja2
from starlette.requests import Request

from listings.service import Services

if TYPE_CHECKING:  # the console's modules import this one
    from listings.site.console.export import Exports
    from listings.site.console.listing_count_cache import ListingCountCache
    from listings.site.message import SentMessages

Network: TypeAlias = IPv4Network | IPv6Network


class Brand(NamedTuple):
    """How the market presents itself. `links` are the labels and URLs at the foot of each page."""

    name: str = "Listings"
    tagline: str = "Find it in Aotearoa"
    logo: Path | None = None
    links: tuple[tuple[str, str], ...] = ()


class SiteOptions(NamedTuple):
    """The operator's settings. `base_url` has no trailing slash; if it is empty, the request's Host header is used."""

    base_url: str = ""
    trusted_proxies: tuple[Network, ...] = ()
    max_body_bytes: int = 2 * 1024 * 1024
    exact_locations: bool = False  # whether pages show coordinates with all their decimals
    brand: Brand = Brand()


class Site(NamedTuple):
    """The service, the options, the templates, and what requests share."""

    services: Services
    options: SiteOptions
    templates: jinja2.Environment
    counts: "ListingCountCache"
    visitor_form_lock: asyncio.Lock
    sitemap_lock: asyncio.Lock
    exports: "Exports"
    sent_messages: "SentMessages"

    @property
    def path_prefix(self) -> str:
        """The path of the site's URL, such as /shop, or "". Requests, routes and templates have paths without it."""
        return self.services.about.path_prefix


def site_of(request: Request) -> Site:
    """Return the site of a request."""
    site: Site = request.app.state.site
    return site
