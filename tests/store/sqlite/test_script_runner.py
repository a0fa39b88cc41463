"""Long scripts let the event loop run between their statements."""

import asyncio
from functools import partial
from pathlib import Path
from threading import Event
from time import perf_counter, sleep

import apsw
import pytest

from listings.domain.errors import Unavailable
from listings.store.query import Query
from listings.store.scripts.script import Script, Transaction
from listings.store.sqlite import script_runner
from listings.store.sqlite.script_runner import run_script
from listings.store.sqlite.store import SqliteStore
from tests.harness import TIMEOUT

ONE = Query[tuple[int]]("SELECT 1")
STEPS = 3
STEP_SECONDS = 0.005  # longer than a script works without a pause


def run_in_thread(script: Script[None], loop: asyncio.AbstractEventLoop) -> "asyncio.Future[None]":
    return loop.run_in_executor(None, lambda: run_script(apsw.Connection(":memory:"), script, loop))


def test_the_event_loop_runs_between_the_statements_of_a_long_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script_runner, "_MAX_PAUSE_SECONDS", TIMEOUT)
    events: list[str] = []

    def respond() -> None:
        sleep(STEP_SECONDS)  # keeps the event loop busy
        events.append("respond")

    async def work(tx: Transaction, loop: asyncio.AbstractEventLoop) -> None:
        await tx.fetch(ONE, ())
        for _ in range(STEPS):
            sleep(STEP_SECONDS)  # noqa: ASYNC251 - the script's own work
            loop.call_soon_threadsafe(respond)
            await tx.fetch(ONE, ())
            events.append("work")

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        await run_in_thread(partial(work, loop=loop), loop)

    asyncio.run(scenario())
    assert events == ["respond", "work"] * STEPS


def test_a_busy_event_loop_delays_a_long_script_only_briefly() -> None:
    finished = Event()

    async def work(tx: Transaction) -> None:
        for _ in range(STEPS):
            await tx.fetch(ONE, ())
            sleep(STEP_SECONDS)  # noqa: ASYNC251 - the script's own work
        finished.set()

    async def scenario() -> None:
        running = run_in_thread(work, asyncio.get_running_loop())
        assert finished.wait(TIMEOUT)  # blocks the event loop
        await running

    asyncio.run(scenario())


def test_a_short_script_does_not_wait_for_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script_runner, "_WORK_SECONDS", TIMEOUT)
    monkeypatch.setattr(script_runner, "_MAX_PAUSE_SECONDS", TIMEOUT)
    finished = Event()

    async def work(tx: Transaction) -> None:
        for _ in range(STEPS):
            await tx.fetch(ONE, ())
        finished.set()

    async def scenario() -> float:
        began = perf_counter()
        running = run_in_thread(work, asyncio.get_running_loop())
        assert finished.wait(TIMEOUT)  # blocks the event loop
        seconds = perf_counter() - began
        await running
        return seconds

    assert asyncio.run(scenario()) < TIMEOUT / 2


def test_a_closing_store_waits_for_its_read_and_rejects_queued_ones(database: Path) -> None:
    entered, unblock = Event(), Event()

    async def block(tx: Transaction) -> str:
        entered.set()
        assert unblock.wait(10)
        await tx.fetch(ONE, ())
        return "done"

    async def scenario() -> None:
        store = SqliteStore(database)
        await store.open()
        running = asyncio.ensure_future(store._run_reads(block))  # noqa: SLF001 - a read that lasts
        await asyncio.to_thread(entered.wait, TIMEOUT)
        queued = asyncio.ensure_future(store.count_listings(1, 1))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(store.close())
        await asyncio.sleep(0)
        unblock.set()  # by the event loop, which the close does not block
        assert await running == "done"
        with pytest.raises(Unavailable, match="stopping"):
            await queued
        await closing

    asyncio.run(scenario())


def test_a_script_that_awaits_anything_else_fails() -> None:
    connection = apsw.Connection(":memory:")

    async def wait_for_the_event_loop(tx: Transaction) -> None:
        await tx.fetch(ONE, ())
        await asyncio.sleep(0)

    with pytest.raises(AssertionError, match="wait_for_the_event_loop"):
        run_script(connection, wait_for_the_event_loop)
