"""Searches of small and large accounts, compared with a simple model of the query."""

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from itertools import product
from typing import Any, NamedTuple, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from listings.domain import market, tokenizer
from listings.domain.errors import Unavailable
from listings.domain.listings import AddStep, Decide, LargeListError, ListResult
from listings.domain.model import SORTED_BY, Account, Listing, ListingChange, ListingQuery, NewListing, bucket_of
from listings.queues import FairQueue
from listings.service.listings import find_of_any_size
from listings.store import search_sql
from listings.store.query import Command
from listings.store.sqlite import snapshot_reads
from listings.store.store import Store
from tests.contract.conftest import ENGINES, Run, open_store
from tests.contract.helpers import find_all, search_all

TYPES = ("product", "service", "rental", "job")
CATEGORIES = ("", "Furniture", "Bikes", "Bike parts")
REGIONS = ("Wellington", "Otago")
_MIN_READS = 30  # during the writes
WORDS = ("bike", "Bicycle", "Café", "straße", "table", "Ōtaki", "oak", "rimu", "42", "9", "O'Neill", "自転車", "😀")


class Stock(NamedTuple):
    listings: list[Listing]
    search: Callable[[ListingQuery], ListResult]

    def find(self, query: ListingQuery) -> list[Listing]:
        return self.search(query).listings


def random_text(chance: random.Random) -> str:
    return " ".join(chance.choices(WORDS, k=3))


def random_listing(chance: random.Random) -> NewListing:
    return NewListing(
        title=random_text(chance),
        content=random_text(chance),
        type=chance.choices(TYPES, weights=(90, 8, 2, 1))[0],
        category=chance.choice(CATEGORIES),
        region=chance.choice(REGIONS),
        price_cents=chance.choice((0, 100, 100, 2_500, 99_999)),
        images=chance.choice(("[]", '["https://images.example/1.jpg"]')),
        is_active=chance.random() < 0.7,
    )


def random_timestamp(chance: random.Random) -> str:
    return f"2026-11-{chance.randrange(1, 29):02} 10:00:00"


def run_all(run: Run, tasks: list[Any]) -> list[Any]:
    """Run tasks concurrently, so that the writer commits them in batches, but never more than its queue holds."""

    async def gather() -> list[Any]:
        return [
            result
            for start in range(0, len(tasks), 500)
            for result in await asyncio.gather(*tasks[start : start + 500])
        ]

    return list(run(gather()))


async def add(store: Store, account: Account, new: NewListing, chance: random.Random) -> int:
    return (
        await store.add_listing(bucket_of(account.id), account.id, AddStep(new, random_timestamp(chance)))
    ).listing_id


def edit_randomly(store: Store, listing_id: int, chance: random.Random) -> Any:
    change: ListingChange = {"updated_at": random_timestamp(chance), "title": random_text(chance)}
    if chance.random() < 0.2:
        change = {**change, "is_active": False, "deleted_at": -1}
    return store.change_listing(listing_id, lambda _: change)


STATES = {"small": (60, 0), "large": (1_100, 0), "being indexed": (1_100, 3), "indexed": (1_100, 20)}
"""The number of listings and of index steps. Only SQLite indexes in steps."""
CASES = [(engine, state) for engine in ENGINES for state in STATES if engine == "sqlite" or not STATES[state][1]]


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def stock(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stock]:
    """An account in one of the states. Another account in the bucket has listings too."""
    engine, state = request.param
    chance = random.Random(STATES[state][0])
    with asyncio.Runner() as runner, open_store(request, engine, tmp_path_factory.mktemp("stock"), runner.run) as store:
        run: Run = runner.run
        account = run(store.add_account("Alice", "alice@example.com", None, 1_000))
        tasks = [store.add_account("N", f"n{number}@example.com", None, 1_000) for number in range(1024)]
        owners = run_all(run, tasks)
        (neighbour,) = (owner for owner in owners if bucket_of(owner.id) == bucket_of(account.id))
        run_all(run, [add(store, neighbour, random_listing(chance), chance) for _ in range(20)])
        listings = _fill(store, run, account, STATES[state], chance)
        yield Stock(listings, lambda query: _search(store, run, account, query))


def _fill(store: Store, run: Run, account: Account, counts: tuple[int, int], chance: random.Random) -> list[Listing]:
    """Create listings, run some index steps, edit a third of the listings, and view half of them in 2052."""
    count, steps = counts
    ids = run_all(run, [add(store, account, random_listing(chance), chance) for _ in range(count)])
    for _ in range(steps):
        run(store.index_accounts(100))
    run_all(run, [edit_randomly(store, listing_id, chance) for listing_id in chance.sample(ids, count // 3)])
    run(store.record_views(30_000, {listing_id: [b"1" * 16] for listing_id in chance.sample(ids, count // 2)}))
    return run_all(run, [store.get_listing(listing_id) for listing_id in ids])


def _search(store: Store, run: Run, account: Account, query: ListingQuery) -> ListResult:
    """Search in pieces and, unless the result is too large, at once."""
    found: ListResult = run(search_all(store, account.id, query))
    with suppress(LargeListError):
        assert run(store.find_listings(bucket_of(account.id), account.id, query))[:2] == found[:2]
    return found


def find_expected(listings: list[Listing], query: ListingQuery) -> list[Listing]:
    """Return what a query finds, as a simple model of it."""
    found = [listing for listing in listings if _is_match(listing, query)]
    keys = {it.id: _find_key(query, *query.cursor_of(it)) for it in found}
    found.sort(key=lambda it: keys[it.id], reverse=query.descending)
    if query.after is not None:
        after = _find_key(query, *query.after)
        found = [it for it in found if (keys[it.id] < after if query.descending else keys[it.id] > after)]
    return found[: query.limit]


def _find_key(query: ListingQuery, value: Any, listing_id: int) -> tuple[Any, int]:
    return tokenizer.fold(value) if query.sort == "folded_title" else value, listing_id


def count_expected(listings: list[Listing], query: ListingQuery) -> int:
    matches = sum(_is_match(listing, query) for listing in listings)
    return matches if query.is_counted_exactly else min(matches, 1_001)


def _is_match(listing: Listing, query: ListingQuery) -> bool:
    status = "deleted" if listing.deleted_at is not None else "active" if listing.is_active else "inactive"
    return (
        query.status in {"all", status}
        and (not query.ids or listing.id in query.ids)
        and query.type in {None, listing.type}
        and query.category in {None, listing.category}
        and query.region in {None, listing.region}
        and (query.price_min is None or listing.price_cents >= query.price_min)
        and (query.price_max is None or listing.price_cents <= query.price_max)
        and (query.updated_since is None or listing.updated_at >= query.updated_since)
        and query.images in {None, listing.images}
        and query.view_count in {None, listing.view_count}
        and (query.unviewed_since is None or (not listing.view_count and listing.created_at < query.unviewed_since))
        and (not query.words or set(query.words) <= _find_words(f"{listing.title} {listing.content}"))
    )


@cache
def _find_words(text: str) -> frozenset[str]:
    return frozenset(tokenizer.tokenize(text))


def random_queries(count: int) -> Iterator[ListingQuery]:
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
            updated_since=maybe(random_timestamp(chance)),
            sort=chance.choice(tuple(SORTED_BY)),
            descending=chance.random() < 0.5,
            limit=chance.choice((None, 1, 7, 100)),
            ids=tuple(1024 * number + 1 for number in chance.sample(range(1, 150), 100))
            if chance.random() < 0.15
            else (),
            count=chance.random() < 0.3,
            **maybe(chance.choice(({"images": "[]"}, {"view_count": 0}, {"unviewed_since": random_timestamp(chance)})))
            or {},
        )


@pytest.mark.slow
def test_every_search_returns_the_matches_in_its_order(stock: Stock) -> None:
    for query in random_queries(200):
        found = stock.search(query)
        assert found.listings == find_expected(stock.listings, query), query
        assert found.total == (count_expected(stock.listings, query) if query.count else None), query


def test_consecutive_pages_contain_all_matches(stock: Stock) -> None:
    filters: tuple[dict[str, Any], ...] = ({}, {"type": "product"}, {"words": ("cafe",)})
    by_name = [
        ListingQuery(status="all", sort="folded_title", descending=descending, **some)
        for descending, some in product((False, True), filters)
    ]
    for query in [*random_queries(30), *by_name]:
        all_matches = find_expected(stock.listings, msgspec.structs.replace(query, limit=None))
        limit = 9 if len(all_matches) < 100 else 90
        page = msgspec.structs.replace(query, limit=limit)
        found = stock.find(page)
        paged = list(found)
        while len(found) == limit:
            page = msgspec.structs.replace(page, after=query.cursor_of(found[-1]))
            found = stock.find(page)
            paged += found
        assert paged == all_matches, query


def test_listings_are_found_by_pictures_and_views(store: Store, run: Run) -> None:
    account = run(store.add_account("Alice", "alice@example.com", None, 1_000))
    pictured, chance = (
        NewListing(title="Bike", content="Red.", images='["https://images.example/1.jpg"]'),
        random.Random(1),
    )
    bike, boat = (
        run(add(store, account, one, chance)) for one in (pictured, NewListing(title="Boat", content="Blue."))
    )
    day = 20_000  # 2024-10-04
    run(store.record_views(day, {boat: [b"1" * 16]}))

    def find(**fields: Any) -> list[int]:
        return [listing.id for listing in run(find_all(store, account.id, ListingQuery(**fields)))]

    assert find(images="[]") == [boat]
    assert find(view_count=0) == [bike]
    assert find(sort="views") == [boat, bike]
    assert sorted(find(unviewed_since="2030-01-01 00:00:00")) == sorted([bike, boat])
    run(store.record_views(day + 3_650, {boat: [b"1" * 16]}))
    assert find(unviewed_since="2030-01-01 00:00:00") == [bike]
    assert find(unviewed_since="2001-01-01 00:00:00") == []
    run(store._run_script(lambda tx: tx.fetch(Command("UPDATE listings SET last_viewed_on = NULL"), ())))  # noqa: SLF001
    assert find(unviewed_since="2070-01-01 00:00:00") == [bike]  # when the boat was last viewed is not known


def test_a_changed_text_is_found_by_its_new_words_only(store: Store, run: Run) -> None:
    account = run(store.add_account("Alice", "alice@example.com", None, 1_000))
    bike, chance = NewListing(title="Bike", content="Red."), random.Random(1)
    ids = sorted(run_all(run, [add(store, account, bike, chance) for _ in range(1_002)]))
    run(store.change_listing(ids[0], lambda _: {"title": "Boat"}))
    run(store.change_listing(ids[1001], lambda _: {"content": "Green."}))

    def find(*words: str) -> list[int]:
        return [listing.id for listing in run(find_all(store, account.id, ListingQuery(words=words)))]

    def count(*words: str) -> int:
        return int(run(search_all(store, account.id, ListingQuery(words=words, limit=1, count=True))).total)

    assert find("boat") == [ids[0]]
    assert find("bike", "green") == [ids[1001]]
    assert len(find("bike")) == 1_001
    assert len(find("red")) == 1_001
    assert (count("red"), count("red", "boat"), count("red", "bike")) == (1_001, 1, 1_000)
    run(store.change_listing(ids[2], set_values(is_active=False)))
    assert (count("red"), count("lamp")) == (1_000, 0)


@pytest.mark.parametrize("count", [1, 1_001], ids=["small", "indexed"])
def test_capitals_of_compatibility_characters_are_folded(store: Store, run: Run, count: int) -> None:
    account = run(store.add_account("Alice", "alice@example.com", None, 1_000))
    listings = [NewListing(title="Bike™", content="𝗥𝗼𝗮𝗱 47 ㏀"), *[NewListing(title="Lamp", content="c")] * (count - 1)]
    listing_id, *_ = run_all(run, [add(store, account, new, random.Random(1)) for new in listings])
    while run(store.index_accounts(100)).has_more:
        pass
    for text in ("biketm", "BIKE™", "road", "𝗥oad kω", "㏀ 47"):
        found = run(find_all(store, account.id, ListingQuery(words=tuple(tokenizer.tokenize(text)))))
        assert [listing.id for listing in found] == [listing_id], text


@pytest.mark.decision("G51")
def test_the_count_of_a_word_search_has_little_time(store: Store, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    account = run(store.add_account("Alice", "alice@example.com", None, 1_000))
    bike = NewListing(title="Bike", content="c")
    run_all(run, [add(store, account, bike, random.Random(1)) for _ in range(1_001)])
    while run(store.index_accounts(100)).has_more:
        pass
    query = ListingQuery(words=("bike",), limit=1, count=True)
    with monkeypatch.context() as patch:
        patch.setattr(market, "SEARCH_SECONDS", 0.0)
        patch.setattr(snapshot_reads, "_SEARCH_WAIT_SECONDS", 0.0)
        patch.setattr(snapshot_reads, "_STEPS_PER_CHECK", 1)
        with pytest.raises(Unavailable, match="This search takes too long"):
            run(search_all(store, account.id, query))
    assert run(search_all(store, account.id, query)).total == 1_001


TEXT_LENGTH, PIECE_BYTES = 1_000, 4_000


def build_long_listing(number: int, word: str) -> NewListing:
    content = " ".join(["Bär"] * (TEXT_LENGTH // 4 - 10) + [word, "old" if number % 3 else "new"])
    return NewListing(title=f"Lamp {number}", content=content, price_cents=number)


@pytest.fixture
def long_listings(store: Store, run: Run, monkeypatch: pytest.MonkeyPatch) -> Stock:
    """Listings with long texts. Every other one contains the word oak, one of three the word new."""
    account = run(store.add_account("Alice", "alice@example.com", None, 1_000))
    monkeypatch.setattr(search_sql, "PIECE_BYTES", PIECE_BYTES)
    chance = random.Random(2)
    new_listings = [build_long_listing(number, "oak" if number % 2 else "oaken") for number in range(24)]
    ids = run_all(run, [add(store, account, new, chance) for new in new_listings])
    listings = [run(store.get_listing(listing_id)) for listing_id in ids]
    return Stock(listings, lambda query: _search(store, run, account, query))


@pytest.mark.parametrize("sort", SORTED_BY)
def test_scanning_long_texts_in_pieces_finds_every_match_once(long_listings: Stock, sort: Any) -> None:
    for limit, words in product((None, 1, 5, 12), (("oak",), ("oak", "new"), ("bar",), ("ba",))):
        query = ListingQuery(words=words, limit=limit, sort=sort)
        found = long_listings.find(query)
        assert found == find_expected(long_listings.listings, query), query
        if found:
            next_page = msgspec.structs.replace(query, after=query.cursor_of(found[-1]), descending=False)
            assert long_listings.find(next_page) == find_expected(long_listings.listings, next_page), next_page


def test_other_tasks_run_between_two_pieces(long_listings: Stock, store: Store, run: Run) -> None:
    partition = get_partition(long_listings)

    async def count_iterations() -> int:
        search = asyncio.ensure_future(find_all(store, partition[1], ListingQuery(words=("rimu",))))
        iterations = 0
        while not search.done():
            iterations += 1
            await asyncio.sleep(0)
        return iterations

    assert run(count_iterations()) >= 24 * TEXT_LENGTH // PIECE_BYTES


def test_a_search_with_concurrent_edits_returns_a_consistent_snapshot(
    long_listings: Stock, store: Store, run: Run
) -> None:
    query = ListingQuery(words=("oak",), sort="price")
    first, second = (long_listings.listings[number].id for number in (1, 3))
    listings = {listing.id: listing for listing in long_listings.listings}
    snapshots = [find_expected(long_listings.listings, query)]

    async def search_and_edit() -> list[Listing]:
        search = asyncio.ensure_future(find_all(store, get_partition(long_listings)[1], query))
        await asyncio.sleep(0)
        for listing_id, decide in ((first, set_values(price_cents=7_000)), (second, set_values(content="Pine."))):
            listings[listing_id] = await store.change_listing(listing_id, decide)
            snapshots.append(find_expected(list(listings.values()), query))
        return await search

    assert run(search_and_edit()) in snapshots


@pytest.mark.parametrize("words", [(), ("lamp",)])
def test_a_count_is_from_the_same_moment_as_its_page(
    store: Store, run: Run, account: Account, words: tuple[str, ...]
) -> None:
    partition, query = (bucket_of(account.id), account.id), ListingQuery(words=words, count=True)
    ids = run_all(run, [add(store, account, NewListing(title="Lamp", content="c"), random.Random(1)) for _ in range(3)])

    both, totals = {(2, 2), (3, 3)}, list[tuple[int, int | None]]()

    async def write() -> None:
        for number in range(3000):  # until there are enough reads: on a busy machine, many take too long
            if len(totals) >= _MIN_READS and both <= set(totals):
                break
            await store.change_listing(ids[1], set_values(is_active=bool(number % 2)))

    async def read_while_writing() -> None:
        writing = asyncio.ensure_future(write())
        while not writing.done():
            with suppress(LargeListError):
                found = await store.find_listings(*partition, query)
                totals.append((len(found.listings), found.total))
            await asyncio.sleep(0)

    run(read_while_writing())
    assert set(totals) == both


def test_a_search_that_is_read_in_pieces_has_its_limit(store: Store, run: Run, account: Account) -> None:
    long = NewListing(title="Lamp", content="Bright. " * 12_500)
    run_all(run, [add(store, account, long, random.Random(1)) for _ in range(5)])
    query = ListingQuery(words=("lamp",), limit=3)
    found = run(find_of_any_size(store, FairQueue(), bucket_of(account.id), account.id, query))
    assert len(found.listings) == 3


def set_values(**change: Any) -> Decide:
    return lambda _: cast("ListingChange", change)


def get_partition(stock: Stock) -> tuple[int, int]:
    account_id = stock.listings[0].account_id
    return bucket_of(account_id), account_id


@settings(max_examples=300)
@given(st.text(), st.text())
def test_every_word_of_a_text_matches_it(title: str, content: str) -> None:
    assert tokenizer.matches((title, content), tokenizer.tokenize(content))


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
def test_a_cursor_of_another_type_is_before_or_after_all_listings(
    store: Store,
    run: Run,
    sort: Any,
    value: str | int,
    is_last: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    run(store.add_account("Alice", "alice@example.com", None, 1_000))
    run(store.add_listing(1, 1, AddStep(NewListing(title="Lamp", content="c"), "2026-11-21 10:00:00")))
    for descending in (True, False):
        found = run(store.find_listings(1, 1, ListingQuery(sort=sort, descending=descending, after=(value, 7))))
        assert len(found.listings) == (descending == is_last), descending
    assert run(store.find_listings(1, 1, ListingQuery(category="\0", count=True))) == ListResult([], 0)


def test_image_urls_count_towards_the_size_of_a_list(store: Store, run: Run, account: Account) -> None:
    partition = (bucket_of(account.id), account.id)
    pictured = NewListing(title="Lamp", content="Bright.", images=f'["https://x/{"a" * 300_000}"]')
    run_all(run, [add(store, account, pictured, random.Random(1)) for _ in range(2)])

    async def count_in_pieces() -> list[int]:
        async with store.read_listings(*partition, ListingQuery(words=("bright",))) as found:
            return [len(piece) async for piece in found.pieces]

    for read in (
        store.list_listings(*partition),
        store.find_listings(*partition, ListingQuery()),
        store.find_listings(*partition, ListingQuery(words=("bright",))),
    ):
        with pytest.raises(LargeListError):
            run(read)
    assert run(count_in_pieces()) == [1, 1]
    assert len(run(store.page_listings(*partition, 0, 10))) == 1
