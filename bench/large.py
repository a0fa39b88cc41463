"""`python -m bench.large`: what ten million listings change: how they come in, the start, and a read. On SQLite."""

import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import click

from bench import RejectedRequest, data, machine, servers, wrk
from bench.command import tell, telling
from bench.exchange import Request, exchange
from bench.market_data import Seller, open_seller
from bench.rounds import WARM_UP_SECONDS, write_requests
from bench.scenarios import PATH
from listings import maintenance, wiring
from listings.contract.imports import ImportRow
from listings.domain import api_keys, fields
from listings.domain.model import ImportedListing, Listing
from listings.settings import load

FEW = 10_000
TIMED = 1_000_000
"""As many of the first rows as the import's rate is told of."""

_CONNECTIONS = 32
_OF_AN_ACCOUNT = 900  # listings: with a thousand of its own, an account's are indexed in more ways
_LEAST_ACCOUNTS = 100
_OWNERS = 100  # accounts with a key, from the first to the last one
_ASKED_FOR = 100  # listings of each of them
_OF_A_BATCH, _AT_ONCE = 100, 8  # as the import of files does, for so many accounts at a time
_STAMP = "2026-11-21 10:00:00"
_YEAR = 365 * 24 * 3600


class Stock(NamedTuple):
    """A database with listings, some requests for them, and how many rows a second came in."""

    database: Path
    requests: list[Request]
    rate: float


class Run(NamedTuple):
    """Seconds from the start to the first answer, and reads a second."""

    start: float
    rate: float


@click.command()
@click.option("--listings", "count", default=10_000_000, help="How many there are. Default: 10000000")
@click.option("--rounds", type=click.IntRange(1, 100), default=5, help="How often reads are measured. Default: 5")
@click.option("--seconds", type=click.IntRange(1, 600), default=5, help="How long a run lasts. Default: 5")
@click.option("--folder", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Where data is put.")
def main(*, count: int, rounds: int, seconds: int, folder: Path | None) -> None:
    """Compare a database of many listings with one of 10,000; it takes about a gigabyte for each million.

    The market is off, which would first take the listings in.

    \b
    Example: python -m bench.large --listings 1000000 --rounds 2
    """  # noqa: D301 - click's
    with telling(), tempfile.TemporaryDirectory(prefix="listings-bench-", dir=folder) as name:
        wrk.program()
        cores, place = machine.two_cores(), Path(name)
        few, many = (asyncio.run(fill(place / f"{number}.db", number)) for number in (FEW, count))
        runs: list[tuple[Run, Run]] = []
        for number in range(rounds):
            runs.append((_run(few, cores, place, seconds), _run(many, cores, place, seconds)))
            tell(f"round {number + 1}: {runs[-1][1].rate:,.0f} reads a second, of few {runs[-1][0].rate:,.0f}")
        click.echo(told(count, many.rate, runs))


def told(count: int, imported: float, runs: Sequence[tuple[Run, Run]]) -> str:
    """What was found: `runs` are of the few and of the many."""
    kept = median(many.rate / few.rate for few, many in runs)
    return (
        f"{count:,} listings came in through the store: {imported:,.0f} rows a second"
        f" (to be at least 50,000).\n"
        f"Reads with them as a part of those with {FEW:,}: {kept:.2f} (to be at least 0.85).\n"
        f"From the start to the first answer: {median(many.start for _, many in runs):.2f} s (to be at most 0.5);"
        f" with {FEW:,} {median(few.start for few, _ in runs):.2f} s."
    )


async def fill(database: Path, count: int) -> Stock:
    """A database of about so many listings, none of them in the market."""
    settings = load({}, {"database": f"sqlite:///{database}", "data_folder": str(database.parent), "site": "off"})
    maintenance.migrate_database(settings)
    async with wiring.open_service(settings) as service:
        accounts = max(_LEAST_ACCOUNTS, count // _OF_AN_ACCOUNT)
        end = int(service.clock()) + _YEAR
        sellers = [await open_seller(service, number, end) for number in range(accounts)]
        rows, began, rate = 0, time.monotonic(), 0.0
        for first in range(0, accounts, _AT_ONCE):
            some = sellers[first : first + _AT_ONCE]
            await asyncio.gather(*(_add(seller, count // accounts) for seller in some))
            rows += len(some) * (count // accounts)
            if rows <= TIMED or not rate:
                rate = rows / (time.monotonic() - began)
        tell(f"{rows:,} listings are made, {rate:,.0f} a second")
        owners = sellers[:: max(1, accounts // _OWNERS)]
        return Stock(database, [request for owner in owners for request in await _requests(owner)], rate)


async def _add(seller: Seller, count: int) -> None:
    for start in range(0, count, _OF_A_BATCH):
        await seller.add(_ROWS[: count - start])


async def _requests(owner: Seller) -> list[Request]:
    secret = (await owner.service.add_key(owner.account, "bench", api_keys.generate())).secret
    found = await owner.service.store.list_listings(owner.key.bucket, owner.account.id)
    chance = random.Random(owner.account.id)  # noqa: S311 - not a secret
    asked_for = chance.sample(found, min(_ASKED_FOR, len(found)))
    return [Request("GET", f"{PATH}/{listing.id}", secret) for listing in asked_for]


def _run(stock: Stock, cores: tuple[int, int], folder: Path, seconds: int) -> Run:
    requests = list(stock.requests)
    random.Random(0).shuffle(requests)  # noqa: S311 - so that none is near the one before
    began = time.monotonic()
    with _served(stock.database, folder, cores[0]) as server:
        answer = exchange(server.port, requests[0])
        start = time.monotonic() - began
        if answer.status != 200 or answer.json()["id"] != int(requests[0].path.rpartition("/")[2]):  # noqa: PLR2004
            raise RejectedRequest(f"A listing is answered by {answer.head!r}")
        file = write_requests(requests, folder)
        wrk.drive(server.port, file, _CONNECTIONS, WARM_UP_SECONDS, cores[1])
        return Run(start, wrk.drive(server.port, file, _CONNECTIONS, seconds, cores[1]).rate)


@contextmanager
def _served(database: Path, folder: Path, core: int) -> Iterator[servers.Server]:
    """In place, since copying would take longer than all the rest."""
    environment = {
        "LISTINGS_DATABASE_URL": f"sqlite:///{database}",
        "LISTINGS_RATE_WINDOW": "1",
        "LISTINGS_SITE": "off",
        "LISTINGS_PORT": "0",
    }
    program = Path(sys.executable).with_name("listings")
    with servers.started([str(program), "serve"], environment, folder, core) as server:
        yield server


def _row(number: int) -> ImportRow:
    new, _ = fields.parse_new_listing(data.content_of(number))
    listing = ImportedListing(new, view_count=0, created_at=_STAMP, updated_at=_STAMP, deleted_at=None)

    def decide(_: Listing | None) -> ImportedListing:
        return listing

    return ImportRow(None, decide)


_ROWS = [_row(number) for number in range(_OF_A_BATCH)]


if __name__ == "__main__":
    main()
