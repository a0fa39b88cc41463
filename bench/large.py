"""Measure ten million listings on SQLite, their import, the start and reads: `python -m bench.large`."""

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

from bench import BenchmarkError, data, machine, servers, wrk
from bench.command import log_progress, report_errors
from bench.data import store_of
from bench.http_client import Request, send
from bench.market_data import Seller, create_seller
from bench.rounds import WARM_UP_SECONDS, write_requests
from bench.scenarios import PATH
from listings import maintenance, wiring
from listings.domain import api_keys, fields
from listings.domain.imports import ImportRow
from listings.domain.model import ImportedListing, Listing
from listings.settings import load

SMALL_COUNT = 10_000
MAX_TIMED_ROWS = 1_000_000
"""The number of first rows over which the rate of the import is measured."""

_CONNECTIONS = 32
_LISTINGS_PER_ACCOUNT = 900  # an account with 1,000 listings has an index of its own
_MIN_ACCOUNTS = 100
_ACCOUNTS_WITH_KEY = 100  # spread over all accounts
_REQUESTS_PER_ACCOUNT = 100
_BATCH_SIZE, _CONCURRENT_ACCOUNTS = 100, 8  # as in imports of files
_STAMP = "2026-11-21 10:00:00"
_YEAR = 365 * 24 * 3600


class Database(NamedTuple):
    """A database file, requests for its listings, and the rows per second of the import."""

    file: Path
    requests: list[Request]
    rate: float


class Run(NamedTuple):
    """The seconds from the start to the first response, and the reads per second."""

    start: float
    rate: float


@click.command()
@click.option("--listings", "count", default=10_000_000, help="Number of listings. Default: 10000000")
@click.option("--rounds", type=click.IntRange(1, 100), default=5, help="Number of measurements. Default: 5")
@click.option("--seconds", type=click.IntRange(1, 600), default=5, help="Duration of a run. Default: 5")
@click.option("--folder", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Folder for test data.")
def main(*, count: int, rounds: int, seconds: int, folder: Path | None) -> None:
    """Compare a large database with one of 10,000 listings; each million takes about a gigabyte of disk.

    The market is off, because it would index the listings first.

    \b
    Example: python -m bench.large --listings 1000000 --rounds 2
    """  # noqa: D301 - `\b` is click's
    with report_errors(), tempfile.TemporaryDirectory(prefix="listings-bench-", dir=folder) as name:
        wrk.find_wrk()
        cores, work_folder = machine.choose_cores(), Path(name)
        small = asyncio.run(fill(work_folder / "small.db", SMALL_COUNT))
        large = asyncio.run(fill(work_folder / "large.db", count))
        runs: list[tuple[Run, Run]] = []
        for number in range(rounds):
            runs.append((_measure(small, cores, work_folder, seconds), _measure(large, cores, work_folder, seconds)))
            log_progress(
                f"round {number + 1}: {runs[-1][1].rate:,.0f} reads per second, small database {runs[-1][0].rate:,.0f}"
            )
        click.echo(summarize(count, large.rate, runs))


def summarize(count: int, imported: float, runs: Sequence[tuple[Run, Run]]) -> str:
    """Return a summary; each run measures the small and the large database."""
    fraction = median(large.rate / small.rate for small, large in runs)
    return (
        f"{count:,} listings were imported through the store: {imported:,.0f} rows per second"
        f" (target: at least 50,000).\n"
        f"Rate of reads relative to {SMALL_COUNT:,} listings: {fraction:.2f} (target: at least 0.85).\n"
        f"From the start to the first response: {median(large.start for _, large in runs):.2f} s (target: at most 0.5);"
        f" with {SMALL_COUNT:,} listings {median(small.start for small, _ in runs):.2f} s."
    )


async def fill(database: Path, count: int) -> Database:
    """Create a database of about this many listings, none of them in the market."""
    settings = load({}, {"database": f"sqlite:///{database}", "data_folder": str(database.parent), "site": "off"})
    maintenance.migrate_database(settings)
    async with wiring.open_services(settings) as services:
        accounts = max(_MIN_ACCOUNTS, count // _LISTINGS_PER_ACCOUNT)
        end = int(services.clock()) + _YEAR
        sellers = [await create_seller(services, number, end) for number in range(accounts)]
        rows, started, rate = 0, time.monotonic(), 0.0
        for first in range(0, accounts, _CONCURRENT_ACCOUNTS):
            some = sellers[first : first + _CONCURRENT_ACCOUNTS]
            await asyncio.gather(*(add_listings(seller, count // accounts) for seller in some))
            rows += len(some) * (count // accounts)
            if rows <= MAX_TIMED_ROWS or not rate:
                rate = rows / (time.monotonic() - started)
        log_progress(f"{rows:,} listings are imported, {rate:,.0f} per second")
        owners = sellers[:: max(1, accounts // _ACCOUNTS_WITH_KEY)]
        return Database(database, [request for owner in owners for request in await _requests(owner)], rate)


async def add_listings(seller: Seller, count: int) -> None:
    """Import this many active listings."""
    for start in range(0, count, _BATCH_SIZE):
        await seller.import_rows(_ROWS[: count - start])


async def _requests(owner: Seller) -> list[Request]:
    secret = (await owner.services.keys.add(owner.account, "bench", api_keys.generate())).secret
    found = await store_of(owner.services).page_listings(owner.key.bucket, owner.account.id, 0, _LISTINGS_PER_ACCOUNT)
    random_ = random.Random(owner.account.id)  # noqa: S311 - not a secret
    chosen = random_.sample(found, min(_REQUESTS_PER_ACCOUNT, len(found)))
    return [Request("GET", f"{PATH}/{listing.id}", secret) for listing in chosen]


def _measure(database: Database, cores: tuple[int, int], folder: Path, seconds: int) -> Run:
    requests = list(database.requests)
    random.Random(0).shuffle(requests)  # noqa: S311 - spread the requests over the file
    started = time.monotonic()
    with run_service(database.file, folder, cores[0]) as server:
        response = send(server.port, requests[0])
        start = time.monotonic() - started
        if response.status != 200 or response.json()["id"] != int(requests[0].path.rpartition("/")[2]):  # noqa: PLR2004
            raise BenchmarkError(f"A listing was requested, but the response is {response.head!r}")
        file = write_requests(requests, folder)
        wrk.run_wrk(server.port, file, _CONNECTIONS, WARM_UP_SECONDS, cores[1])
        return Run(start, wrk.run_wrk(server.port, file, _CONNECTIONS, seconds, cores[1]).rate)


@contextmanager
def run_service(database: Path, folder: Path, core: int) -> Iterator[servers.Server]:
    """Run the service on the file itself, because copying it would take too long."""
    environment = {
        "LISTINGS_DATABASE_URL": f"sqlite:///{database}",
        "LISTINGS_RATE_WINDOW": "1",
        "LISTINGS_SITE": "off",
        "LISTINGS_PORT": "0",
    }
    program = Path(sys.executable).with_name("listings")
    with servers.run_server([str(program), "serve"], environment, folder, core) as server:
        yield server


def _row(number: int) -> ImportRow:
    new, _ = fields.parse_new_listing(data.build_listing(number))
    listing = ImportedListing(new, view_count=0, created_at=_STAMP, updated_at=_STAMP, deleted_at=None)

    def decide(_: Listing | None) -> ImportedListing:
        return listing

    return ImportRow(None, decide)


_ROWS = [_row(number) for number in range(_BATCH_SIZE)]


if __name__ == "__main__":
    main()
