"""The client: wrk, driven by `load.lua`."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from bench import RejectedRequest

_SCRIPT = Path(__file__).with_name("load.lua")
_COUNTED = re.compile(
    r"^COUNTED requests=(\d+) microseconds=(\d+) bytes=(\d+) p50=(\d+) p99=(\d+) refused=(\d+) broken=(\d+)$",
    re.MULTILINE,
)
_COMPLAINT = re.compile(r"^\s*(Non-2xx or 3xx responses: .*|Socket errors: .*)$", re.MULTILINE)
_GRACE_SECONDS = 30.0
_TIMEOUT = "60s"  # beyond any run: an answer that is late is slow, not wrong


class Count(NamedTuple):
    """What wrk has counted; latencies in microseconds, `size` in bytes of all answers with their headers."""

    requests: int
    seconds: float
    size: int
    p50: int
    p99: int

    @property
    def rate(self) -> float:
        """Answered requests a second."""
        return self.requests / self.seconds


def program() -> str:
    """Where wrk is. Raises Refusal when it is missing."""
    found = shutil.which("wrk")
    if found is None:
        raise RejectedRequest("wrk, the client of the benchmark, is missing: install it with `apt-get install wrk`")
    return found


def version() -> str:
    """What wrk calls itself."""
    said = subprocess.run([program(), "-v"], capture_output=True, text=True, check=False).stdout
    return " ".join(said.split()[1:2]) or "unknown"


def drive(port: int, requests: Path, connections: int, seconds: int, core: int, *, least: int = 1) -> Count:  # noqa: PLR0913 - what wrk asks for
    """Send the requests of a file for some seconds from one core. Raises Refusal unless every answer was good.

    `least`: how many must be answered.
    """
    command = [program(), "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", _TIMEOUT, "-s", str(_SCRIPT)]
    with subprocess.Popen(
        [*command, f"http://127.0.0.1:{port}/", "--", str(requests)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        os.sched_setaffinity(process.pid, {core})
        try:
            return parse(process.communicate(timeout=seconds + _GRACE_SECONDS)[0], least=least)
        finally:
            process.kill()


def parse(output: str, *, least: int = 1) -> Count:
    """What stands in wrk's output. Raises Refusal for an answer that is no success, and for a broken connection."""
    counted = _COUNTED.search(output)
    if counted is None:
        raise RejectedRequest(f"wrk has counted nothing: {' '.join(output.split())[:300]}")
    requests, microseconds, size, p50, p99, refused, broken = map(int, counted.groups())
    complaint = _COMPLAINT.search(output)
    if complaint is not None or refused or broken:
        told = complaint[1] if complaint is not None else f"{refused} refused, {broken} broken"
        raise RejectedRequest(f"Not every answer was a success, so nothing was measured: {told}")
    if requests < least:
        raise RejectedRequest("Not one request was answered")
    return Count(requests, microseconds / 1e6, size, p50, p99)
