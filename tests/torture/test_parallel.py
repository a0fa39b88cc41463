"""Test the processes of the instruments."""

import os
import time
from multiprocessing.context import ForkServerProcess

import pytest

from tests.torture.parallel import run_in_parallel

_STARTED_SECONDS = 0.5


def _wait(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def test_a_process_that_ends_while_it_is_started_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    start = ForkServerProcess.start

    def start_slowly(process: ForkServerProcess) -> None:
        start(process)
        time.sleep(_STARTED_SECONDS)

    monkeypatch.setattr(ForkServerProcess, "start", start_slowly)
    assert len(set(run_in_parallel(_wait, [_STARTED_SECONDS * 1.5, 0.0]))) == 2
