"""Searches in an account's listings, small and large, against a plain model of what is asked for."""

import asyncio
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from listings.contract.listings import Decide
from listings.contract.store import Store
from listings.domain import tokenizer
from listings.domain.model import SORTED_BY, Account, Listing, ListingChange, ListingQuery, NewListing, bucket_of
from listings.store import search_sql
from tests.conformance.conftest import Run

TYPES = ("product", "service", "rental", "job")
CATEGORIES = ("", "Furniture", "Bikes", "Bike parts")
REGIONS = ("Wellington", "Otago")
WORDS = ("bike", "bicycle", "Café", "straße", "table", "oak", "rimu", "42", "old-school", "O'Neill", "自転車")


class Stock(NamedTuple):
    """An account's listings, and a search in them."""

    listings: list[Listing]
    find: Callable[[ListingQuery], list[Listing]]


def text(chance: random.Random) -> str:
    return " ".join(chance.choices(WORDS, k=3))


def some_listing(chance: random.Random) -> NewListing:
    return NewListing(
        title=text(chance),
        content=text(chance),
        type=chance.choices(TYPES, weights=(90, 8, 2, 1))[0],
        category=chance.choice(CATEGORIES),
        region=chance.choice(REGIONS),
        price_cents=chance.choice((0, 100, 100, 2_500, 99_999)),
        is_active=chance.random() < 0.7,
    )


def day(chance: random.Random) -> str:
    return f"2026-11-{chance.randrange(1, 29):02} 10:00:00"


def all_of(run: Run, tasks: list[Any]) -> list[Any]:
    """At once, for the writer to commit in groups; never more than may wait."""

    async def gather() -> list[Any]:
        return [result for at in range(0, len(tasks), 500) for result in await asyncio.gather(*tasks[at : at + 500])]

    return list(run(gather()))


async def add(store: Store, account: Account, new: NewListing, chance: random.Random) -> int:
    return (await store.add_listing(bucket_of(account.id), account.id, new, day(chance))).listing_id


def shuffle(store: Store, listing_id: int, chance: random.Random) -> Any:
    """Edit a listing at some time, or delete it."""
    change: ListingChange = {"updated_at": day(chance), "title": text(chance)}
    if chance.random() < 0.2:
        change = {**change, "is_active": False, "deleted_at": 5}
    return store.change_listing(listing_id, lambda _: change)


@pytest.fixture(
    params=[(60, 0), (1_300, 0), (1_300, 3), (1_300, 20)], ids=["small", "large", "being indexed", "indexed"]
)
def stock(request: pytest.FixtureRequest, store: Store, run: Run) -> Stock:
    """A neighbour's listings in the same bucket are there too. By their number, and the steps of its index."""
    count, steps = request.param
    chance = random.Random(count)
    account = run(store.add_account("Alice", "alice@example.com", None, 1_000))
    owners = all_of(run, [store.add_account("N", f"n{number}@example.com", None, 1_000) for number in range(1024)])
    (neighbour,) = (owner for owner in owners if bucket_of(owner.id) == bucket_of(account.id))
    all_of(run, [add(store, neighbour, some_listing(chance), chance) for _ in range(20)])
    listings = _fill(store, run, account, (count, steps), chance)
    return Stock(listings, lambda query: _find(store, run, account, query))


def _fill(store: Store, run: Run, account: Account, counts: tuple[int, int], chance: random.Random) -> list[Listing]:
    """So many listings, a third of them edited after so many steps of the index."""
    count, steps = counts
    made = all_of(run, [add(store, account, some_listing(chance), chance) for _ in range(count)])
    for _ in range(steps):
        run(store.index_accounts(100))
    all_of(run, [shuffle(store, listing_id, chance) for listing_id in chance.sample(made, count // 3)])
    return [run(store.get_listing(listing_id)) for listing_id in made]


def _find(store: Store, run: Run, account: Account, query: ListingQuery) -> list[Listing]:
    found: list[Listing] = run(store.find_listings(bucket_of(account.id), account.id, query))
    return found


def expected(listings: list[Listing], query: ListingQuery) -> list[Listing]:
    """What a query means, said in the plainest way."""
    found = [listing for listing in listings if _is_asked_for(listing, query)]
    found.sort(key=query.place_of, reverse=query.descending)
    if query.after is not None:
        after = query.after
        found = [x for x in found if (query.place_of(x) < after if query.descending else query.place_of(x) > after)]
    return found[: query.limit]


def _is_asked_for(listing: Listing, query: ListingQuery) -> bool:
    status = "deleted" if listing.deleted_at is not None else "active" if listing.is_active else "inactive"
    present = tokenizer.tokenize(listing.title + " " + listing.content)
    return (
        query.status in {"all", status}
        and query.type in {None, listing.type}
        and query.category in {None, listing.category}
        and query.region in {None, listing.region}
        and (query.price_min is None or listing.price_cents >= query.price_min)
        and (query.price_max is None or listing.price_cents <= query.price_max)
        and (query.updated_since is None or listing.updated_at >= query.updated_since)
        and all(sought in present for sought in query.words)
    )


def some_queries(count: int) -> Iterator[ListingQuery]:
    chance = random.Random(7)

    def maybe(value: Any) -> Any:
        return value if chance.random() < 0.25 else None

    for _ in range(count):
        yield ListingQuery(
            status=chance.choice(("active", "inactive", "deleted", "all")),
            type=maybe(chance.choice(TYPES)),
            category=maybe(chance.choice(CATEGORIES)),
            region=maybe(chance.choice(REGIONS)),
            words=tuple(
                tokenizer.tokenize(
                    chance.choice(("bike", "cafe", "STRASSE", "bike table", "old school", "自転車", "zzz"))
                )
            )
            if chance.random() < 0.2
            else (),
            price_min=maybe(chance.choice((0, 100, 101))),
            price_max=maybe(chance.choice((100, 2_500))),
            updated_since=maybe(day(chance)),
            sort=chance.choice(tuple(SORTED_BY)),
            descending=chance.random() < 0.5,
            limit=chance.choice((None, 1, 7, 100)),
        )


def test_every_search_finds_what_it_asks_for_in_its_order(stock: Stock) -> None:
    for query in some_queries(400):
        assert stock.find(query) == expected(stock.listings, query), query


def test_pages_one_behind_the_other_are_the_whole(stock: Stock) -> None:
    for query in some_queries(60):
        whole = expected(stock.listings, msgspec.structs.replace(query, limit=None))
        limit = 9 if len(whole) < 100 else 90
        page = msgspec.structs.replace(query, limit=limit)
        found = stock.find(page)
        walked = list(found)
        while len(found) == limit:
            page = msgspec.structs.replace(page, after=query.place_of(found[-1]))
            found = stock.find(page)
            walked += found
        assert walked == whole, query


def test_a_changed_text_is_found_by_its_new_words_alone(store: Store, run: Run) -> None:
    account = run(store.add_account("Alice", "alice@example.com", None, 1_000))
    place = (bucket_of(account.id), account.id)
    bike, chance = NewListing(title="Bike", content="Red."), random.Random(1)
    ids = sorted(all_of(run, [add(store, account, bike, chance) for _ in range(1_002)]))
    run(store.change_listing(ids[0], lambda _: {"title": "Boat"}))
    run(store.change_listing(ids[1001], lambda _: {"content": "Green."}))

    def find(*sought: str) -> list[int]:
        return [listing.id for listing in run(store.find_listings(*place, ListingQuery(words=sought)))]

    assert find("boat") == [ids[0]]
    assert find("bike", "green") == [ids[1001]]
    assert len(find("bike")) == 1_001
    assert len(find("red")) == 1_001


LONG, SLICE = 1_000, 4_000  # characters of a text, bytes of a slice


def long_one(number: int, word: str) -> NewListing:
    content = " ".join(["Bär"] * (LONG // 4 - 10) + [word, "old" if number % 3 else "new"])
    return NewListing(title=f"Lamp {number}", content=content, price_cents=number)


@pytest.fixture
def long_ones(store: Store, run: Run, monkeypatch: pytest.MonkeyPatch) -> Stock:
    """Listings whose texts are long beside a slice, every other with the word oak, one of three with new."""
    account = run(store.add_account("Alice", "alice@example.com", None, 1_000))
    monkeypatch.setattr(search_sql, "SLICE_BYTES", SLICE)
    chance = random.Random(2)
    made = [long_one(number, "oak" if number % 2 else "oaken") for number in range(24)]
    ids = all_of(run, [add(store, account, new, chance) for new in made])
    listings = [run(store.get_listing(listing_id)) for listing_id in ids]
    return Stock(listings, lambda query: _find(store, run, account, query))


@pytest.mark.parametrize("limit", [None, 1, 5, 12])
@pytest.mark.parametrize("sort", SORTED_BY)
def test_long_texts_are_looked_through_in_slices_that_skip_and_repeat_nothing(
    long_ones: Stock, limit: int | None, sort: Any
) -> None:
    for sought in (("oak",), ("oak", "new"), ("bar",), ("ba",)):
        query = ListingQuery(words=sought, limit=limit, sort=sort)
        found = long_ones.find(query)
        assert found == expected(long_ones.listings, query), query
        if found:
            behind = msgspec.structs.replace(query, after=query.place_of(found[-1]), descending=False)
            assert long_ones.find(behind) == expected(long_ones.listings, behind), behind


def test_long_texts_keep_nobody_waiting_for_longer_than_a_slice(long_ones: Stock, store: Store, run: Run) -> None:
    place = place_of(long_ones)

    async def turns_of_the_loop() -> int:
        looking = asyncio.ensure_future(store.find_listings(*place, ListingQuery(words=("rimu",))))
        turns = 0
        while not looking.done():
            turns += 1
            await asyncio.sleep(0)
        return turns

    assert run(turns_of_the_loop()) >= 24 * LONG // SLICE


def test_what_changes_while_long_texts_are_looked_through_is_found_as_it_is_at_one_moment(
    long_ones: Stock, store: Store, run: Run
) -> None:
    query = ListingQuery(words=("oak",), sort="price")
    first, second = (long_ones.listings[number].id for number in (1, 3))
    listings = {listing.id: listing for listing in long_ones.listings}
    moments = [expected(long_ones.listings, query)]

    async def change_meanwhile() -> list[Listing]:
        looking = asyncio.ensure_future(store.find_listings(*place_of(long_ones), query))
        await asyncio.sleep(0)
        for listing_id, decide in ((first, becoming(price_cents=7_000)), (second, becoming(content="Pine."))):
            listings[listing_id] = await store.change_listing(listing_id, decide)
            moments.append(expected(list(listings.values()), query))
        return await looking

    assert run(change_meanwhile()) in moments


def becoming(**change: Any) -> Decide:
    return lambda _: cast("ListingChange", change)


def place_of(stock: Stock) -> tuple[int, int]:
    account_id = stock.listings[0].account_id
    return bucket_of(account_id), account_id


@settings(max_examples=300)
@given(st.text(), st.text())
def test_a_word_of_a_text_is_found_in_it(title: str, content: str) -> None:
    assert tokenizer.matches((title, content), tokenizer.tokenize(content))


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize(
    ("sort", "value", "is_last"),
    [
        ("title", 5, False),
        ("created_at", 2**63 - 1, True),
        ("title", "\0", False),
        ("title", "zzz\0a", True),
        ("price", "a\0", True),
        ("price", "a", True),
    ],
)
def test_a_place_of_another_type_is_before_or_behind_all(
    store: Store,
    run: Run,
    sort: Any,
    value: str | int,
    is_last: bool,  # noqa: FBT001 - behind all
    descending: bool,  # noqa: FBT001 - which way
) -> None:
    run(store.add_account("Alice", "alice@example.com", None, 1_000))
    run(store.add_listing(1, 1, NewListing(title="Lamp", content="c"), "2026-11-21 10:00:00"))
    found = run(store.find_listings(1, 1, ListingQuery(sort=sort, descending=descending, after=(value, 7))))
    assert len(found) == (descending == is_last)
    assert run(store.find_listings(1, 1, ListingQuery(category="\0"))) == []
