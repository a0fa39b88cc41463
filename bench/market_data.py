"""A market of many sellers to be searched: texts of words that are as rare or common as in a language."""

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from listings import wiring
from listings.contract.imports import ImportBatch, ImportKey, ImportProgress, ImportRow, Position
from listings.domain.model import Account, ImportedListing, Listing, NewListing, bucket_of
from listings.service import Service
from listings.settings import Settings

SELLERS = 1_200

_WORDS = 60_000
_WEIGHTS = list(accumulate(1 / (rank + 3) for rank in range(_WORDS)))
_OF_A_TEXT, _OF_A_TITLE = 60, 6
_SHARES = {"tenth": 0.1, "hundredth": 0.01, "thousandth": 0.001}
_TYPES = {"product": 90, "service": 8, "rental": 2, "job": 0.5}
_REGIONS, _CATEGORIES = 16, 40
_ROUND_PRICES = (0, 500, 1_000, 2_000, 5_000, 10_000, 99_900)
_OLD_PRICES = 77_000_000
_STAMP = "2026-11-21 10:00:00"
_OF_A_BATCH = 100
_AT_ONCE = 8  # sellers whose listings come in together


async def fill_empty(settings: Settings, count: int, tell: Callable[[str], None]) -> None:
    """Give a database without accounts so many listings, all of them in the market. `tell` hears how it goes.

    The settings have the site off, or listings would come into the market by and by, while others are made.
    """
    async with wiring.open_service(settings) as service:
        if await service.store.page_accounts(0, 1):
            return
        sellers = [await open_seller(service, number) for number in range(SELLERS)]
        for start in range(0, count, _AT_ONCE * _OF_A_BATCH):
            numbers = range(start, min(count, start + _AT_ONCE * _OF_A_BATCH))
            first = start // _OF_A_BATCH
            some = [sellers[(first + step) % SELLERS] for step in range(_AT_ONCE)]
            rows = [
                [ImportRow(None, partial(_row, number, count)) for number in numbers[step::_AT_ONCE]]
                for step in range(_AT_ONCE)
            ]
            await asyncio.gather(*(seller.add(its) for seller, its in zip(some, rows, strict=True)))
        tell(f"{count:,} listings are made: the market takes them in")
        while await service.index_market():
            pass


def listing(number: int, count: int) -> NewListing:
    """The nth of so many, the same whenever this is asked.

    Beside words of a language it has "even" or "odd", which never meet, as "early" and "late" don't; and perhaps
    "tenth" and the like, which one of so many listings has. The first eighth has prices of its own.
    """
    chance = random.Random(number)  # noqa: S311 - not a secret
    words = chance.choices(range(_WORDS), cum_weights=_WEIGHTS, k=_OF_A_TEXT)
    text = [f"word{rank}" for rank in words]
    text += [chance.choice(("even", "odd")), "early" if number < count // 2 else "late"]
    text += [word for word, share in _SHARES.items() if chance.random() < share]
    price = int(10 ** chance.uniform(2, 7)) if chance.random() < 0.5 else chance.choice(_ROUND_PRICES)  # noqa: PLR2004
    if number < count // 8:
        price = _OLD_PRICES + number
    return NewListing(
        title=" ".join(text[:_OF_A_TITLE]),
        content=" ".join(text[_OF_A_TITLE:]),
        type=chance.choices(list(_TYPES), list(_TYPES.values()))[0],
        category=f"Category {int(_CATEGORIES * chance.random() ** 2)}",
        region=f"Region {chance.randrange(_REGIONS)}",
        images='["https://pictures.example/a.jpg"]',
        location="Some street",
        price_cents=price,
    )


class Seller(NamedTuple):
    """An account, whose listings come in as an import's."""

    service: Service
    account: Account
    key: ImportKey

    async def add(self, rows: Sequence[ImportRow]) -> None:
        """Let those come in as one batch, behind what came before."""
        store = self.service.store
        found = await store.find_import(self.key) or ImportProgress(started_at=0)
        end = Position(found.offset + len(rows), found.line + len(rows))
        await store.import_listings(self.key, ImportBatch(found.position, end, rows))


async def open_seller(service: Service, number: int, plan_expires_at: int | None = None) -> Seller:
    """The nth account, ready to take listings in."""
    account = await service.add_account(f"Shop {number}", f"shop{number}@example.com", plan_expires_at)
    key = ImportKey(bucket_of(account.id), account.id, b"\0" * 32, "csv", new_ids=True)
    await service.store.begin_import(key, None, int(service.clock()), 0)
    return Seller(service, account, key)


def _row(number: int, count: int, _: Listing | None) -> ImportedListing:
    return ImportedListing(listing(number, count), 0, _STAMP, _STAMP, None)
