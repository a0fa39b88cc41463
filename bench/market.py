"""`python -m bench.market`: measure searches of a large market, in the store and as pages, and print a table."""

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

from bench import RejectedRequest, machine, market_data, servers
from bench.command import tell, telling
from listings import maintenance, wiring
from listings.domain.model import MarketEntry, MarketQuery
from listings.service import Service
from listings.settings import load
from listings.site.search import Search, read

_DEEP = 1_800  # listings before a deep page
_SEARCHES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "no search words": {},
        "a word without matches": {"q": "missing"},
        "a word in 300 listings": {"q": "word20000"},
        "a word in 0.1 % of listings": {"q": "thousandth"},
        "a word in 1 %": {"q": "hundredth"},
        "a word in nearly all": {"q": "word0"},
        "a word in the older half": {"q": "early"},
        "two common words": {"q": "word0 word1"},
        "the older half and 1 %": {"q": "early hundredth"},
        "two halves, never together": {"q": "even odd"},
        "the older and the newer half": {"q": "early late"},
        "five common words": {"q": "word0 word1 word2 word3 word4"},
        "five words in 10 % or fewer": {"q": "word10 word20 word30 word40 word50"},
        "the ten most common words": {"q": " ".join(f"word{rank}" for rank in range(10))},
        "a word and a type": {"q": "word0", "type": "job"},
        "a word and a category": {"q": "word0", "category": "Category 1"},
        "a word and a region": {"q": "word0", "region": "Region 3"},
        "a word and three filters": {"q": "word0", "type": "product", "category": "Category 30", "region": "Region 3"},
        "two halves, never together, and a type": {"q": "even odd", "type": "product"},
        "a region": {"region": "Region 3"},
        "a rare type and region": {"type": "job", "region": "Region 3"},
        "a wide price range": {"price_min": "10"},
        "a narrow price range": {"price_min": "19.99", "price_max": "20.01"},
        "a price range of old listings only": {"price_min": "770000", "price_max": "770600"},
        "a word and a price range": {"q": "word0", "price_min": "10", "price_max": "90"},
        "a rarer word and a price range": {"q": "hundredth", "price_min": "10", "price_max": "90"},
        "two halves, never together, and a price range": {"q": "even odd", "price_min": "10"},
    }
)
_PAGES = ("newest", "second page", "deep page", "price", "-price")


class Times(NamedTuple):
    """Milliseconds of one search: the store's and the page's median, what 95 of 100 pages took at most, and their work.

    The work is the processor time of the service and of its database's server, which other programs disturb less.
    """

    store: float
    page: float
    p95: float
    work: float

    def cell(self) -> str:
        """All of them, as they are shown."""
        return " / ".join(f"{it:.1f}" for it in self)


class Market(NamedTuple):
    """The database that is measured, and what is beside it."""

    address: str
    folder: Path
    listings: int
    beside: int | None


class Client:
    """One connection to the service, kept alive."""

    def __init__(self, port: int, processes: tuple[int, ...]) -> None:
        """`processes`: those that work for it, which have descendants."""
        self._connection = http.client.HTTPConnection("127.0.0.1", port)
        self._processes = processes

    def get(self, path: str) -> float:
        """The milliseconds from a request to the end of its answer. Raises Refusal for an answer that is not 200."""
        began = perf_counter()
        self._connection.request("GET", path)
        answer = self._connection.getresponse()
        answer.read()
        if answer.status != http.HTTPStatus.OK:
            raise RejectedRequest(f"The service answers {answer.status} to {path}")
        return (perf_counter() - began) * 1000

    def work(self) -> float:
        """The milliseconds that processors have worked for the service so far."""
        return 1000 * sum(machine.used_seconds(it) for process in self._processes for it in machine.family(process))


@click.command()
@click.option("--database", "address", help="Its address. Default: a new SQLite file, gone at the end.")
@click.option("--listings", "count", default=1_000_000, help="How many there are where it has none. Default: 1000000")
@click.option("--repeats", type=click.IntRange(2), default=30, help="How often each page is asked for. Default: 30")
@click.option(
    "--beside", type=int, help="The process of a PostgreSQL server on this machine, to count its work as well."
)
def main(*, address: str | None, count: int, repeats: int, beside: int | None) -> None:
    """Measure the home page of a market with many listings, search by search.

    A database without listings is filled first, which takes minutes. Each cell: milliseconds of the store, of the page
    (medians), of the 95th page in a hundred, and of the processor's work for a page.

    \b
    Example: python -m bench.market --listings 100000
    """  # noqa: D301 - click's
    with telling(), tempfile.TemporaryDirectory(prefix="listings-bench-") as name:
        folder = Path(name)
        chosen = address or f"sqlite:///{folder / 'market.db'}"
        asyncio.run(_measure(Market(chosen, folder, count, beside), repeats))


async def _measure(market: Market, repeats: int) -> None:
    address, folder, count, beside = market
    settings = load({}, {"database": address, "data_folder": str(folder), "site": "off"})
    maintenance.migrate_database(settings)
    await market_data.fill_empty(settings, count, tell)
    server_core, client_core = machine.two_cores()
    environment = {"LISTINGS_DATABASE_URL": address, "LISTINGS_DATA_FOLDER": str(folder), "LISTINGS_PORT": "0"}
    command = [str(Path(sys.executable).with_name("listings")), "serve"]
    async with wiring.open_service(settings) as service:
        with servers.started(command, environment, folder, server_core) as server, servers.pinned(client_core):
            client = Client(server.port, (server.process.pid, *([beside] if beside is not None else [])))
            click.echo(f"| Search | {' | '.join(_PAGES)} |\n| --- |{' ---: |' * len(_PAGES)}")
            for name, sought in _SEARCHES.items():
                cells = await _row(service, client, sought, repeats)
                click.echo(f"| {name} | {' | '.join(cells)} |")


async def _row(service: Service, client: Client, sought: Mapping[str, str], repeats: int) -> list[str]:
    newest = read(QueryParams(sought))
    first = await _find(service, newest, 25)
    many = await _find(service, newest, _DEEP)
    pages = [
        newest,
        newest._replace(after=first[-2].cursor) if len(first) == 25 else None,  # noqa: PLR2004 - one more than a page
        newest._replace(after=many[-1].cursor) if len(many) == _DEEP else None,
        newest._replace(sort="price"),
        newest._replace(sort="-price"),
    ]
    return [(await _times(service, client, page, repeats)).cell() if page is not None else "" for page in pages]


async def _find(service: Service, search: Search, limit: int) -> list[MarketEntry]:
    return await service.store.search_market(msgspec.structs.replace(_query(search), limit=limit))


def _query(search: Search) -> MarketQuery:
    return search.query()[0]


async def _times(service: Service, client: Client, search: Search, repeats: int) -> Times:
    """Of one page, the first time left out."""
    store = []
    for _ in range(repeats + 1):
        began = perf_counter()
        await service.search_market(_query(search))
        store.append((perf_counter() - began) * 1000)
    path = search.url(search.after)
    client.get(path)
    before = client.work()
    pages = [client.get(path) for _ in range(repeats)]
    work = (client.work() - before) / repeats
    return Times(median(store[1:]), median(pages), quantiles(pages, n=20)[-1], work)


if __name__ == "__main__":
    main()
