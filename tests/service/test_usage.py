"""Usage of a whole service: counted responses and recorded rejections."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from listings.domain import api_keys
from listings.domain.errors import Problem
from listings.domain.model import Caller
from listings.service.history.usage import Usage
from tests.harness import Harness, Person

HOUR = 3600
DAY = 24 * HOUR
LISTINGS = "/api/v1/listings"
REJECTED = Problem("listing_not_found", "Listing not found")


@pytest.fixture
def alice(harness: Harness) -> Person:
    return harness.person("alice")


def read_usage(harness: Harness, person: Person) -> Usage:
    return harness.run(harness.services.usage.get(person.account))


def fetch(harness: Harness, person: Person, times: int = 1, path: str = LISTINGS) -> None:
    for _ in range(times):
        harness.fetch("GET", path, key=person.key)


def test_responses_are_counted_by_key_and_status(harness: Harness, alice: Person) -> None:
    second = harness.run(harness.services.keys.create(str(alice.account.id), "second"))
    fetch(harness, alice, 3)
    fetch(harness, alice, 2, f"{LISTINGS}/999")
    harness.fetch("GET", LISTINGS, key=second.secret)
    for is_stored in (False, True):
        if is_stored:
            harness.run(harness.services.usage.write())
        usage = read_usage(harness, alice)
        assert usage.total.by_status == {200: 4, 404: 2}
        assert [(one.key.name, one.counts.by_status) for one in usage.keys] == [
            ("test", {200: 3, 404: 2}),
            ("second", {200: 1}),
        ]
        assert [one.counts.last_day for one in usage.keys] == [5, 1]


def test_hours_and_days_have_no_gaps_and_end_now(harness: Harness, alice: Person) -> None:
    now = int(harness.clock.now)
    fetch(harness, alice)
    usage = read_usage(harness, alice).total
    assert [period.start for period in usage.hours] == [(now // HOUR - ago) * HOUR for ago in range(23, -1, -1)]
    assert [period.start for period in usage.days] == [(now // DAY - ago) * DAY for ago in range(29, -1, -1)]
    assert [period.responses for period in usage.hours] == [0] * 23 + [1]
    assert [period.responses for period in usage.days] == [0] * 29 + [1]


def test_responses_count_in_the_hour_of_the_request(harness: Harness, alice: Person) -> None:
    harness.clock.advance(HOUR - harness.clock.now % HOUR - 1)  # a second before its end
    for count in (1, 2, 3):
        fetch(harness, alice, count)
        harness.fetch("GET", f"{LISTINGS}/999", key=alice.key)
        if count == 1:
            harness.run(harness.services.usage.write())
        harness.clock.advance(1 if count == 1 else HOUR)
    for _ in range(2):
        hours = read_usage(harness, alice).total.hours
        assert [(hour.responses, hour.rejected) for hour in hours[-4:]] == [(2, 1), (3, 1), (4, 1), (0, 0)]
        harness.run(harness.services.usage.write())
    hours = read_usage(harness, alice).total.hours
    assert [(hour.responses, hour.rejected) for hour in hours[-4:]] == [(2, 1), (3, 1), (4, 1), (0, 0)]
    harness.clock.advance(DAY)
    usage = read_usage(harness, alice).total
    assert usage.last_day == 0
    assert [day.responses for day in usage.days if day.responses] == [9]


def test_requests_after_the_clock_was_set_back_count_now(harness: Harness, alice: Person) -> None:
    harness.clock.advance(DAY)
    harness.fetch("GET", f"{LISTINGS}/999", key=alice.key)
    harness.clock.advance(-DAY)
    harness.fetch("GET", f"{LISTINGS}/999", key=alice.key)
    harness.fetch("GET", f"{LISTINGS}/999", key=alice.key)
    for _ in range(2):
        usage = read_usage(harness, alice)
        assert [hour.responses for hour in usage.total.hours[-2:]] == [0, 2]
        ages = [request.microseconds / 1_000_000 - harness.clock.now for request in usage.rejected_requests]
        assert [round(age) for age in ages] == [DAY, 0, 0]
        assert len(set(ages)) == 3
        harness.run(harness.services.usage.write())


def test_the_remaining_requests_come_from_the_rate_limiter(harness: Harness, alice: Person) -> None:
    fetch(harness, alice, 3)
    (key,) = read_usage(harness, alice).keys
    assert key.limit is not None
    assert key.limit.remaining == 997
    assert read_usage(harness, alice).keys[0].limit is not None
    assert harness.fetch("GET", "/api/v1/rate_limit", key=alice.key).json()["remaining"] == 997


def test_without_a_rate_limit_the_usage_has_none(tmp_path: Path) -> None:
    with Harness(tmp_path, rate_limit="0") as harness:
        alice = harness.person("alice")
        assert [key.limit for key in read_usage(harness, alice).keys] == [None]


def test_rejections_are_recorded_with_their_code_and_request(harness: Harness, alice: Person) -> None:
    bob = harness.person("bob")
    foreign = harness.fetch("POST", LISTINGS, key=bob.key, json={"title": "t", "content": "c"}).json()["id"]
    replies = [
        harness.fetch("GET", f"{LISTINGS}/{foreign}?key={alice.key}", key=alice.key),
        harness.fetch("POST", LISTINGS, key=alice.key, json={"title": "secret text"}),
    ]
    for is_stored in (False, True):
        if is_stored:
            harness.run(harness.services.usage.write())
        rejected = read_usage(harness, alice).rejected_requests
        assert [(one.method, one.path, one.status, one.code) for one in rejected] == [
            ("POST", LISTINGS, 400, "invalid_request"),
            ("GET", f"{LISTINGS}/{foreign}", 403, "not_owner"),
        ]
        assert [one.request_id for one in rejected] == [reply.headers["x-request-id"] for reply in replies[::-1]]
        assert {one.key_id for one in rejected} == {alice.key_id}
    assert read_usage(harness, bob).rejected_requests == []


def test_revoked_and_rate_limited_keys_are_recorded_as_rejections(tmp_path: Path) -> None:
    with Harness(tmp_path, rate_limit="1") as harness:
        alice, charlie = harness.person("alice"), harness.person("charlie", plan_ends_in=-1)
        fetch(harness, alice, 2)
        harness.run(harness.services.keys.revoke(alice.key_id))
        fetch(harness, alice)
        fetch(harness, charlie)
        harness.fetch("GET", LISTINGS, key="lst_unknown")
        assert [one.code for one in read_usage(harness, alice).rejected_requests] == ["invalid_api_key", "rate_limited"]
        assert read_usage(harness, alice).total.by_status == {200: 1, 401: 1, 429: 1}
        assert [one.code for one in read_usage(harness, charlie).rejected_requests] == ["plan_expired"]


def test_a_key_in_a_path_or_a_request_id_is_masked(harness: Harness, alice: Person) -> None:
    caller = harness.run(harness.services.access.authenticate(alice.key))
    harness.services.usage.record_rejection(
        caller, REJECTED, 404, "GET", f"/api/v1/listings/{alice.key}", f"r-{alice.key}"
    )
    harness.run(harness.services.usage.write())
    (rejected,) = read_usage(harness, alice).rejected_requests
    assert rejected.path == f"/api/v1/listings/{api_keys.mask(alice.key)}"
    assert rejected.request_id == f"r-{api_keys.mask(alice.key)}"


def test_a_path_is_truncated_and_cleaned(harness: Harness, alice: Person) -> None:
    caller = Caller(alice.key_id, alice.account.id, alice.account.id & 1023, None, None, None, None, "write")
    harness.services.usage.record_rejection(caller, REJECTED, 404, "GET", "/\0\ud83d" + "x" * 500, "r" * 500)
    harness.run(harness.services.usage.write())
    (rejected,) = read_usage(harness, alice).rejected_requests
    assert rejected.path == "/\ufffd?" + "x" * 197
    assert len(rejected.request_id) == 128


def test_counts_are_kept_while_the_store_is_unavailable(harness: Harness, alice: Person) -> None:
    store = harness.store
    for _ in range(3):
        fetch(harness, alice)
        fetch(harness, alice, path=f"{LISTINGS}/999")
        harness.run(store.close())
        harness.run(harness.services.usage.write())
        harness.run(store.open())
    for _ in range(2):
        usage = read_usage(harness, alice)
        assert usage.total.by_status == {200: 3, 404: 3}
        assert len(usage.rejected_requests) == 3
        harness.run(harness.services.usage.write())


def test_many_counts_are_written_in_batches(harness: Harness, alice: Person) -> None:
    people = [alice, *(harness.person("bob") for _ in range(11))]
    for status in range(200, 400):
        for person in people:
            caller = Caller(person.key_id, person.account.id, 1, None, None, None, None, "write")
            harness.services.usage.record_response(caller, status)
            harness.services.usage.record_rejection(caller, REJECTED, status, "GET", "/", "r")
    harness.run(harness.services.usage.write())
    assert not harness.services.usage._responses  # noqa: SLF001 - nothing is pending
    for person in people:
        usage = read_usage(harness, person)
        assert usage.total.by_status == dict.fromkeys(range(200, 400), 1)
        assert [one.status for one in usage.rejected_requests] == list(range(399, 299, -1))


def test_a_batch_takes_the_oldest_counts(harness: Harness, alice: Person) -> None:
    people = [alice, *(harness.person("bob") for _ in range(6))]
    for person in people:
        caller = Caller(person.key_id, person.account.id, 1, None, None, None, None, "write")
        for status in range(200, 300):
            harness.services.usage.record_response(caller, status)
            harness.services.usage.record_rejection(caller, REJECTED, status, "GET", "/", "r")
    assert harness.run(harness.services.usage.write_batch())
    assert {one[0] for one in harness.services.usage._responses} == {one.account.id for one in people[5:]}  # noqa: SLF001 - pending counts
    assert list(harness.services.usage._rejected) == [one.account.id for one in people[5:]]  # noqa: SLF001 - as above


def test_few_rejections_of_many_accounts_take_few_writes(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    people = [harness.person("bob") for _ in range(101)]
    writes: list[int] = []
    add_usage = harness.store.add_usage

    async def count(counts: Any, rejected: Any, maximum: int) -> None:
        writes.append(len(rejected))
        await add_usage(counts, rejected, maximum)

    monkeypatch.setattr(harness.store, "add_usage", count)
    for person in people:
        caller = Caller(person.key_id, person.account.id, 1, None, None, None, None, "write")
        for _ in range(3):
            harness.services.usage.record_rejection(caller, REJECTED, 404, "GET", "/", "r")
    harness.run(harness.services.usage.write())
    assert writes == [150, 150, 3]
    assert {len(read_usage(harness, person).rejected_requests) for person in people} == {3}


def test_usage_is_exact_while_a_batch_is_being_stored(harness: Harness, alice: Person) -> None:
    async def read_while_storing(expected: int) -> None:
        storing = asyncio.ensure_future(harness.services.usage.write_batch())
        await asyncio.sleep(0)  # starts the write
        usage = await harness.services.usage.get(alice.account)
        assert (usage.total.last_day, len(usage.rejected_requests)) == (expected, expected)
        assert await storing

    for number in range(1, 6):
        fetch(harness, alice, path=f"{LISTINGS}/999")
        harness.run(read_while_storing(number))


def test_a_cancelled_write_still_completes(harness: Harness, alice: Person) -> None:
    async def cancel_write() -> None:
        storing = asyncio.ensure_future(harness.services.usage.write_batch())
        await asyncio.sleep(0)
        storing.cancel()
        await asyncio.wait([storing])

    fetch(harness, alice, 2, path=f"{LISTINGS}/999")
    harness.run(cancel_write())
    usage = read_usage(harness, alice)
    assert (usage.total.by_status, len(usage.rejected_requests)) == ({404: 2}, 2)


def test_counts_are_stored_when_the_service_stops(tmp_path: Path) -> None:
    with Harness(tmp_path) as harness:
        alice = harness.person("alice")
        fetch(harness, alice, 2)
    with Harness(tmp_path) as harness:
        assert read_usage(harness, alice).total.by_status == {200: 2}


def test_pending_counts_are_bounded(harness: Harness, alice: Person) -> None:
    services = harness.services
    for number in range(60_000):
        services.usage.record_response(Caller(number, alice.account.id, 1, None, None, None, None, "write"), 200)
    for account in range(300):
        caller = Caller(1, account, 1, None, None, None, None, "write")
        for _ in range(150):
            services.usage.record_rejection(caller, REJECTED, 404, "GET", "/", "r")
    assert len(services.usage._responses) == 50_000  # noqa: SLF001 - the bounded memory
    assert len(services.usage._rejected) == 200  # noqa: SLF001 - as above
    assert {len(one) for one in services.usage._rejected.values()} == {100}  # noqa: SLF001 - as above
    services.usage._responses.clear()  # noqa: SLF001 - the keys do not exist
    services.usage._rejected.clear()  # noqa: SLF001 - as above


def test_usage_is_purged_after_31_days_and_activity_after_90(harness: Harness, alice: Person) -> None:
    listing = harness.fetch("POST", LISTINGS, key=alice.key, json={"title": "t", "content": "c"}).json()["id"]
    harness.fetch("PATCH", f"{LISTINGS}/{listing}", key=alice.key, json={"price": 1})
    fetch(harness, alice, path=f"{LISTINGS}/999999")
    harness.run(harness.services.usage.write())

    def purge_and_count() -> tuple[int, int, int]:
        for _ in range(16):
            harness.run(harness.services.activity.purge())
        partition = (alice.account.id & 1023, alice.account.id)
        store = harness.store

        async def count() -> tuple[int, int, int]:
            rows = await asyncio.gather(
                store.list_usage_by_hour(*partition, 0), store.list_rejected_requests(*partition, 9)
            )
            activity = await harness.services.activity.list_page(alice.account)
            return len(rows[0]), len(rows[1]), len(activity.events)

        return harness.run(count())

    assert purge_and_count() == (3, 1, 3)
    harness.clock.advance(31 * DAY)
    assert purge_and_count() == (3, 1, 3)
    harness.clock.advance(HOUR)
    assert purge_and_count() == (0, 0, 3)
    harness.clock.advance(59 * DAY - HOUR)
    assert purge_and_count() == (0, 0, 3)
    harness.clock.advance(1)
    assert purge_and_count() == (0, 0, 0)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"content": "x"}, "title: required"),
        ({"price": "450 ono"}, "title: required, content: required, price: wrong_type"),
        ({"title": "x", "content": "x", "images": ["a", "b"]}, "images: invalid_url"),
        ([], "The body must be a JSON object"),
    ],
)
def test_a_rejected_request_says_why_without_values(harness: Harness, alice: Person, body: Any, reason: str) -> None:
    harness.fetch("POST", LISTINGS, key=alice.key, json=body, headers={"Prefer": "handling=strict"})
    (rejected,) = read_usage(harness, alice).rejected_requests
    assert rejected.reason == reason
    harness.run(harness.services.usage.write())
    assert read_usage(harness, alice).rejected_requests == [rejected]
