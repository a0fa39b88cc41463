"""Starts commands by forking a process that has the program loaded: `python -m tests.torture.zygote`.

A start takes some hundredths of a second instead of half a one, so that there can be a thousand of them. Reads a line
of JSON for each command, and answers with the number of its process, which has ended when its descriptor says so.
"""

import ctypes
import importlib
import json
import os
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.torture.memory import VARIABLE, watch

_LOADED = (
    "listings.api.handlers",
    "listings.http.server",
    "listings.cli.serve",
    "listings.ratelimit.fallback",
    "listings.store.postgres.store",
    "listings.store.postgres.migrate",
    "tests.torture.faults",
)
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def main() -> None:
    """Until standard input ends."""
    for name in _LOADED:
        importlib.import_module(name)
    for line in sys.stdin:
        order = json.loads(line)
        _bury()
        child = os.fork()
        if child == 0:
            _work(order)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()


def _bury() -> None:
    """Those that have ended; not before the next order, when whoever gave the last one has its descriptor."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _work(order: dict[str, Any]) -> None:
    """In the child, which never returns."""
    code = 1
    try:
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        nothing = os.open(os.devnull, os.O_RDWR)
        for target, source in ((0, nothing), (1, log), (2, log)):
            os.dup2(source, target)
        os.environ.update(order["environment"])
        if VARIABLE in os.environ:
            watch(Path(os.environ[VARIABLE]))
        if order["fault"]:
            getattr(importlib.import_module("tests.torture.faults"), order["fault"])()
        code = importlib.import_module("listings.cli").main(order["arguments"])
    except BaseException:  # noqa: BLE001 - nothing of the parent's may run here
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
