"""The background tasks of the service: their intervals, and that a failure does not stop them."""

import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import pytest

from listings import wiring
from listings.domain.errors import Problem, Unavailable
from listings.service import Options, Services
from listings.service.indexing import Pause
from listings.settings import Settings
from tests.harness import TIMEOUT, Harness, load_test_settings, prepare_database


def set_pause(harness: Harness, monkeypatch: pytest.MonkeyPatch, pause: Pause) -> None:
    monkeypatch.setattr(harness.services, "_options", Options(pause=pause))
    monkeypatch.setattr(harness.services.market, "_pause", pause)


async def run_background_tasks(harness: Harness, monkeypatch: pytest.MonkeyPatch, rounds: int) -> list[float]:
    """Run the background tasks for a number of pauses of no length. Returns the lengths that it requested."""
    pauses: list[float] = []
    all_paused = asyncio.Event()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == rounds + 10:  # finally, each of the ten tasks is in an endless pause
            all_paused.set()
        await (asyncio.sleep(0) if len(pauses) <= rounds else asyncio.Event().wait())

    set_pause(harness, monkeypatch, pause)
    task = asyncio.create_task(harness.services.run_background_tasks())
    await asyncio.wait_for(all_paused.wait(), TIMEOUT)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    monkeypatch.undo()
    return pauses


def test_the_tasks_run_every_few_seconds_minute_or_hour(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sorted(harness.run(run_background_tasks(harness, monkeypatch, 0))) == [0.2, 1, 1, 1, 2, 10, 15, 60, 60, 3600]


def test_a_service_without_a_rate_limit_has_the_same_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Harness(tmp_path, rate_limit="0") as harness:
        assert len(harness.run(run_background_tasks(harness, monkeypatch, 0))) == 10


def test_an_account_that_became_large_is_indexed(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    alice = harness.person("alice")
    operations = [{"op": "create", "listing": {"title": "Bike", "content": "Two wheels."}}] * 100
    for _ in range(10):
        reply = harness.fetch("POST", "/api/v1/listings/batch", key=alice.key, json={"operations": operations})
        assert {result["status"] for result in reply.json()["results"]} == {201}
    counts: list[int] = []

    async def run_until_indexed() -> None:
        indexed, index_accounts = asyncio.Event(), harness.services.market.index_accounts

        async def index_and_signal() -> int:
            counts.append(await index_accounts())
            indexed.set()
            return counts[-1]

        monkeypatch.setattr(harness.services.market, "index_accounts", index_and_signal)
        task = asyncio.create_task(harness.services.run_background_tasks())
        await asyncio.wait_for(indexed.wait(), TIMEOUT)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    set_pause(harness, monkeypatch, lambda _: asyncio.sleep(0.001))
    harness.run(run_until_indexed())
    assert counts[0] == 1_000
    assert not harness.run(harness.store.index_accounts(1)).has_more


class FailsOnCancel:
    """A job that runs until it is cancelled, and then raises another exception."""

    def __init__(self) -> None:
        self.started = asyncio.Event()

    async def run(self) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("failed on cancel")


def test_a_job_that_fails_when_cancelled_still_stops(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def stops_when_cancelled() -> bool:
        job = FailsOnCancel()
        monkeypatch.setattr(harness.services.market, "write_views", job.run)
        task = asyncio.create_task(harness.services.run_background_tasks())
        await job.started.wait()
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=TIMEOUT)
        return task in done

    monkeypatch.setattr("listings.service.background_tasks.MARKET_SECONDS", 0)
    assert harness.run(stops_when_cancelled())
    assert "The background job FailsOnCancel.run failed" in caplog.text


def test_after_a_cancellation_no_further_job_runs(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    purged: list[bool] = []

    async def run_and_cancel() -> None:
        job = FailsOnCancel()

        async def purge() -> None:
            purged.append(True)

        monkeypatch.setattr(harness.services.usage, "write", job.run)
        monkeypatch.setattr(harness.services.sessions, "purge", purge)
        task = asyncio.create_task(harness.services.run_background_tasks())
        await job.started.wait()
        task.cancel()
        await asyncio.wait([task], timeout=TIMEOUT)

    monkeypatch.setattr("listings.service.background_tasks.MINUTELY_SECONDS", 0)
    harness.run(run_and_cancel())
    assert purged == []


def test_a_failed_maintenance_of_the_limiter_is_started_again(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise ValueError("always fails")

    assert harness.services.limiter is not None
    monkeypatch.setattr(harness.services.limiter, "run_maintenance", fail)

    async def run() -> None:
        failed_twice = asyncio.Event()

        async def pause(_: float) -> None:
            await asyncio.sleep(0)
            if caplog.text.count("always fails") > 1:
                failed_twice.set()

        set_pause(harness, monkeypatch, pause)
        task = asyncio.create_task(harness.services.run_background_tasks())
        await asyncio.wait_for(failed_twice.wait(), TIMEOUT)
        assert not task.done()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    harness.run(run())


def test_a_failing_job_is_logged_and_retried_with_the_others(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    alice = harness.person("alice")
    harness.run(harness.services.access.authenticate(alice.key))

    async def fail() -> None:
        raise ValueError("always fails")

    monkeypatch.setattr(harness.services.usage, "write", fail)
    monkeypatch.setattr(harness.services.market, "write_views", fail)
    with caplog.at_level(logging.ERROR):
        harness.run(run_background_tasks(harness, monkeypatch, 3))
    assert sum(record.message.endswith("fail failed") for record in caplog.records) == 2
    (key,) = harness.run(harness.services.keys.list_of(alice.account))
    assert key.last_used_at == int(harness.clock.now)


def test_an_unavailable_store_is_retried_without_a_log_line(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise Unavailable("unavailable")

    monkeypatch.setattr(harness.services.market, "write_views", fail)
    harness.run(run_background_tasks(harness, monkeypatch, 3))
    assert "maintenance" not in caplog.text


def list_open_files(folder: Path) -> list[str]:
    paths = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # of the listing itself
            paths.append(str(link.readlink()))
    return [path for path in paths if path.startswith(f"{folder}/")]


async def open_and_close(settings: Settings) -> None:
    async with wiring.open_services(settings) as services:
        await services.require_ready()
        assert list_open_files(settings.file.parent)


def test_an_invalid_setting_leaves_no_database_open(tmp_path: Path) -> None:
    settings = load_test_settings(tmp_path, smtp_url="smtps://u:p@smtp.example", mail_from="")
    prepare_database(settings)
    with pytest.raises(Problem, match="which needs LISTINGS_MAIL_FROM") as failure:
        asyncio.run(open_and_close(settings))
    assert failure.tb is not None  # its frames still refer to the store
    assert list_open_files(tmp_path) == []


def test_a_failure_of_the_last_writes_leaves_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_: Services) -> NoReturn:
        raise OSError("the disk fails")

    settings = load_test_settings(tmp_path)
    prepare_database(settings)
    monkeypatch.setattr(Services, "write_pending", fail)
    with pytest.raises(OSError, match="the disk fails") as failure:
        asyncio.run(open_and_close(settings))
    assert failure.tb is not None  # its frames still refer to the store
    assert list_open_files(tmp_path) == []
