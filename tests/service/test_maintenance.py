"""What the service does beside the requests: when, and that nothing ends it."""

import asyncio
import logging
from contextlib import suppress

import pytest

from listings.domain.errors import Unavailable
from tests.harness import TIMEOUT, Harness


async def run_maintenance(harness: Harness, monkeypatch: pytest.MonkeyPatch, rounds: int) -> list[float]:
    """The pauses that it asks for, with each over at once, and after so many of them never."""
    pauses: list[float] = []
    all_wait = asyncio.Event()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == rounds + 5:  # in the end each of the five waits
            all_wait.set()
        await (asyncio.sleep(0) if len(pauses) <= rounds else asyncio.Event().wait())

    monkeypatch.setattr(harness.service, "pause", pause)
    task = asyncio.create_task(harness.service.run_maintenance())
    await all_wait.wait()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    monkeypatch.undo()
    return pauses


def test_market_and_searches_are_seen_to_each_second_usage_each_other_and_all_else_each_minute(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sorted(harness.run(run_maintenance(harness, monkeypatch, 0))) == [1, 1, 1, 2, 60]


def test_an_account_that_has_become_large_is_indexed(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    alice = harness.person("alice")
    operations = [{"op": "create", "listing": {"title": "Bike", "content": "Two wheels."}}] * 100
    for _ in range(10):
        reply = harness.fetch("POST", "/api/v1/listings/batch", key=alice.key, json={"operations": operations})
        assert {result["status"] for result in reply.json()["results"]} == {201}
    counts: list[int] = []

    async def trial() -> None:
        indexed, index_accounts = asyncio.Event(), harness.service.index_accounts

        async def index_and_tell() -> int:
            counts.append(await index_accounts())
            indexed.set()
            return counts[-1]

        monkeypatch.setattr(harness.service, "index_accounts", index_and_tell)
        task = asyncio.create_task(harness.service.run_maintenance())
        await asyncio.wait_for(indexed.wait(), TIMEOUT)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    monkeypatch.setattr(harness.service, "pause", lambda _: asyncio.sleep(0.001))
    harness.run(trial())
    assert counts[0] == 1_000
    assert not harness.run(harness.service.store.index_accounts(1)).left


def test_a_part_that_fails_when_it_is_cancelled_ends_all_the_same(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def trial() -> bool:
        begun = asyncio.Event()

        async def fail_at_the_end() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                raise ValueError("no way out")

        monkeypatch.setattr(harness.service, "write_views", fail_at_the_end)
        task = asyncio.create_task(harness.service.run_maintenance())
        await begun.wait()
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=TIMEOUT)
        return task in done

    monkeypatch.setattr("listings.service._MARKET_SECONDS", 0)
    assert harness.run(trial())
    assert "A part of the upkeep failed" in caplog.text


def test_a_part_that_fails_is_told_of_and_done_again_with_all_others(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    alice = harness.person("alice")
    harness.run(harness.service.authenticate(alice.key))

    async def fail() -> None:
        raise ValueError("never this way")

    monkeypatch.setattr(harness.service, "write_usage", fail)
    monkeypatch.setattr(harness.service, "write_views", fail)
    with caplog.at_level(logging.ERROR):
        harness.run(run_maintenance(harness, monkeypatch, 3))
    assert [record.message for record in caplog.records].count("A part of the upkeep failed") == 2
    (key,) = harness.run(harness.service.list_keys(alice.account))
    assert key.last_used_at == int(harness.clock.now)


def test_a_store_that_is_away_is_left_for_the_next_time_without_a_word(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise Unavailable("not now")

    monkeypatch.setattr(harness.service, "write_views", fail)
    harness.run(run_maintenance(harness, monkeypatch, 3))
    assert "upkeep" not in caplog.text
