"""A request runs without a task as long as it awaits only futures that need no task, such as those of SQLite writes."""

import asyncio
from collections.abc import Coroutine

import pytest

from listings.http.eager import RequestCoroutine, run
from listings.store.sqlite.writer.calls import Promise


async def run_iterations(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def start(running: RequestCoroutine) -> RequestCoroutine:
    """Run until the coroutine blocks, and return the coroutine for a task."""
    rests: list[RequestCoroutine] = []
    run(running, rests.append)
    return rests[0]


def test_awaiting_promises_needs_no_task() -> None:
    async def run_scenario() -> list[object]:
        results: list[object] = []
        promises: list[Promise[str]] = [Promise() for _ in range(2)]

        async def request() -> None:
            results.append(await promises[0])
            with pytest.raises(ValueError, match="no"):
                await promises[1]
            results.append("no")

        run(request(), lambda _: pytest.fail("a task is started"))
        assert results == []
        promises[0].set_result("yes")
        await run_iterations()
        assert results == ["yes"]
        promises[1].set_exception(ValueError("no"))
        await run_iterations()
        return results

    assert asyncio.run(run_scenario()) == ["yes", "no"]


def test_awaiting_anything_else_continues_in_a_task() -> None:
    async def run_scenario() -> None:
        tasks: list[asyncio.Task[None] | None] = []
        started: list[asyncio.Task[None]] = []
        promise: Promise[None] = Promise()

        async def request() -> None:
            for awaitable in (promise, asyncio.sleep(0), promise):
                await awaitable
                tasks.append(asyncio.current_task())

        run(request(), lambda rest: started.append(asyncio.get_running_loop().create_task(rest)))
        promise.set_result(None)
        await run_iterations(6)
        assert tasks == [None, started[0], started[0]]

    asyncio.run(run_scenario())


def test_a_task_gets_a_coroutine() -> None:
    rest = start(asyncio.sleep(0))
    assert isinstance(rest, Coroutine)  # since Python 3.12, tasks accept no generators
    rest.close()


def test_results_errors_and_cancellation_reach_a_request_in_a_task() -> None:
    async def run_scenario() -> list[object]:
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in range(3)]
        results: list[object] = []

        async def request() -> None:
            results.append(await futures[0])
            with pytest.raises(ValueError, match="no") as error:
                await futures[1]
            results.append(str(error.value))
            try:
                await futures[2]
            except asyncio.CancelledError:
                results.append("cancelled")
                raise

        task = loop.create_task(start(request()))
        futures[0].set_result("yes")
        await run_iterations(1)
        futures[1].set_exception(ValueError("no"))
        await run_iterations()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        return results

    assert asyncio.run(run_scenario()) == ["yes", "no", "cancelled"]
