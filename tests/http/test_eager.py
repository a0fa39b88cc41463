"""A request is run without a task for as long as it waits for nothing, or for promises alone."""

import asyncio
from collections.abc import Coroutine

import pytest

from listings.contract.listings import Promise
from listings.http.eager import Running, run


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def rest_of(running: Running) -> Running:
    """What a task would be given."""
    rests: list[Running] = []
    run(running, rests.append)
    return rests[0]


def test_what_waits_for_promises_needs_no_task_and_hears_results_and_errors() -> None:
    async def scene() -> list[object]:
        heard: list[object] = []
        promises: list[Promise[str]] = [Promise() for _ in range(2)]

        async def request() -> None:
            heard.append(await promises[0])
            with pytest.raises(ValueError, match="no"):
                await promises[1]
            heard.append("no")

        run(request(), lambda _: pytest.fail("a task is started"))
        assert heard == []
        promises[0].set_result("yes")
        await turns()
        assert heard == ["yes"]
        promises[1].set_exception(ValueError("no"))
        await turns()
        return heard

    assert asyncio.run(scene()) == ["yes", "no"]


def test_what_waits_for_anything_else_goes_on_in_a_task() -> None:
    async def scene() -> None:
        tasks: list[asyncio.Task[None] | None] = []
        started: list[asyncio.Task[None]] = []
        promise: Promise[None] = Promise()

        async def request() -> None:
            for one in (promise, asyncio.sleep(0), promise):
                await one
                tasks.append(asyncio.current_task())

        run(request(), lambda rest: started.append(asyncio.get_running_loop().create_task(rest)))
        promise.set_result(None)
        await turns(6)
        assert tasks == [None, started[0], started[0]]

    asyncio.run(scene())


def test_what_a_task_is_given_is_a_coroutine_as_every_python_asks() -> None:
    rest = rest_of(asyncio.sleep(0))
    assert isinstance(rest, Coroutine)  # Python 3.12: Task(coro) takes no generator any more
    rest.close()


def test_results_errors_and_cancellations_reach_what_goes_on_in_a_task() -> None:
    async def scene() -> list[object]:
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in range(3)]
        heard: list[object] = []

        async def request() -> None:
            heard.append(await futures[0])
            with pytest.raises(ValueError, match="no") as refused:
                await futures[1]
            heard.append(str(refused.value))
            try:
                await futures[2]
            except asyncio.CancelledError:
                heard.append("cancelled")
                raise

        task = loop.create_task(rest_of(request()))
        futures[0].set_result("yes")
        await turns(1)
        futures[1].set_exception(ValueError("no"))
        await turns()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        return heard

    assert asyncio.run(scene()) == ["yes", "no", "cancelled"]
