"""Measure searches of a large market, in the store and as pages, and print a table: `python -m bench.market`."""

import asyncio
import http.client
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from types import MappingProxyType
from typing import NamedTuple

import click
import msgspec
from starlette.datastructures import QueryParams

from bench import BenchmarkError, machine, market_data, servers
from bench.command import log_progress, report_errors
from listings import maintenance, wiring
from listings.domain.model import MarketEntry, MarketQuery
from listings.service import Services
from listings.settings import load
from listings.site.search import Search, read

_LISTINGS_BEFORE_DEEP_PAGE = 1_800


def _join(*ranks: int) -> str:
    return " ".join(map(market_data.name_word, ranks))


_SEARCHES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "no search words": {"sort": "newest"},
        "the beginning of a word": {"q": "hund"},
        "the beginnings of two words": {"q": "hund thous"},
        "a misspelt word": {"q": "hundreth"},
        "a word without matches": {"q": "missing"},
        "a word in 300 listings": {"q": market_data.name_word(20000)},
        "a word in 0.1% of listings": {"q": "thousandth"},
        "a word in 1%": {"q": "hundredth"},
        "a word in most": {"q": market_data.name_word(0)},
        "a word in the older half": {"q": "early"},
        "two common words": {"q": _join(0, 1)},
        "the older half and 1%": {"q": "early hundredth"},
        "two halves, never together": {"q": "even odd"},
        "the older and the newer half": {"q": "early late"},
        "five common words": {"q": _join(0, 1, 2, 3, 4)},
        "five words in 10 to 36%": {"q": _join(10, 20, 30, 40, 50)},
        "the ten most common words": {"q": _join(*range(10))},
        "a word and a type": {"q": market_data.name_word(0), "type": "job"},
        "a word and a category": {"q": market_data.name_word(0), "category": "Category 1"},
        "a word and a region": {"q": market_data.name_word(0), "region": "Region 3"},
        "a word and three filters": {
            "q": market_data.name_word(0),
            "type": "product",
            "category": "Category 30",
            "region": "Region 3",
        },
        "two halves, never together, and a type": {"q": "even odd", "type": "product"},
        "a region": {"region": "Region 3"},
        "a rare type and region": {"type": "job", "region": "Region 3"},
        "a wide price range": {"price_min": "10"},
        "a narrow price range": {"price_min": "19.99", "price_max": "20.01"},
        "a price range of old listings only": {"price_min": "770000", "price_max": "770600"},
        "a word and a price range": {"q": market_data.name_word(0), "price_min": "10", "price_max": "90"},
        "a rarer word and a price range": {"q": "hundredth", "price_min": "10", "price_max": "90"},
        "two halves, never together, and a price range": {"q": "even odd", "price_min": "10"},
    }
)
_PAGES = ("best", "second newest page", "deep page", "price", "-price")


class Times(NamedTuple):
    """Milliseconds of one search: medians of the store and of the page, the page's 95th percentile, and processor time.

    The processor time is that of the service and its database server; other programs affect it less.
    """

    store: float
    page: float
    p95: float
    processor: float

    def cell(self) -> str:
        """Format the values as a table cell."""
        return " / ".join(f"{it:.1f}" for it in self)


class Market(NamedTuple):
    """The database to measure, its folder and size, and the process of its server."""

    url: str
    folder: Path
    listings: int
    database_pid: int | None


class Client:
    """A persistent connection to the service."""

    def __init__(self, port: int, processes: tuple[int, ...]) -> None:
        """`processes` are those of the service and its database; their descendants count as well."""
        self._connection = http.client.HTTPConnection("127.0.0.1", port)
        self._processes = processes

    def get(self, path: str) -> float:
        """Return the milliseconds of a request. Raise BenchmarkError if the status is not 200."""
        began = perf_counter()
        self._connection.request("GET", path)
        response = self._connection.getresponse()
        response.read()
        if response.status != http.HTTPStatus.OK:
            raise BenchmarkError(f"{path} returned {response.status}")
        return (perf_counter() - began) * 1000

    def processor(self) -> float:
        """Return the processor time of the service so far, in milliseconds."""
        return 1000 * sum(
            machine.get_processor_seconds(it) for process in self._processes for it in machine.list_processes(process)
        )


@click.command()
@click.option("--database", "url", help="URL of the database. Default: a temporary SQLite file")
@click.option("--listings", "count", default=1_000_000, help="Listings to create if it is empty. Default: 1000000")
@click.option("--repeats", type=click.IntRange(2), default=30, help="Number of requests per page. Default: 30")
@click.option("--database-pid", type=int, help="Process id of a local PostgreSQL server, to count its processor time.")
def main(*, url: str | None, count: int, repeats: int, database_pid: int | None) -> None:
    """Measure the home page of a market with many listings, search by search.

    A database without listings is filled first, which takes minutes. Each cell: milliseconds of the store, of the page
    (medians), of the 95th percentile of the page, and processor time per page.

    \b
    Example: python -m bench.market --listings 100000
    """  # noqa: D301 - `\b` is click's
    with report_errors(), tempfile.TemporaryDirectory(prefix="listings-bench-") as name:
        folder = Path(name)
        url = url or f"sqlite:///{folder / 'market.db'}"
        asyncio.run(_measure(Market(url, folder, count, database_pid), repeats))


async def _measure(market: Market, repeats: int) -> None:
    url, folder, count, database_pid = market
    settings = load({}, {"database": url, "data_folder": str(folder), "site": "off"})
    maintenance.migrate_database(settings)
    await market_data.fill_if_empty(settings, count, log_progress)
    server_core, client_core = machine.choose_cores()
    environment = {"LISTINGS_DATABASE_URL": url, "LISTINGS_DATA_FOLDER": str(folder), "LISTINGS_PORT": "0"}
    command = [str(Path(sys.executable).with_name("listings")), "serve"]
    async with wiring.open_services(settings) as services:
        with servers.run_server(command, environment, folder, server_core) as server, servers.pinned(client_core):
            client = Client(server.port, (server.process.pid, *([database_pid] if database_pid is not None else [])))
            click.echo(f"| Search | {' | '.join(_PAGES)} |\n| --- |{' ---: |' * len(_PAGES)}")
            for name, parameters in _SEARCHES.items():
                cells = await _measure_row(services, client, parameters, repeats)
                click.echo(f"| {name} | {' | '.join(cells)} |")


async def _measure_row(services: Services, client: Client, parameters: Mapping[str, str], repeats: int) -> list[str]:
    newest = read(QueryParams({"sort": "newest", **parameters}), "")
    first = await _find_entries(services, newest, 25)
    deep = await _find_entries(services, newest, _LISTINGS_BEFORE_DEEP_PAGE)
    pages = [
        newest._replace(sort="best" if newest.q else "newest"),
        newest._replace(after=(*first[-2].cursor, "")) if len(first) == 25 else None,  # noqa: PLR2004 - one more than a page
        newest._replace(after=(*deep[-1].cursor, "")) if len(deep) == _LISTINGS_BEFORE_DEEP_PAGE else None,
        newest._replace(sort="price"),
        newest._replace(sort="-price"),
    ]
    return [(await _measure_page(services, client, page, repeats)).cell() if page is not None else "" for page in pages]


async def _find_entries(services: Services, search: Search, limit: int) -> list[MarketEntry]:
    query = msgspec.structs.replace(_build_query(search), limit=limit)
    return (await services.market.find(query)).page.entries


def _build_query(search: Search) -> MarketQuery:
    return search.query()[0]


async def _measure_page(services: Services, client: Client, search: Search, repeats: int) -> Times:
    """Measure one page; the first request is not counted."""
    store = []
    for _ in range(repeats + 1):
        began = perf_counter()
        await services.market.find(_build_query(search))
        store.append((perf_counter() - began) * 1000)
    path = search.url()
    client.get(path)
    before = client.processor()
    pages = [client.get(path) for _ in range(repeats)]
    processor = (client.processor() - before) / repeats
    return Times(median(store[1:]), median(pages), quantiles(pages, n=20)[-1], processor)


if __name__ == "__main__":
    main()
