"""Client IP address, scheme and host of a request, also behind proxies."""

from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request

from listings.queues import FairQueue
from listings.settings import load
from listings.site import visitor
from listings.site.context import Brand, CostlyPages, ListingCountCache, SentMessages, Site, SiteOptions
from listings.site.pages import environment
from tests.harness import Harness
from tests.site.market import BROWSER_HEADERS, ParsedPage, create


def request(proxies: str = "", client: str = "10.0.0.1", base_url: str = "", **headers: str | list[str]) -> Request:
    settings = load({}, {"trusted_proxies": proxies, "base_url": base_url})
    application = Starlette()
    options = SiteOptions(settings.base_url, settings.trusted_proxies)
    service: Any = None  # is not used
    shared = ListingCountCache(), FairQueue(), FairQueue(), CostlyPages(), SentMessages(), OrderedDict[str, int]()
    application.state.site = Site(service, options, environment("", Brand()), *shared)
    header_list = [
        (name.replace("_", "-").encode(), value.encode("latin-1"))
        for name, values in headers.items()
        for value in ([values] if isinstance(values, str) else values)
    ]
    scope = {"type": "http", "app": application, "scheme": "http", "client": (client, 1), "headers": header_list}
    return Request(scope)


@pytest.mark.parametrize(
    ("proxies", "client", "forwarded", "address"),
    [
        ("", "10.0.0.1", "198.51.100.7", "10.0.0.1"),
        ("10.0.0.2", "10.0.0.1", "198.51.100.7", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.1", "198.51.100.7", "198.51.100.7"),
        ("10.0.0.0/8", "10.0.0.1", "203.0.113.9, 198.51.100.7, 10.0.0.2", "198.51.100.7"),
        ("10.0.0.0/8", "10.0.0.1", ["203.0.113.9", "198.51.100.7", "10.0.0.2"], "198.51.100.7"),
        ("10.0.0.0/8", "10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("10.0.0.0/8", "10.0.0.1", "198.51.100.7, unknown, 10.0.0.2", "10.0.0.2"),
        ("10.0.0.0/8", "10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.0/8", "10.0.0.1", "198.51.100.7:4711", "198.51.100.7"),
        ("10.0.0.0/8", "10.0.0.1", "[2001:DB8::7]:4711", "2001:db8::7"),
        ("10.0.0.0/8", "::ffff:10.0.0.1", "2001:db8::7", "2001:db8::7"),
        ("::1", "::1", "fe80::1%eth0", "fe80::1"),
        ("10.0.0.1", "10.0.0.1", "' OR 1=1 --", "10.0.0.1"),
    ],
)
def test_the_client_ip_is_the_last_untrusted_address(
    proxies: str, client: str, forwarded: str | list[str], address: str
) -> None:
    assert visitor.client_ip(request(proxies, client, x_forwarded_for=forwarded)) == address


def test_a_visitor_without_an_address_has_no_client_ip() -> None:
    without_client = request("10.0.0.1")
    without_client.scope["client"] = None
    assert visitor.client_ip(without_client) == ""


@pytest.mark.parametrize(
    ("proxies", "forwarded", "base_url", "scheme"),
    [
        ("", "https", "", "http"),
        ("10.0.0.1", "https", "", "https"),
        ("10.0.0.1", "http, HTTPS", "", "https"),
        ("10.0.0.1", "gopher", "", "http"),
        ("", "http", "https://market.example", "https"),
    ],
)
def test_a_trusted_proxy_determines_the_scheme(proxies: str, forwarded: str, base_url: str, scheme: str) -> None:
    assert visitor.scheme_of(request(proxies, base_url=base_url, x_forwarded_proto=forwarded)) == scheme


@pytest.mark.parametrize(
    ("host", "base_url"),
    [
        ("market.example:8080", "http://market.example:8080"),
        ("[::1]:8000", "http://[::1]:8000"),
        ('"><script>', "http://localhost"),
        ("a b", "http://localhost"),
        ("market.example/path", "http://localhost"),
        ("", "http://localhost"),
    ],
)
def test_an_invalid_host_is_replaced_by_localhost(host: str, base_url: str) -> None:
    assert visitor.base_url_of(request(host=host)) == base_url


def test_the_base_url_overrides_the_host_header(tmp_path: Path) -> None:
    with Harness(tmp_path, base_url="https://market.example") as harness:
        reply = harness.fetch("GET", "/", headers=BROWSER_HEADERS | {"Host": "elsewhere.example"})
        assert ParsedPage(reply.body.decode()).values("link", "href", rel="canonical") == ["https://market.example/"]
        assert reply.headers["strict-transport-security"] == "max-age=31536000"
        assert "strict-transport-security" not in harness.fetch("GET", "/healthz").headers


def test_visitors_behind_a_proxy_are_counted_separately(tmp_path: Path) -> None:
    with Harness(tmp_path, trusted_proxies="10.0.0.0/8") as harness:
        listing_id = create(harness, harness.person("alice"))
        for hop in ("198.51.100.7", "198.51.100.8", "198.51.100.8"):
            headers = BROWSER_HEADERS | {"X-Forwarded-For": hop}
            harness.fetch("GET", f"/listings/{listing_id}", headers=headers, client="10.0.0.1")
        harness.run(harness.services.market.write_views())
        assert harness.run(harness.services.market.get_listing(listing_id)).view_count == 2
