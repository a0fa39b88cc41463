"""A request whose first step was taken outside of any task goes on in one."""

import asyncio
import inspect

import pytest

from listings.api.cycle import go_on


def test_what_goes_on_is_a_coroutine_as_every_python_asks_of_a_task() -> None:
    running = asyncio.sleep(0)
    rest = go_on(running, running.send(None))
    assert inspect.iscoroutine(rest)  # Python 3.12: Task(coro) takes no generator any more
    rest.close()
    running.close()


def test_results_errors_and_cancellations_reach_the_one_who_waits() -> None:
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

        running = request()
        task = loop.create_task(go_on(running, running.send(None)))
        futures[0].set_result("yes")
        await asyncio.sleep(0)
        futures[1].set_exception(ValueError("no"))
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        return heard

    assert asyncio.run(scene()) == ["yes", "no", "cancelled"]
