"""A market of many sellers for searches; the words are as rare or common as in a natural language."""

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from time import process_time
from typing import NamedTuple

from bench.data import build_index, store_of
from listings import wiring
from listings.domain.imports import ImportBatch, ImportKey, ImportProgress, ImportRow, Position
from listings.domain.model import Account, ImportedListing, Listing, NewListing, bucket_of
from listings.search.folders import find_root
from listings.service import Services
from listings.settings import Settings

SELLERS = 1_200

_WORDS = 60_000
_WEIGHTS = list(accumulate(1 / (rank + 3) for rank in range(_WORDS)))
_WORDS_PER_TEXT, _WORDS_PER_TITLE = 60, 6
_WORD_FREQUENCIES = {"tenth": 0.1, "hundredth": 0.01, "thousandth": 0.001}
_TYPES = {"product": 90, "service": 8, "rental": 2, "job": 0.5}
_REGIONS, _CATEGORIES = 16, 40
_ROUND_PRICES = (0, 500, 1_000, 2_000, 5_000, 10_000, 99_900)
_OLD_PRICES = 77_000_000
_STAMP = "2026-11-21 10:00:00"
_BATCH_SIZE = 100
_CONCURRENT_SELLERS = 8


async def fill_if_empty(settings: Settings, count: int, log_progress: Callable[[str], None]) -> None:
    """Create this many active listings if the database has no accounts.

    The site must be off in the settings, or the service would index the market during the import.
    """
    async with wiring.open_services(settings) as services:
        if await store_of(services).page_accounts(0, 1):
            return
        sellers = [await create_seller(services, number) for number in range(SELLERS)]
        for start in range(0, count, _CONCURRENT_SELLERS * _BATCH_SIZE):
            numbers = range(start, min(count, start + _CONCURRENT_SELLERS * _BATCH_SIZE))
            first = start // _BATCH_SIZE
            some = [sellers[(first + step) % SELLERS] for step in range(_CONCURRENT_SELLERS)]
            rows = [
                [ImportRow(None, partial(_row, number, count)) for number in numbers[step::_CONCURRENT_SELLERS]]
                for step in range(_CONCURRENT_SELLERS)
            ]
            await asyncio.gather(*(seller.import_rows(batch) for seller, batch in zip(some, rows, strict=True)))
        log_progress(f"{count:,} listings are imported; numbering and indexing them")
        while await services.market.stamp():
            pass
        await _build_index(services, find_root(settings.file), log_progress)


async def _build_index(services: Services, root: Path, log_progress: Callable[[str], None]) -> None:
    began = process_time()
    await build_index(store_of(services), root)
    log_progress(f"The index took {process_time() - began:.1f} s of processor time and has {_measure(root):,} bytes")


def _measure(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*"))


def name_word(rank: int) -> str:
    """Return the word with this rank by frequency. No other word begins with it."""
    letters = ""
    while rank or not letters:
        rank, letter = divmod(rank, 20)
        letters = "bcdfghjklmnpqrstvwxz"[letter] + letters
    return f"{letters}a"


def build_listing(number: int, count: int) -> NewListing:
    """Build the nth of `count` listings, the same each time.

    Besides random words, it has "even" or "odd", and "early" or "late", which never occur together. Words such as
    "tenth" occur with that frequency. The first eighth has prices of its own.
    """
    random_ = random.Random(number)  # noqa: S311 - not a secret
    words = random_.choices(range(_WORDS), cum_weights=_WEIGHTS, k=_WORDS_PER_TEXT)
    text = [name_word(rank) for rank in words]
    text += [random_.choice(("even", "odd")), "early" if number < count // 2 else "late"]
    text += [word for word, share in _WORD_FREQUENCIES.items() if random_.random() < share]
    price = int(10 ** random_.uniform(2, 7)) if random_.random() < 0.5 else random_.choice(_ROUND_PRICES)  # noqa: PLR2004
    if number < count // 8:
        price = _OLD_PRICES + number
    return NewListing(
        title=" ".join(text[:_WORDS_PER_TITLE]),
        content=" ".join(text[_WORDS_PER_TITLE:]),
        type=random_.choices(list(_TYPES), list(_TYPES.values()))[0],
        category=f"Category {int(_CATEGORIES * random_.random() ** 2)}",
        region=f"Region {random_.randrange(_REGIONS)}",
        images='["https://pictures.example/a.jpg"]',
        location="Some street",
        price_cents=price,
    )


class Seller(NamedTuple):
    """An account whose listings are imported."""

    services: Services
    account: Account
    key: ImportKey

    async def import_rows(self, rows: Sequence[ImportRow]) -> None:
        """Import the rows as the next batch."""
        store = store_of(self.services)
        progress = await store.find_import(self.key) or ImportProgress(started_at=0)
        end = Position(progress.offset + len(rows), progress.line + len(rows))
        await store.import_listings(self.key, ImportBatch(progress.position, end, rows))


async def create_seller(services: Services, number: int, plan_expires_at: int | None = None) -> Seller:
    """Create the nth account, and begin its import."""
    account = await services.accounts.add(f"Shop {number}", f"shop{number}@example.com", plan_expires_at)
    key = ImportKey(bucket_of(account.id), account.id, b"\0" * 32, "csv", new_ids=True)
    await store_of(services).begin_import(key, None, int(services.clock()), 0)
    return Seller(services, account, key)


def _row(number: int, count: int, _: Listing | None) -> ImportedListing:
    return ImportedListing(build_listing(number, count), 0, _STAMP, _STAMP, None)
