"""Counts the instructions per response of a server with valgrind's callgrind.

Counts hardly vary, even on a busy machine. They do not include the kernel and waiting.
"""

import re
import shutil
import subprocess
from itertools import cycle, islice
from pathlib import Path

from bench import BenchmarkError
from bench.http_client import Request, send_all
from bench.servers import Server

REQUESTS = 20
"""Requests per count: few, so that periodic work of the server falls into few of the counts."""

_COUNTS = 12
_WARM_UP = 200
_TOTAL = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)
_TIMEOUT_SECONDS = 60
_FILE_PREFIX = "callgrind"


def find_valgrind() -> str:
    """Return the path of valgrind. Raise BenchmarkError if it is not installed."""
    found = shutil.which("valgrind")
    if found is None or shutil.which("callgrind_control") is None:
        raise BenchmarkError(
            "valgrind, which counts instructions, is missing: install it with `apt-get install valgrind`"
        )
    return found


def build_command(folder: Path) -> tuple[str, ...]:
    """Return the prefix of a command that counts its instructions; the counts go to files in the folder."""
    options = ("--tool=callgrind", f"--callgrind-out-file={folder / _FILE_PREFIX}")
    return ("env", "PYTHONHASHSEED=0", find_valgrind(), *options)


def count_instructions(server: Server, requests: list[Request], folder: Path, divisor: int = 1) -> float:
    """Return the instructions per request: the least of several counts, to exclude periodic work.

    `divisor` reduces the number of requests, for expensive ones.

    Raise BenchmarkError if a response is not a success.
    """
    warm_up, *counted = split_requests(requests, divisor)
    _send(server, warm_up)
    return min(_count(server, part, folder) for part in counted)


def split_requests(requests: list[Request], divisor: int = 1) -> list[list[Request]]:
    """Return the requests of the warm-up and of each count, none twice if there are enough."""
    endless = cycle(requests)
    return [list(islice(endless, size // divisor)) for size in (_WARM_UP, *[REQUESTS] * _COUNTS)]


def _count(server: Server, requests: list[Request], folder: Path) -> float:
    """Return the instructions per request, from zero: the server has also worked since the last count."""
    _control(server, "--zero")
    _send(server, requests)
    before = set(folder.glob(f"{_FILE_PREFIX}.*"))
    _control(server, "--dump")
    (dump,) = set(folder.glob(f"{_FILE_PREFIX}.*")) - before
    return read_total(dump.read_text("utf-8")) / len(requests)


def read_total(dump: str) -> int:
    """Return the total of a dump. Raise BenchmarkError if it has none."""
    found = _TOTAL.search(dump)
    if found is None:
        raise BenchmarkError("callgrind has counted no instructions")
    return int(found[1])


def _send(server: Server, requests: list[Request]) -> None:
    for response in send_all(server.port, requests):
        if not 200 <= response.status < 300:  # noqa: PLR2004 - success
            raise BenchmarkError(f"Nothing was counted, because a response had status {response.status}")


def _control(server: Server, option: str) -> None:
    command = ["callgrind_control", option, str(server.process.pid)]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_SECONDS)
    if outcome.returncode or "OK" not in outcome.stdout:
        raise BenchmarkError(f"callgrind_control failed: {(outcome.stderr or outcome.stdout).strip()}")
