"""Test that no route takes much memory for clients that read nothing, and that none is forgotten."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from starlette.routing import Route as PageRoute

from listings.api.routes import ROUTES
from listings.http.byte_budget import ByteBudget
from listings.http.large_bodies import LargeBodies
from listings.site.app import build_pages
from listings.site.context import SiteOptions
from tests.harness import Harness, RunningService
from tests.torture.instruments.every_route import fetch
from tests.torture.route_data import Data, prepare
from tests.torture.routes import SMALL_BYTES, TABLE, UNKNOWN, WITH_SLASH, Route

pytestmark = [pytest.mark.slow, pytest.mark.uncovered]
CONSTANT = [route for route in TABLE if route.is_constant]
IN_PIECES = {"/console/export"}  # which take the room of a piece, and are limited in number
OTHERS = [route for route in TABLE if not route.is_constant and not route.needs and route.path not in IN_PIECES]


class Prepared(NamedTuple):
    """A running service with the data of the table."""

    service: RunningService
    data: Data

    def fetch(self, route: Route) -> tuple[int, int]:
        port = int(self.service.base_url.rpartition(":")[2])
        return fetch(port, route.build(self.data.list_values(route, many=False)[0]).encode())


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prepared]:
    folder = tmp_path_factory.mktemp("routes")
    data = asyncio.run(prepare(folder, 1, 1_000))
    with RunningService(folder, rate_limit="0") as service:
        yield Prepared(service, data)


def list_served(harness: Harness) -> set[tuple[str, str]]:
    """Return the method and the path of each route, except redirects to a path without a slash."""
    served = {(method, path) for path, methods in ROUTES.items() for method in methods}
    pages = build_pages(harness.services, SiteOptions(operator_page=True))._routes  # noqa: SLF001 - there is no list of them elsewhere
    return served | {(method, route.path) for route in pages for method in list_methods(route)}


def list_methods(route: PageRoute) -> set[str]:
    return set() if route.path != "/" and route.path.endswith("/") else (route.methods or set()) - {"HEAD"}


def test_the_table_has_every_route(tmp_path: Path) -> None:
    with Harness(tmp_path) as harness:
        served = list_served(harness)
    assert {(route.method, route.path) for route in TABLE if route.path not in {UNKNOWN, WITH_SLASH}} == served


@pytest.mark.as_written
def test_every_large_response_needs_room(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ByteBudget, "has_room", lambda *_: False)
    monkeypatch.setattr(LargeBodies, "has_room", lambda *_: True)
    fetched = {route.name: prepared.fetch(route) for route in OTHERS}
    assert {name: found for name, found in fetched.items() if found[1] >= SMALL_BYTES} == {}


@pytest.mark.as_written
def test_a_constant_response_needs_no_room(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ByteBudget, "has_room", lambda *_: False)
    statuses = {route.name: prepared.fetch(route)[0] for route in CONSTANT}
    assert {name: status for name, status in statuses.items() if status != 200} == {}
