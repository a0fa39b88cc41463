"""Usage over a whole service: what the API's responses count as, and what is kept of refusals."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from listings.domain import api_keys
from listings.domain.model import Caller
from listings.service.usage import Usage
from tests.harness import TIMEOUT, Harness, MaintainedHarness, Person

HOUR = 3600
DAY = 24 * HOUR
LISTINGS = "/api/v1/listings"


@pytest.fixture
def alice(harness: Harness) -> Person:
    return harness.person("alice")


def usage_of(harness: Harness, person: Person) -> Usage:
    return harness.run(harness.service.usage(person.account))


async def _until_stored(harness: Harness) -> None:
    while harness.service._answers:  # noqa: SLF001, ASYNC110 - what waits; the service tells nobody
        await asyncio.sleep(0.01)
    async with harness.service._storing:  # noqa: SLF001 - what was taken last is in the store
        pass


def fetch(harness: Harness, person: Person, times: int = 1, path: str = LISTINGS) -> None:
    for _ in range(times):
        harness.fetch("GET", path, key=person.key)


def test_answers_are_counted_by_key_and_status(harness: Harness, alice: Person) -> None:
    second = harness.run(harness.service.issue_key(str(alice.account.id), "second"))
    fetch(harness, alice, 3)
    fetch(harness, alice, 2, f"{LISTINGS}/999")
    harness.fetch("GET", LISTINGS, key=second.secret)
    for written in (False, True):
        if written:
            harness.run(harness.service.write_usage())
        usage = usage_of(harness, alice)
        assert usage.total.by_status == {200: 4, 404: 2}
        assert [(one.key.name, one.counts.by_status) for one in usage.keys] == [
            ("test", {200: 3, 404: 2}),
            ("second", {200: 1}),
        ]
        assert [one.counts.last_day for one in usage.keys] == [5, 1]


def test_hours_and_days_have_no_gap_and_end_now(harness: Harness, alice: Person) -> None:
    now = int(harness.clock.now)
    fetch(harness, alice)
    usage = usage_of(harness, alice).total
    assert [period.start for period in usage.hours] == [(now // HOUR - back) * HOUR for back in range(23, -1, -1)]
    assert [period.start for period in usage.days] == [(now // DAY - back) * DAY for back in range(29, -1, -1)]
    assert [period.responses for period in usage.hours] == [0] * 23 + [1]
    assert [period.responses for period in usage.days] == [0] * 29 + [1]


def test_an_hour_counts_by_when_it_was(harness: Harness, alice: Person) -> None:
    harness.clock.advance(HOUR - harness.clock.now % HOUR - 1)  # a second before its end
    for count in (1, 2, 3):
        fetch(harness, alice, count)
        harness.fetch("GET", f"{LISTINGS}/999", key=alice.key)
        if count == 1:
            harness.run(harness.service.write_usage())
        harness.clock.advance(1 if count == 1 else HOUR)
    for _ in range(2):
        hours = usage_of(harness, alice).total.hours
        assert [(hour.responses, hour.refused) for hour in hours[-4:]] == [(2, 1), (3, 1), (4, 1), (0, 0)]
        harness.run(harness.service.write_usage())
    hours = usage_of(harness, alice).total.hours
    assert [(hour.responses, hour.refused) for hour in hours[-4:]] == [(2, 1), (3, 1), (4, 1), (0, 0)]
    harness.clock.advance(DAY)
    usage = usage_of(harness, alice).total
    assert usage.last_day == 0
    assert [day.responses for day in usage.days if day.responses] == [9]


def test_what_comes_after_a_clock_was_ahead_counts_by_when_it_is(harness: Harness, alice: Person) -> None:
    harness.clock.advance(DAY)
    harness.fetch("GET", f"{LISTINGS}/999", key=alice.key)
    harness.clock.advance(-DAY)
    harness.fetch("GET", f"{LISTINGS}/999", key=alice.key)
    harness.fetch("GET", f"{LISTINGS}/999", key=alice.key)
    for _ in range(2):
        usage = usage_of(harness, alice)
        assert [hour.responses for hour in usage.total.hours[-2:]] == [0, 2]
        moments = [refusal.moment / 1_000_000 - harness.clock.now for refusal in usage.refusals]
        assert [round(moment) for moment in moments] == [DAY, 0, 0]
        assert len(set(moments)) == 3
        harness.run(harness.service.write_usage())


def test_what_is_left_of_the_hour_comes_from_the_limiter(harness: Harness, alice: Person) -> None:
    fetch(harness, alice, 3)
    (key,) = usage_of(harness, alice).keys
    assert key.limit is not None
    assert key.limit.left == 997
    assert usage_of(harness, alice).keys[0].limit is not None
    assert harness.fetch("GET", "/api/v1/rate_limit", key=alice.key).json()["remaining"] == 997


def test_without_a_limit_there_is_none_to_tell(tmp_path: Path) -> None:
    with Harness(tmp_path, rate_limit="0") as harness:
        alice = harness.person("alice")
        assert [key.limit for key in usage_of(harness, alice).keys] == [None]


def test_refusals_are_kept_with_their_reason_and_request(harness: Harness, alice: Person) -> None:
    bob = harness.person("bob")
    theirs = harness.fetch("POST", LISTINGS, key=bob.key, json={"title": "t", "content": "c"}).json()["id"]
    replies = [
        harness.fetch("GET", f"{LISTINGS}/{theirs}?key={alice.key}", key=alice.key),
        harness.fetch("POST", LISTINGS, key=alice.key, json={"title": "secret text"}),
    ]
    for written in (False, True):
        if written:
            harness.run(harness.service.write_usage())
        refusals = usage_of(harness, alice).refusals
        assert [(one.method, one.path, one.status, one.code) for one in refusals] == [
            ("POST", LISTINGS, 400, "invalid_request"),
            ("GET", f"{LISTINGS}/{theirs}", 403, "not_owner"),
        ]
        assert [one.request_id for one in refusals] == [reply.headers["x-request-id"] for reply in replies[::-1]]
        assert {one.key_id for one in refusals} == {alice.key_id}
    assert usage_of(harness, bob).refusals == []


def test_a_revoked_key_and_one_beyond_its_limit_are_refusals(tmp_path: Path) -> None:
    with Harness(tmp_path, rate_limit="1") as harness:
        alice, charlie = harness.person("alice"), harness.person("charlie", plan_ends_in=-1)
        fetch(harness, alice, 2)
        harness.run(harness.service.revoke_key(alice.key_id))
        fetch(harness, alice)
        fetch(harness, charlie)
        harness.fetch("GET", LISTINGS, key="lst_unknown")
        assert [one.code for one in usage_of(harness, alice).refusals] == ["invalid_api_key", "rate_limited"]
        assert usage_of(harness, alice).total.by_status == {200: 1, 401: 1, 429: 1}
        assert [one.code for one in usage_of(harness, charlie).refusals] == ["plan_expired"]


def test_the_last_hundred_refusals_stay(harness: Harness, alice: Person) -> None:
    for number in range(130):
        harness.fetch("GET", f"{LISTINGS}/{number + 5_000}", key=alice.key)
        if number == 60:
            harness.run(harness.service.write_usage())
    paths = [f"{LISTINGS}/{number + 5_000}" for number in range(129, 29, -1)]
    assert [one.path for one in usage_of(harness, alice).refusals] == paths
    harness.run(harness.service.write_usage())
    assert [one.path for one in usage_of(harness, alice).refusals] == paths


def test_a_key_in_a_path_or_in_a_requests_name_is_not_kept(harness: Harness, alice: Person) -> None:
    caller = harness.run(harness.service.authenticate(alice.key))
    harness.service.record_rejection(caller, "code", 404, "GET", f"/api/v1/listings/{alice.key}", f"r-{alice.key}")
    harness.run(harness.service.write_usage())
    (refused,) = usage_of(harness, alice).refusals
    assert refused.path == f"/api/v1/listings/{api_keys.mask(alice.key)}"
    assert refused.request_id == f"r-{api_keys.mask(alice.key)}"


def test_a_path_is_cut_and_made_storable(harness: Harness, alice: Person) -> None:
    caller = Caller(alice.key_id, alice.account.id, alice.account.id & 1023, None, None, None, None)
    harness.service.record_rejection(caller, "code", 404, "GET", "/\0\ud83d" + "x" * 500, "r" * 500)
    harness.run(harness.service.write_usage())
    (refusal,) = usage_of(harness, alice).refusals
    assert refusal.path == "/\ufffd?" + "x" * 197
    assert len(refusal.request_id) == 128


def test_what_can_not_be_written_now_is_written_later(harness: Harness, alice: Person) -> None:
    store = harness.service.store
    for _ in range(3):
        fetch(harness, alice)
        fetch(harness, alice, path=f"{LISTINGS}/999")
        harness.run(store.close())
        harness.run(harness.service.write_usage())
        harness.run(store.open())
    for _ in range(2):
        usage = usage_of(harness, alice)
        assert usage.total.by_status == {200: 3, 404: 3}
        assert len(usage.refusals) == 3
        harness.run(harness.service.write_usage())


def test_many_counts_are_written_in_small_steps(harness: Harness, alice: Person) -> None:
    people = [alice, *(harness.person("bob") for _ in range(11))]
    for status in range(200, 400):
        for person in people:
            caller = Caller(person.key_id, person.account.id, 1, None, None, None, None)
            harness.service.record_response(caller, status)
            harness.service.record_rejection(caller, "c", status, "GET", "/", "r")
    harness.run(harness.service.write_usage())
    assert not harness.service._answers  # noqa: SLF001 - nothing waits any more
    for person in people:
        usage = usage_of(harness, person)
        assert usage.total.by_status == dict.fromkeys(range(200, 400), 1)
        assert [one.status for one in usage.refusals] == list(range(399, 299, -1))


def test_a_small_write_takes_the_longest_kept_and_leaves_the_rest(harness: Harness, alice: Person) -> None:
    people = [alice, *(harness.person("bob") for _ in range(6))]
    for person in people:
        caller = Caller(person.key_id, person.account.id, 1, None, None, None, None)
        for status in range(200, 300):
            harness.service.record_response(caller, status)
            harness.service.record_rejection(caller, "c", status, "GET", "/", "r")
    assert harness.run(harness.service.write_some_usage())
    assert {one[0] for one in harness.service._answers} == {one.account.id for one in people[5:]}  # noqa: SLF001 - what waits
    assert list(harness.service._refused) == [one.account.id for one in people[5:]]  # noqa: SLF001 - as above


def test_few_refusals_of_many_accounts_take_few_writes(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    people = [harness.person("bob") for _ in range(101)]
    writes: list[int] = []
    add_usage = harness.service.store.add_usage

    async def count(counts: Any, refused: Any, most: int) -> None:
        writes.append(len(refused))
        await add_usage(counts, refused, most)

    monkeypatch.setattr(harness.service.store, "add_usage", count)
    for person in people:
        caller = Caller(person.key_id, person.account.id, 1, None, None, None, None)
        for _ in range(3):
            harness.service.record_rejection(caller, "c", 404, "GET", "/", "r")
    harness.run(harness.service.write_usage())
    assert writes == [150, 150, 3]
    assert {len(usage_of(harness, person).refusals) for person in people} == {3}


def test_nothing_is_missing_and_nothing_counted_twice_while_it_is_stored(harness: Harness, alice: Person) -> None:
    async def look_while_storing(expected: int) -> None:
        storing = asyncio.ensure_future(harness.service.write_some_usage())
        await asyncio.sleep(0)  # it has begun
        usage = await harness.service.usage(alice.account)
        assert (usage.total.last_day, len(usage.refusals)) == (expected, expected)
        assert await storing

    for number in range(1, 6):
        fetch(harness, alice, path=f"{LISTINGS}/999")
        harness.run(look_while_storing(number))


def test_a_write_that_nobody_waits_for_any_more_is_done(harness: Harness, alice: Person) -> None:
    async def give_up() -> None:
        storing = asyncio.ensure_future(harness.service.write_some_usage())
        await asyncio.sleep(0)
        storing.cancel()
        await asyncio.wait([storing])

    fetch(harness, alice, 2, path=f"{LISTINGS}/999")
    harness.run(give_up())
    usage = usage_of(harness, alice)
    assert (usage.total.by_status, len(usage.refusals)) == ({404: 2}, 2)


def test_what_one_process_counts_is_shown_by_another_without_being_asked_to(tmp_path: Path) -> None:
    with MaintainedHarness(tmp_path) as one, Harness(tmp_path) as other:
        alice = one.person("alice")
        fetch(one, alice, 3)
        fetch(one, alice, path=f"{LISTINGS}/999")

        one.run(asyncio.wait_for(_until_stored(one), TIMEOUT))  # sooner than once a minute
        usage = usage_of(other, alice)
        assert usage.total.by_status == {200: 3, 404: 1}
        assert len(usage.refusals) == 1


def test_what_is_counted_is_written_at_the_end(tmp_path: Path) -> None:
    with Harness(tmp_path) as harness:
        alice = harness.person("alice")
        fetch(harness, alice, 2)
    with Harness(tmp_path) as harness:
        assert usage_of(harness, alice).total.by_status == {200: 2}


def test_memory_is_bounded_whatever_is_counted(harness: Harness, alice: Person) -> None:
    service = harness.service
    for number in range(60_000):
        service.record_response(Caller(number, alice.account.id, 1, None, None, None, None), 200)
    for account in range(300):
        for _ in range(150):
            service.record_rejection(Caller(1, account, 1, None, None, None, None), "c", 404, "GET", "/", "r")
    assert len(service._answers) == 50_000  # noqa: SLF001 - what is to be bounded
    assert len(service._refused) == 200  # noqa: SLF001 - as above
    assert {len(one) for one in service._refused.values()} == {100}  # noqa: SLF001 - as above
    service._answers.clear()  # noqa: SLF001 - these keys are nobody's
    service._refused.clear()  # noqa: SLF001 - as above


def test_usage_is_forgotten_after_31_days_and_activity_after_90(harness: Harness, alice: Person) -> None:
    listing = harness.fetch("POST", LISTINGS, key=alice.key, json={"title": "t", "content": "c"}).json()["id"]
    harness.fetch("PATCH", f"{LISTINGS}/{listing}", key=alice.key, json={"price": 1})
    fetch(harness, alice, path=f"{LISTINGS}/999999")
    harness.run(harness.service.write_usage())

    def kept() -> tuple[int, int, int]:
        for _ in range(16):
            harness.run(harness.service.purge_history())
        place = (alice.account.id & 1023, alice.account.id)
        store = harness.service.store

        async def count() -> tuple[int, int, int]:
            rows = await asyncio.gather(store.list_usage_by_hour(*place, 0), store.list_rejected_requests(*place, 9))
            activity = await harness.service.activity(alice.account)
            return len(rows[0]), len(rows[1]), len(activity.events)

        return harness.run(count())

    assert kept() == (3, 1, 3)
    harness.clock.advance(31 * DAY)
    assert kept() == (3, 1, 3)
    harness.clock.advance(HOUR)
    assert kept() == (0, 0, 3)
    harness.clock.advance(59 * DAY - HOUR)
    assert kept() == (0, 0, 3)
    harness.clock.advance(1)
    assert kept() == (0, 0, 0)
