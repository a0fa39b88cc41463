"""Counts the instructions that a server carries out for a request, by valgrind's callgrind.

A count is nearly the same each time, on a busy machine too. It knows nothing of the kernel's part and of waiting.
"""

import re
import shutil
import subprocess
from itertools import cycle, islice
from pathlib import Path
from statistics import quantiles

from bench import RejectedRequest
from bench.exchange import Request, converse
from bench.servers import Server

REQUESTS = 20
"""How many are counted at a time: few, so that what the server does by the clock falls into few of the counts."""

_COUNTS = 12
_WARM_UP = 200
_TOTAL = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)
_SECONDS = 60
_OUT = "callgrind"


def program() -> str:
    """Where valgrind is. Raises Refusal when it is missing."""
    found = shutil.which("valgrind")
    if found is None or shutil.which("callgrind_control") is None:
        raise RejectedRequest(
            "valgrind, which counts instructions, is missing: install it with `apt-get install valgrind`"
        )
    return found


def under(folder: Path) -> tuple[str, ...]:
    """The command that runs a server and counts; its counts become files of the folder."""
    options = ("--tool=callgrind", f"--callgrind-out-file={folder / _OUT}")
    return ("env", "PYTHONHASHSEED=0", program(), *options)


def instructions(server: Server, requests: list[Request], folder: Path) -> float:
    """Instructions a request: the lower quartile of the counts, which nothing else has fallen into.

    Raises Refusal for an answer that is no success.
    """
    warm_up, *counted = in_parts(requests)
    _ask(server, warm_up)
    return quantiles([_count(server, part, folder) for part in counted], n=4)[0]


def in_parts(requests: list[Request]) -> list[list[Request]]:
    """What is sent before anything is counted, then what is counted each time: none twice, if there are enough."""
    following = cycle(requests)
    return [list(islice(following, size)) for size in (_WARM_UP, *[REQUESTS] * _COUNTS)]


def _count(server: Server, requests: list[Request], folder: Path) -> float:
    """Instructions a request. Counting begins anew, since time has passed in which the server has not been idle."""
    _control(server, "--zero")
    _ask(server, requests)
    before = set(folder.glob(f"{_OUT}.*"))
    _control(server, "--dump")
    (dump,) = set(folder.glob(f"{_OUT}.*")) - before
    return read_total(dump.read_text("utf-8")) / len(requests)


def read_total(dump: str) -> int:
    """The instructions of a dump. Raises Refusal for one without."""
    found = _TOTAL.search(dump)
    if found is None:
        raise RejectedRequest("callgrind has counted nothing")
    return int(found[1])


def _ask(server: Server, requests: list[Request]) -> None:
    for answer in converse(server.port, requests):
        if not 200 <= answer.status < 300:  # noqa: PLR2004 - success
            raise RejectedRequest(f"Not every answer was a success, so nothing was counted: {answer.status}")


def _control(server: Server, option: str) -> None:
    command = ["callgrind_control", option, str(server.process.pid)]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    if outcome.returncode or "OK" not in outcome.stdout:
        raise RejectedRequest(f"callgrind does not obey: {(outcome.stderr or outcome.stdout).strip()}")
