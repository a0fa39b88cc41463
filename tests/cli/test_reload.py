"""The record of reloads on a disk without room."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from listings.cli import reload as reloading
from listings.workers import reload_record
from listings.workers.reload_record import ReloadRecord, Reloads, get_path, read_reloads
from tests.cli.commands import Cli

IGNORE_HANGUPS = "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); print(flush=True); sys.stdin.read()"


def fail(*_: object) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_reloads_are_recorded_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = get_path(tmp_path, os.getpid())
    with ReloadRecord(tmp_path) as record:
        monkeypatch.setattr(reload_record, "replace_file", fail)
        record.begin()
        assert read_reloads(path) == Reloads(started=1)
        record.end("A worker exited with code 1 during startup")
        assert read_reloads(path) == Reloads(1, 1, "A worker exited with code 1 during startup")
        record.begin()
        record.end(None)
        assert read_reloads(path) == Reloads(2, 2)
    assert not path.exists()


def test_a_record_that_cannot_be_written_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reload_record, "replace_file", fail)
    with ReloadRecord(tmp_path) as record:
        record.begin()
        assert read_reloads(get_path(tmp_path, os.getpid())) is None


def test_a_damaged_record_is_none(tmp_path: Path) -> None:
    path = get_path(tmp_path, 1)
    path.write_bytes(b'{"started":')
    assert read_reloads(path) is None


@pytest.fixture
def process() -> Iterator[int]:
    """A process that ignores SIGHUP."""
    command = [sys.executable, "-c", IGNORE_HANGUPS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


def test_a_reload_that_is_not_recorded_fails(cli: Cli, process: int, monkeypatch: pytest.MonkeyPatch) -> None:
    (cli.folder / "data").mkdir()
    get_path(cli.folder / "data", process).write_bytes(b'{"started":0,"finished":0,"error":null}')
    monkeypatch.setattr(reloading, "_BEGIN_SECONDS", 0.2)
    assert "does not say how the reload goes" in cli.get_error("reload", str(process))
