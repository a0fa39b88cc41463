"""A database whose market was indexed before plurals and beginnings of words were, on either engine."""

from collections.abc import Sequence
from itertools import takewhile

from listings.contract.listings import AddStep
from listings.contract.store import Store
from listings.domain.model import MarketQuery, NewListing
from listings.store.migrations import Migration

FILL = """
INSERT INTO accounts (id, bucket, name, email, created_at) VALUES (1, 1, 'alice', 'alice@example.com', 1);
INSERT INTO account_state (bucket, account_id, revision, listings, current_listings) VALUES (1, 1, 2, 2, 2);
INSERT INTO listing_ids (bucket, last) VALUES (1, 2);
INSERT INTO listings (id, bucket, account_id, title, content, type, category, images, price_cents, price_type,
    location, region, district, is_active, created_at, updated_at, market_version)
VALUES
    (1025, 1, 1, 'Hawke''s bikes', 'c', 'product', 'B', '[]', 0, 'fixed', '', '', '', {true}, '2026-01-05', '2026', 1),
    (2049, 1, 1, 'Lamp', 'c', 'product', '', '[]', 0, 'fixed', '', '', '', {true}, '2025-01-01', '2026', 1);
INSERT INTO market_indexer (id, holder, until) VALUES (1, {bytes}, 0);
INSERT INTO market (serial, bucket, listing_id, account_id, state, title, type, category, image, price_cents,
    price_type, location, region, created_at, updated_at{words_column})
VALUES
    (1, 1, 1025, 1, 1, 'Hawke''s bikes', 'product', '', '', 0, 'fixed', '', '', '2026-01-05', '2026'{first_words}),
    (2, 1, 2049, 1, 1, 'Lamp', 'product', '', '', 0, 'fixed', '', '', '2025-01-01', '2026'{second_words});
"""


def migrations_before(shipped: Sequence[Migration]) -> list[Migration]:
    """Return the migrations before the one that changes the terms."""
    return list(takewhile(lambda migration: migration.name != "market_terms", shipped))


async def upgrade(store: Store) -> list[list[int]]:
    """Index a new listing, then all others again. Return what searches find before, in between and afterwards."""

    async def find(text: str) -> list[int]:
        return [entry.id for entry in await store.search_market(MarketQuery(text=text))]

    async def take_step() -> bool:
        return (await store.index_market(1, b"i" * 16, 1_800_000_000.0)).has_more

    await store.open()
    found = [await find("Hawke's"), await find("bikes")]
    await store.add_listing(1, 1, AddStep(NewListing(title="Bikes", content="c"), "2026-01-06 00:00:00"))
    await take_step()
    found += [await find("Hawke's"), await find("bikes"), await find("bike")]
    while await take_step():
        found.append(await find("bikes"))
    found += [await find("hawkes"), await find("bike"), await find("lam")]
    assert [it.id for it in await store.search_market(MarketQuery(category="b"))] == [1025]
    assert await store.find_spellings(["hwks"], 5) == [("hawkes", 1)]
    entries = await store.search_market(MarketQuery(sort="oldest"))
    assert [entry.listed_at[:10] for entry in entries] == ["2026-01-05", "2026-01-05", "2026-01-06"]
    await store.close()
    return found


FOUND = [
    *([1025], [1025]),
    *([1025], [3073, 1025], [3073]),
    *([[3073, 1025]] * 3),
    *([1025], [3073, 1025], [2049]),
]
