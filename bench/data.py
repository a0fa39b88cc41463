"""Test data: 100 accounts with a key, 100 active and 20 inactive listings each."""

import asyncio
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from listings import maintenance, wiring
from listings.cli.demo import read_sellers
from listings.domain import api_keys, fields
from listings.domain.model import Caller, NewListing
from listings.search.folders import find_root
from listings.search.indexer import Indexer
from listings.service import Services
from listings.settings import load
from listings.store.store import Store

ACCOUNTS = 100
ACTIVE = 100
INACTIVE = 20

_YEAR = 365 * 24 * 3600
_DEMO = [listing for seller in read_sellers()[:3] for listing in seller.listings]
_INACTIVE_EVERY = (ACTIVE + INACTIVE) // INACTIVE


def store_of(services: Services) -> Store:
    """Return the store of a service, to write and search at its own speed."""
    return services._store  # noqa: SLF001 - in a service, only its use cases use the store


class Owner(NamedTuple):
    """An account's key and the ids of its active listings, oldest first."""

    key: str
    listings: tuple[int, ...]


class Data(NamedTuple):
    """A database, its accounts, and the number of its listings."""

    database: Path
    owners: tuple[Owner, ...]
    rows: int


def build_listing(number: int) -> Mapping[str, Any]:
    """Return the body of an account's nth listing: a demo listing with the descriptions of two to five others."""
    listing = _DEMO[number % len(_DEMO)]
    contents = [_DEMO[(number + step) % len(_DEMO)]["content"] for step in range(2 + number % 4)]
    return {**listing, "title": f"{listing['title']} ({number})", "content": " ".join(contents)}


def list_active_numbers() -> list[int]:
    """Return the numbers of an account's active listings, oldest first."""
    return [number for number in range(ACTIVE + INACTIVE) if number % _INACTIVE_EVERY]


def fill(database: Path) -> Data:
    """Create a database with the service's own use cases, and its search index."""
    owners = fill_url(f"sqlite:///{database}", database.parent, find_root(database))
    with database.open("rb") as file:
        os.fsync(file.fileno())
    return Data(database, owners, ACCOUNTS * (ACTIVE + INACTIVE))


async def build_index(store: Store, root: Path) -> None:
    """Build the search index of this machine."""
    indexer = Indexer(store, root)
    try:
        await indexer.update()
    finally:
        indexer.close()


def fill_url(address: str, folder: Path, index: Path | None = None) -> tuple[Owner, ...]:
    """Create the same data at the URL of any engine; `folder` is the data folder, `index` that of the search index."""
    settings = load({}, {"database": address, "data_folder": str(folder)})
    maintenance.migrate_database(settings)

    async def work() -> tuple[Owner, ...]:
        async with wiring.open_services(settings) as services:
            owners = tuple([await _create_owner(services, number) for number in range(ACCOUNTS)])
            # Otherwise the service would do it during the measurement.
            await services.market.stamp()
            if index is not None:
                await build_index(store_of(services), index)
            return owners

    return asyncio.run(work())


def add_expired_account(database: Path) -> str:
    """Add an account without listings and with an expired plan; return its key."""

    async def work() -> str:
        async with wiring.open_services(load({}, {"database": f"sqlite:///{database}"})) as services:
            end = int(services.clock()) + _YEAR
            account = await services.accounts.add("Expired", "expired@example.com", end)
            issued = await services.keys.add(account, "bench", api_keys.generate())
            await services.accounts.expire_plan(account.email)
            return issued.secret

    return asyncio.run(work())


async def _create_owner(services: Services, number: int) -> Owner:
    end = int(services.clock()) + _YEAR
    account = await services.accounts.add(f"Shop {number}", f"shop{number}@example.com", end)
    issued = await services.keys.add(account, "bench", api_keys.generate())
    caller = await services.access.authenticate(issued.secret)
    tasks = [_create(services, caller, number) for number in range(ACTIVE + INACTIVE)]
    ids = await asyncio.gather(*tasks)
    return Owner(issued.secret, tuple(ids[number] for number in list_active_numbers()))


async def _create(services: Services, caller: Caller, number: int) -> int:
    return (await services.listings.create(caller, _parse_listing(number))).listing_id


@cache
def _parse_listing(number: int) -> NewListing:
    """Return an account's nth listing, which is the same in all accounts."""
    listing = {**build_listing(number), "is_active": number % _INACTIVE_EVERY != 0}
    return fields.parse_new_listing(listing, strict=False)[0]  # the demo's pictures have no host
