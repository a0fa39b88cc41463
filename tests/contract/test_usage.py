"""Usage counts and rejected requests: guarantees of every store (`listings.store.store.Store`)."""

import asyncio
from typing import NamedTuple

import pytest

from listings.domain.history import HistoryCutoffs, RejectedRequest, UsageCount, UsageSlot
from listings.domain.model import Account, bucket_of
from listings.store.store import Store
from tests.contract.conftest import Run

DAY = 20_000
HOUR = DAY * 24


class Partition(NamedTuple):
    bucket: int
    account_id: int


@pytest.fixture
def alice(store: Store, run: Run) -> Partition:
    return get_partition(run(store.add_account("Alice", "alice@example.com", None, 1_000)))


@pytest.fixture
def bob(store: Store, run: Run) -> Partition:
    return get_partition(run(store.add_account("Bob", "bob@example.com", None, 1_000)))


def get_partition(account: Account) -> Partition:
    return Partition(bucket_of(account.id), account.id)


def build_rejected_request(partition: Partition, microseconds: int, request_id: str = "r") -> RejectedRequest:
    return RejectedRequest(
        account_id=partition.account_id,
        microseconds=microseconds,
        key_id=7,
        code="not_owner",
        status=403,
        method="GET",
        path="/api/v1/listings/1",
        request_id=request_id,
    )


def test_counts_are_added_to_stored_counts(store: Store, run: Run, alice: Partition, bob: Partition) -> None:
    one = UsageSlot(alice.account_id, HOUR, 7, 200)
    run(store.add_usage({one: 3, one._replace(status=404): 1, one._replace(account_id=bob.account_id): 9}, [], 100))
    run(store.add_usage({one: 4, one._replace(key_id=8): 2, one._replace(hour=HOUR + 1): 1}, [], 100))
    assert run(store.list_usage_by_hour(*alice, HOUR)) == [
        UsageCount(HOUR, 7, 200, 7),
        UsageCount(HOUR, 7, 404, 1),
        UsageCount(HOUR, 8, 200, 2),
        UsageCount(HOUR + 1, 7, 200, 1),
    ]
    assert run(store.list_usage_by_hour(*alice, HOUR + 1)) == [UsageCount(HOUR + 1, 7, 200, 1)]
    assert run(store.list_usage_by_hour(*bob, 0)) == [UsageCount(HOUR, 7, 200, 9)]


def test_concurrent_counts_are_all_added(store: Store, run: Run, alice: Partition) -> None:
    counts = {UsageSlot(alice.account_id, HOUR, key_id, 200): 1 for key_id in range(1, 10)}

    async def add_concurrently() -> None:
        await asyncio.gather(*(store.add_usage(dict(reversed(counts.items())), [], 100) for _ in range(5)))
        await asyncio.gather(*(store.add_usage(counts, [], 100) for _ in range(5)))

    run(add_concurrently())
    assert {row.responses for row in run(store.list_usage_by_hour(*alice, HOUR))} == {10}


def test_a_day_is_the_sum_of_its_hours(store: Store, run: Run, alice: Partition) -> None:
    one = UsageSlot(alice.account_id, HOUR - 1, 7, 200)
    hours = {one._replace(hour=hour): 1 for hour in (HOUR - 1, HOUR, HOUR + 5, HOUR + 23, HOUR + 24)}
    run(store.add_usage(hours | {one._replace(hour=HOUR, status=404): 5}, [], 100))
    assert run(store.list_usage_by_day(*alice, HOUR - 1)) == [
        UsageCount(DAY - 1, 7, 200, 1),
        UsageCount(DAY, 7, 200, 3),
        UsageCount(DAY, 7, 404, 5),
        UsageCount(DAY + 1, 7, 200, 1),
    ]
    assert run(store.list_usage_by_day(*alice, HOUR + 24)) == [UsageCount(DAY + 1, 7, 200, 1)]


def test_the_latest_rejected_requests_of_each_account_are_kept(
    store: Store, run: Run, alice: Partition, bob: Partition
) -> None:
    run(store.add_usage({}, [build_rejected_request(alice, moment) for moment in range(10)], 5))
    run(store.add_usage({}, [build_rejected_request(bob, 3), build_rejected_request(alice, 20)], 5))
    assert [it.microseconds for it in run(store.list_rejected_requests(*alice, 100))] == [20, 9, 8, 7, 6]
    assert run(store.list_rejected_requests(*bob, 100)) == [build_rejected_request(bob, 3)]
    assert [it.microseconds for it in run(store.list_rejected_requests(*alice, 2))] == [20, 9]


def test_a_rejected_request_added_twice_is_stored_once(store: Store, run: Run, alice: Partition) -> None:
    run(
        store.add_usage(
            {},
            [build_rejected_request(alice, 1), build_rejected_request(alice, 1), build_rejected_request(alice, 1, "s")],
            5,
        )
    )
    assert [it.request_id for it in run(store.list_rejected_requests(*alice, 100))] == ["s", "r"]


def test_old_usage_is_purged_in_batches(store: Store, run: Run, alice: Partition, bob: Partition) -> None:
    counts = {UsageSlot(alice.account_id, HOUR + hour, 7, 200): 1 for hour in range(5)}
    counts[UsageSlot(bob.account_id, HOUR, 7, 200)] = 1
    run(store.add_usage(counts, [build_rejected_request(alice, moment) for moment in range(5)], 100))
    oldest = HistoryCutoffs(events=0, hours=HOUR + 3, rejections=4)
    assert [run(store.purge_history([alice.bucket], oldest, 2)) for _ in range(3)] == [4, 3, 0]
    assert [row.period for row in run(store.list_usage_by_hour(*alice, 0))] == [HOUR + 3, HOUR + 4]
    assert [it.microseconds for it in run(store.list_rejected_requests(*alice, 9))] == [4]
    assert len(run(store.list_usage_by_hour(*bob, 0))) == 1
