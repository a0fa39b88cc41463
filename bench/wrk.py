"""Runs wrk, the load generator, with `load.lua`."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from bench import BenchmarkError

_SCRIPT = Path(__file__).with_name("load.lua")
_RESULT = re.compile(
    r"^COUNTED requests=(\d+) microseconds=(\d+) bytes=(\d+) p50=(\d+) p99=(\d+) failed=(\d+) broken=(\d+)$",
    re.MULTILINE,
)
_ERROR_LINE = re.compile(r"^\s*(Non-2xx or 3xx responses: .*|Socket errors: .*)$", re.MULTILINE)
_GRACE_SECONDS = 30.0
_TIMEOUT = "60s"  # longer than any run: a late response is slow, not an error


class Count(NamedTuple):
    """The result of wrk; latencies in microseconds, `size` in bytes of all responses with headers."""

    requests: int
    seconds: float
    size: int
    p50: int
    p99: int

    @property
    def rate(self) -> float:
        """Return the responses per second."""
        return self.requests / self.seconds


def find_wrk() -> str:
    """Return the path of wrk. Raise BenchmarkError if it is not installed."""
    found = shutil.which("wrk")
    if found is None:
        raise BenchmarkError("wrk, the load generator, is missing: install it with `apt-get install wrk`")
    return found


def get_version() -> str:
    """Return the version of wrk."""
    output = subprocess.run([find_wrk(), "-v"], capture_output=True, text=True, check=False).stdout
    return " ".join(output.split()[1:2]) or "unknown"


def run_wrk(  # noqa: PLR0913 - options of wrk
    port: int,
    requests: Path,
    connections: int,
    seconds: int,
    core: int,
    *,
    min_requests: int = 1,
    pause: int = 0,
    last_number: int = 0,
) -> Count:
    """Send the requests of a file for some seconds from one core, after a `pause` in milliseconds each.

    Numbers in them begin after `last_number`.

    Raise BenchmarkError for an error response, a broken connection, or fewer than `min_requests` responses.
    """
    command = [find_wrk(), "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", _TIMEOUT, "-s", str(_SCRIPT)]
    with subprocess.Popen(
        [*command, f"http://127.0.0.1:{port}/", "--", str(requests), str(pause), str(last_number)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        os.sched_setaffinity(process.pid, {core})
        try:
            return parse_output(process.communicate(timeout=seconds + _GRACE_SECONDS)[0], min_requests=min_requests)
        finally:
            process.kill()


def parse_output(output: str, *, min_requests: int = 1) -> Count:
    """Parse the output of wrk. Raise BenchmarkError for errors and for too few responses."""
    result = _RESULT.search(output)
    if result is None:
        raise BenchmarkError(f"wrk printed no result: {' '.join(output.split())[:300]}")
    requests, microseconds, size, p50, p99, failed, broken = map(int, result.groups())
    error_line = _ERROR_LINE.search(output)
    if error_line is not None or failed or broken:
        reason = error_line[1] if error_line is not None else f"{failed} error responses, {broken} broken connections"
        raise BenchmarkError(f"Not every response was a success: {reason}")
    if requests < min_requests:
        raise BenchmarkError("wrk received no response")
    return Count(requests, microseconds / 1e6, size, p50, p99)
