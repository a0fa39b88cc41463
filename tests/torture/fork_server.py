"""Starts commands in forked processes that have the program loaded: `python -m tests.torture.fork_server`.

This takes hundredths of a second instead of half a second, so that an instrument can start a thousand. Each line of
input is a JSON request for a command, and each line of output is the id of its process. The client watches the process
with a pidfd. When it has ended, the client may request its exit code once.
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

from tests.torture.memory import FILE_VARIABLE, start_measuring

_PRELOADED = (
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
    """Serve requests until standard input ends."""
    for name in _PRELOADED:
        importlib.import_module(name)
    codes: dict[int, int] = {}
    for line in sys.stdin:
        request = json.loads(line)
        codes |= _reap_children()
        if "ended" in request:
            answer = codes.pop(request["ended"])
        else:
            answer = os.fork()
            if answer == 0:
                _run_in_child(request)
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


def _reap_children() -> dict[int, int]:
    """Reap ended children, but only before the next request: the client has opened a pidfd by then."""
    codes = {}
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            codes[ended[0]] = os.waitstatus_to_exitcode(ended[1])
    return codes


def _run_in_child(request: dict[str, Any]) -> None:
    code = 1
    try:
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        output, log = (os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND) for name in ("output", "log"))
        null = os.open(os.devnull, os.O_RDWR)
        for target, source in ((0, null), (1, output), (2, log)):
            os.dup2(source, target)
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        if FILE_VARIABLE in os.environ:
            start_measuring(Path(os.environ[FILE_VARIABLE]))
        if request["fault"]:
            getattr(importlib.import_module("tests.torture.faults"), request["fault"])()
        code = importlib.import_module("listings.cli").main(request["arguments"])
    except BaseException:  # noqa: BLE001 - no code of the parent may run in the child
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
