"""Owners take turns. Steps have a pause between them if they wait for each other."""

import asyncio
from time import perf_counter

import pytest

from listings.domain.errors import Unavailable
from listings.queues import FairQueue

PAUSE = 0.05


def measure_seconds(count: int) -> float:
    """Return how long it takes until `count` simultaneous steps have had their turn."""

    async def step(queue: FairQueue) -> None:
        async with queue.acquire(1):
            pass

    async def run() -> float:
        queue, began = FairQueue(PAUSE), perf_counter()
        await asyncio.gather(*(step(queue) for _ in range(count)))
        return perf_counter() - began

    return asyncio.run(run())


def test_steps_that_wait_for_each_other_have_a_pause_between_them() -> None:
    assert measure_seconds(4) >= 3 * PAUSE * 0.9  # a timer may be a little early


def test_a_step_that_follows_at_once_has_a_pause_if_another_one_waits() -> None:
    async def run() -> float:
        queue, began = FairQueue(PAUSE), perf_counter()

        async def step_twice() -> None:
            for _ in range(2):
                async with queue.acquire(1):
                    await asyncio.sleep(0)

        async def step() -> None:
            async with queue.acquire(1):
                pass

        await asyncio.gather(step_twice(), step())
        return perf_counter() - began

    assert asyncio.run(run()) >= 2 * PAUSE * 0.9


def test_a_single_step_has_no_pause() -> None:
    assert min(measure_seconds(1) for _ in range(3)) < PAUSE


async def wait_for_turn(queue: FairQueue, owner: int, turns: list[int]) -> None:
    async with queue.acquire(owner):
        turns.append(owner)
        await asyncio.sleep(0)


async def run_callers(queue: FairQueue, owners: list[int]) -> list[int]:
    """Return the owners of callers that arrive in this order, in the order of their turns."""
    turns: list[int] = []
    await asyncio.gather(*(wait_for_turn(queue, owner, turns) for owner in owners))
    return turns


def test_owners_take_turns() -> None:
    owners = [1] * 5 + [2] * 3 + [3]
    assert asyncio.run(run_callers(FairQueue(), owners)) == [1, 2, 3, 1, 2, 1, 2, 1, 1]


@pytest.mark.parametrize("slots", [1, 3])
def test_an_owner_waits_for_at_most_one_turn_of_each_other_owner(slots: int) -> None:
    crowd = [owner for owner in range(50) for _ in range(20)]

    async def run() -> None:
        queue, turns = FairQueue(slots=slots), list[int]()
        callers = [asyncio.create_task(wait_for_turn(queue, owner, turns)) for owner in crowd]
        while len(turns) < 130:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0)
        turns.clear()
        await wait_for_turn(queue, 99, turns)
        before = turns[: turns.index(99)]
        assert len(before) == len(set(before))
        await asyncio.gather(*callers)

    asyncio.run(run())


def test_callers_of_an_owner_are_let_in_one_at_a_time() -> None:
    running = 0

    async def call(queue: FairQueue) -> None:
        nonlocal running
        async with queue.acquire(1):
            running += 1
            assert running == 1
            await asyncio.sleep(0)
            running -= 1

    async def run() -> None:
        queue = FairQueue(slots=4)
        await asyncio.gather(*(call(queue) for _ in range(10)))

    asyncio.run(run())


@pytest.mark.parametrize("iterations", range(8))
def test_a_cancelled_caller_passes_on_its_turn(iterations: int) -> None:
    """Callers are cancelled while they wait for other callers of the owner, for other owners, or are being woken."""

    async def run() -> None:
        queue, turns = FairQueue(), list[int]()
        callers = [asyncio.create_task(wait_for_turn(queue, number % 3, turns)) for number in range(30)]
        for _ in range(iterations):
            await asyncio.sleep(0)
        cancelled = callers[iterations % 3 :: 2]
        for caller in cancelled:
            caller.cancel()
        outcomes = await asyncio.gather(*callers, return_exceptions=True)
        assert len(turns) >= sum(outcome is None for outcome in outcomes) >= 15
        assert (dict(queue._callers), dict(queue._locks)) == ({}, {})  # noqa: SLF001 - entries that remain show only in the memory
        async with asyncio.timeout(10):
            assert await run_callers(queue, [1, 1, 2]) == [1, 2, 1]

    asyncio.run(run())


def test_the_callers_of_an_owner_are_limited() -> None:
    async def run() -> None:
        queue, turns = FairQueue(max_callers=2), list[int]()
        async with asyncio.TaskGroup() as tasks, queue.acquire(1):
            tasks.create_task(wait_for_turn(queue, 1, turns))
            await asyncio.sleep(0)
            with pytest.raises(Unavailable, match="Too many requests are waiting"):
                await wait_for_turn(queue, 1, [])
            tasks.create_task(wait_for_turn(queue, 2, turns))
            await asyncio.sleep(0)
            assert turns == []

    asyncio.run(run())


def test_a_full_queue_lets_in_only_owners_without_a_caller() -> None:
    async def run() -> None:
        queue, turns = FairQueue(max_callers=2), list[int]()
        async with asyncio.TaskGroup() as tasks, queue.acquire(0):
            for owner in range(1, 20):
                tasks.create_task(wait_for_turn(queue, owner, turns))
            await asyncio.sleep(0)
            with pytest.raises(Unavailable):
                await wait_for_turn(queue, 1, [])
            tasks.create_task(wait_for_turn(queue, 20, turns))
        assert sorted(turns) == list(range(1, 21))

    asyncio.run(run())
