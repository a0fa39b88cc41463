"""Searches of a large generated market find the same as a plain Python model, in the same order."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tantivy import Index

from listings.domain.market import IndexedListing
from listings.domain.model import MarketQuery
from listings.search import folders, results
from listings.search.folders import find_root
from listings.search.reader import View
from listings.search.results import MAX_RANKED, Search
from listings.search.schema import Position, price_key
from listings.search.writer import OpenIndex

COUNT, SELLERS = 20_000, 40
NOUNS = ("table", "chair", "guitar", "mirror", "clock", "vase", "candle", "basket", "saddle", "helmet", "violin")
ADJECTIVES = ["red", "blue", "old", "steel", "wooden", "folding", "small", "large", "brass", "vintage"]
TYPES = ("product", "product", "product", "rental", "service", "job")
CATEGORIES, REGIONS = ("Furniture", "Bicycles", "Music", ""), ("Otago", "Nelson", "")


def build_listing(number: int) -> IndexedListing:
    chance = random.Random(number)
    plural = chance.choice(("", "", "s"))
    return IndexedListing(
        sequence=number,
        serial=number,
        id=number * 1024,
        account_id=chance.randrange(1, SELLERS),
        is_shown=1,
        title=f"{chance.choice(ADJECTIVES)} {chance.choice(NOUNS)}{plural}",
        content=f"With a {chance.choice(ADJECTIVES)} {chance.choice(NOUNS)}.",
        type=chance.choice(TYPES),
        category=chance.choice(CATEGORIES),
        images=chance.choice(("[]", '["/1.jpg"]')),
        price_cents=chance.choice((0, 100, 100, 2_500, 99_999)),
        location="",
        region=chance.choice(REGIONS),
        district="",
        seller=f"Shop {chance.choice(NOUNS)}",
    )


LISTINGS = [build_listing(number) for number in range(1, COUNT + 1)]


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> Iterator[View]:
    root: Path = find_root(tmp_path_factory.mktemp("model") / "listings.db")
    index = OpenIndex(folders.create_folder(root), Position(0, 0, 0, 1))
    index.add(LISTINGS)
    index.commit(Position(COUNT, 0, 0, 1))
    yield View(Index.open(str(index.folder.path)).searcher(), is_complete=True, newest=COUNT)
    index.close()


def find_tier(listing: IndexedListing, words: list[str]) -> int | None:
    """Return the tier in which a listing matches: 1 title as typed, 2 stems, 5 description, 6 seller."""
    title, content = listing.title.split(), listing.content.rstrip(".").split()
    seller = set(listing.seller.lower().split())
    stems = [find_stem(word) for word in title]
    wanted = [find_stem(word) for word in words]
    if set(words) <= set(title):
        return 1
    if set(wanted) <= set(stems):
        return 2
    missing = [word for word, stem in zip(words, wanted, strict=True) if stem not in {*stems, *content}]
    return 5 if not missing else 6 if set(missing) <= seller else None


def find_stem(word: str) -> str:
    return word if word == "brass" else word.removesuffix("s")


def rank(listing: IndexedListing) -> tuple[int, bool, bool, int]:
    kind = {"product": 2, "rental": 2, "service": 1, "job": 0}[listing.type]
    return kind, listing.images != "[]", listing.price_cents > 0, listing.serial


def random_queries(count: int) -> Iterator[MarketQuery]:
    chance = random.Random(3)
    for _ in range(count):
        words = [chance.choice(ADJECTIVES), chance.choice(NOUNS) + chance.choice(("", "s"))]
        filters: dict[str, Any] = {
            name: chance.choice(values)
            for name, values in (("type", TYPES), ("region", REGIONS[:2]), ("category", CATEGORIES[:3]))
            if chance.random() < 0.3
        }
        if chance.random() < 0.3:
            filters |= {"price_min": 100, "price_max": 2_500}
        yield MarketQuery(text=" ".join(words[chance.randrange(2) :]), **filters)


def find_expected(query: MarketQuery) -> list[tuple[int, IndexedListing]]:
    found = []
    for listing in LISTINGS:
        tier = find_tier(listing, query.text.split())
        lowest, highest = query.price_min or 0, query.price_max or 10**9
        if (
            tier is not None
            and query.type in {None, listing.type}
            and query.region in {None, listing.region}
            and query.category in {None, listing.category}
            and lowest <= listing.price_cents <= highest
        ):
            found.append((tier, listing))
    return found


@pytest.mark.decision("G51")
@pytest.mark.parametrize("margin", [1, 10], ids=["narrow windows", "usual windows"])
def test_a_search_finds_the_same_as_the_model(view: View, margin: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "_MARGIN", margin)
    for query in random_queries(60):
        expected = find_expected(query)
        search = Search(view, query, ())
        assert search.count().total == len(expected), query
        serials = sorted((listing.serial for _, listing in expected), reverse=True)
        assert [hit.key for hit in search.page(None, 10**5)] == serials, query
        middle = serials[len(serials) // 2] if serials else 1
        assert [hit.key for hit in search.page(middle, 5)] == [it for it in serials if it < middle][:5], query
        before = [it for it in serials if it > middle][-5:][::-1]
        assert [hit.key for hit in search.page(middle, 5, is_backwards=True)] == before, query
        tiers = {listing.id: tier for tier, listing in expected}
        best = sorted(expected, key=lambda it: (-it[0], rank(it[1])), reverse=True)[:MAX_RANKED]
        ranked = search.rank()
        assert {hit.id for hit in ranked} == {listing.id for _, listing in best}, query
        assert [tiers[hit.id] for hit in ranked] == sorted(tiers[hit.id] for hit in ranked), query


def test_prices_are_in_order(view: View) -> None:
    ascending, descending = (MarketQuery(text="guitar", sort="price"), MarketQuery(text="guitar", sort="-price"))
    for query, is_ascending in ((ascending, True), (descending, False)):
        search = Search(view, query, ())
        keys = [price_key(it.price_cents, it.serial) for _, it in find_expected(MarketQuery(text="guitar"))]
        priced, unpriced = (
            [key for key in sorted(keys) if (key >> 26 > 0) == is_priced] for is_priced in (True, False)
        )
        expected = priced + unpriced if is_ascending else priced[::-1] + unpriced[::-1]
        assert [hit.key for hit in search.page(None, 10**5)] == expected
        assert [hit.key for hit in search.page(expected[500], 50)] == expected[501:551]
        assert [hit.key for hit in search.page(expected[500], 50, is_backwards=True)] == expected[450:500][::-1]
