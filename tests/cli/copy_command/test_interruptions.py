"""Copies that are interrupted, or run while the source is written to."""

import asyncio
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from listings.domain.errors import Problem
from listings.store.migrations import UNFINISHED_COPY
from listings.store.sqlite.connections import open_writer
from listings.store.sqlite_to_postgres import copy as postgres_copy
from listings.store.sqlite_to_postgres import target as targets
from tests.cli.commands import DEADLINE, Cli
from tests.cli.copy_command.copies import Source, Target, are_equal, open_harness
from tests.cli.transfers import start
from tests.store import databases


@pytest.mark.uncovered
def test_a_killed_copy_is_continued_by_the_next_run(cli: Cli, source: Source, target: Target, other: Target) -> None:
    add_listings(source, 12_000)
    started = time.monotonic()
    with start(cli.folder, "copy", "--to", other.url) as process:
        process.wait(DEADLINE)
    duration, chance = time.monotonic() - started, random.Random(7)
    while kill_after_write(cli.folder, target, chance) == other.count():
        target.empty()  # the copy had finished before it was killed
    assert 0 < target.count() < other.count()
    kill_after_write(cli.folder, target, chance)
    kills = 0
    while kills < 5:
        if kill_after(cli.folder, target, chance.uniform(0.3, 0.9) * duration):
            kills += 1
        else:
            duration *= 0.9  # the first copy was slower
    cli.run_ok("copy", "--to", target.url)
    assert are_equal(source, target)
    assert target.dump() == other.dump()


def add_listings(source: Source, number: int) -> None:
    """Add listings to dora's account, enough for several batches."""
    with closing(databases.connect(source.file)) as connection, connection:
        for serial in range(1000, 1000 + number):
            values = (serial, 2050, "Tandem", databases.CREATED)
            connection.execute(databases.LISTING, values).fetchall()


def kill_after_write(folder: Path, target: Target, chance: random.Random) -> int:
    """Start a copy, kill it shortly after it has written, and return the number of copied rows."""
    before = target.count()
    with start(folder, "copy", "--to", target.url) as process:
        while not process.has_ended and target.count() <= before:
            time.sleep(0.005)  # leave the CPU to the program
        if not process.ends_within(chance.uniform(0, 0.02)):
            process.kill()
    return target.count()


def kill_after(folder: Path, target: Target, seconds: float) -> bool:
    """Start a copy and kill it after some seconds. Return False if it had finished before."""
    with start(folder, "copy", "--to", target.url) as process:
        if not process.ends_within(seconds):
            process.kill()
        return process.fetch_exit_code() == -signal.SIGKILL


def test_commands_reject_an_unfinished_copy(cli: Cli, source: Source, target: Target) -> None:
    with pytest.raises(StoppedError):
        copy(source.file, target.url, Stop(after=800))
    assert target.run("SELECT count(*) FROM accounts")[0][0] > 0
    for command in (["account", "list"], ["migrate"], ["serve", "--port", "0"]):
        assert "`listings copy` again" in cli.get_error("--database-url", target.url, *command)
    cli.run_ok("copy", "--to", target.url)
    assert "alice" in cli.run_ok("--database-url", target.url, "account", "list").out


class StoppedError(Exception):
    """Raised by `Stop`."""


class Stop:
    """A progress callback that stops a copy after some rows."""

    def __init__(self, after: int) -> None:
        self._after = after

    def __call__(self, done: int, total: int) -> None:
        assert done <= total
        if done >= self._after:
            raise StoppedError


def copy(file: Path, url: str, progress: Any) -> None:
    asyncio.run(postgres_copy.copy(file, url, progress=progress))


def test_writes_during_a_copy_are_reported_and_copied_by_the_next_run(cli: Cli, source: Source, target: Target) -> None:
    with open_harness(source.folder) as harness:
        written: list[int] = []

        def write(done: int, total: int) -> None:
            assert done <= total
            if len(written) < 1:
                fields = {"title": "Meanwhile", "content": "Two wheels."}
                written.extend(
                    harness.fetch("POST", "/api/v1/listings", key=person.key, json=fields).status
                    for person in source.cast[:2]
                )

        with pytest.raises(Problem) as raised:
            copy_in_a_thread(source.file, target.url, write)
    assert written == [201, 201]
    assert raised.value.message.startswith(
        "2 accounts changed during the copy: stop the service, and run the copy again"
    )
    assert "Meanwhile" not in str(target.run("SELECT title FROM listings"))
    assert "`listings copy` again" in cli.get_error("--database-url", target.url, "account", "list")
    assert cli.data("copy", "--to", target.url)["written"] <= 8
    assert are_equal(source, target)


def test_mail_that_was_sent_during_a_copy_is_reported(source: Source, target: Target) -> None:
    columns = "id, kind, recipient, detail, created_at, attempts"  # without an account
    with closing(open_writer(source.file)) as writer:
        writer.execute(f"INSERT INTO mails ({columns}) VALUES ('m', 'password_reset', 'x', '{{}}', 1, 0)").fetchall()
        with pytest.raises(Problem, match="The database changed during the copy"):
            copy(source.file, target.url, lambda *_: writer.execute("DELETE FROM mails WHERE id = 'm'").fetchall())


def test_no_service_starts_on_a_copy_while_it_is_checked(cli: Cli, source: Source, target: Target) -> None:
    cli.run_ok("copy", "--to", target.url)
    marks: list[int] = []

    def look(_done: int, _total: int) -> None:
        marks.append(len(target.run(f"SELECT 1 FROM schema_migrations WHERE version = {UNFINISHED_COPY}")))

    copy_in_a_thread(source.file, target.url, look)
    assert len(marks) > 4
    assert set(marks) == {1}


def test_a_target_that_a_service_uses_is_rejected(
    cli: Cli, source: Source, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "_MAX_SESSION_END_SECONDS", 1)
    cli.run_ok("copy", "--to", target.url)
    with open_harness(source.folder / "service", target.url):
        message = cli.get_error("copy", "--to", target.url)
    assert message == "A service or a command is using the target: stop it, then copy again"
    cli.run_ok("--database-url", target.url, "account", "list")
    cli.run_ok("copy", "--to", target.url)


def copy_in_a_thread(file: Path, url: str, progress: Any) -> None:
    """Copy in another thread, because `progress` runs the event loop of the harness in this one."""
    calls: Queue[Any] = Queue()
    returns: Queue[Any] = Queue()

    def forward(done: int, total: int) -> None:
        calls.put((done, total))
        returns.get()

    def run() -> None:
        try:
            copy(file, url, forward)
        finally:
            calls.put(None)

    with ThreadPoolExecutor(1) as thread:
        result = thread.submit(run)
        while (call := calls.get()) is not None:
            progress(*call)
            returns.put(None)
        result.result()
