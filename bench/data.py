"""What the service is filled with: 100 accounts with a key, 100 active and 20 inactive listings each."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from listings import maintenance, wiring
from listings.cli.demo_listings import ALICE, BOB, CHARLIE
from listings.domain import api_keys, fields
from listings.domain.model import Caller
from listings.service import Service
from listings.settings import load

ACCOUNTS = 100
ACTIVE = 100
INACTIVE = 20

_YEAR = 365 * 24 * 3600
_DEMO = (*ALICE, *BOB, *CHARLIE)
_INACTIVE_EVERY = (ACTIVE + INACTIVE) // INACTIVE


class Owner(NamedTuple):
    """An account: its key, and its active listings' ids, oldest first."""

    key: str
    listings: tuple[int, ...]


class Data(NamedTuple):
    """A database and who owns what in it."""

    database: Path
    owners: tuple[Owner, ...]
    rows: int


def content_of(number: int) -> Mapping[str, Any]:
    """The body of the nth listing of an account: one of the demo's, described in two to five texts of theirs."""
    listing = _DEMO[number % len(_DEMO)]
    texts = [_DEMO[(number + step) % len(_DEMO)]["content"] for step in range(2 + number % 4)]
    return {**listing, "title": f"{listing['title']} ({number})", "content": " ".join(texts)}


def active_numbers() -> list[int]:
    """Which of an account's listings are active, oldest first."""
    return [number for number in range(ACTIVE + INACTIVE) if number % _INACTIVE_EVERY]


def fill(database: Path) -> Data:
    """Make a database through the service's own use cases."""
    owners = fill_at(f"sqlite:///{database}", database.parent)
    with database.open("rb") as file:
        os.fsync(file.fileno())
    return Data(database, owners, ACCOUNTS * (ACTIVE + INACTIVE))


def fill_at(address: str, folder: Path) -> tuple[Owner, ...]:
    """The same at the address of a database of any engine; `folder`: for what is beside it."""
    settings = load({}, {"database": address, "data_folder": str(folder)})
    maintenance.migrate_database(settings)

    async def work() -> tuple[Owner, ...]:
        async with wiring.open_service(settings) as service:
            owners = tuple([await _make_owner(service, number) for number in range(ACCOUNTS)])
            await service.index_market()  # or the service would catch up while it is measured
            return owners

    return asyncio.run(work())


def add_expired(database: Path) -> str:
    """Add an account without listings whose plan has expired; returns its key."""

    async def work() -> str:
        async with wiring.open_service(load({}, {"database": f"sqlite:///{database}"})) as service:
            end = int(service.clock()) + _YEAR
            account = await service.add_account("Expired", "expired@example.com", end)
            issued = await service.add_key(account, "bench", api_keys.generate())
            await service.expire_plan(account.email)
            return issued.secret

    return asyncio.run(work())


async def _make_owner(service: Service, number: int) -> Owner:
    end = int(service.clock()) + _YEAR
    account = await service.add_account(f"Shop {number}", f"shop{number}@example.com", end)
    issued = await service.add_key(account, "bench", api_keys.generate())
    caller = await service.authenticate(issued.secret)
    tasks = [_create(service, caller, number) for number in range(ACTIVE + INACTIVE)]
    ids = await asyncio.gather(*tasks)
    return Owner(issued.secret, tuple(ids[number] for number in active_numbers()))


async def _create(service: Service, caller: Caller, number: int) -> int:
    new, _ = fields.parse_new_listing({**content_of(number), "is_active": number % _INACTIVE_EVERY != 0}, strict=True)
    return (await service.create_listing(caller, new)).listing_id
