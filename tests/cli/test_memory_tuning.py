"""The settings of the garbage collector and of malloc."""

import platform
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import Serving
from tests.processes import run_program

MAX_RESERVED = 240_000_000
"""Addresses of an idle service, in bytes: it reserves 180 MB, and 310 MB with an arena for each thread."""

needs_arenas = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has arenas")

_COLLECT = """
import gc
from listings.cli.memory_tuning import tune_garbage_collector
gc.collect()
tune_garbage_collector()
objects, full = [], []
gc.callbacks.append(lambda phase, info: full.append(info) if phase == "stop" and info["generation"] == 2 else None)
for _ in range(200_000):
    objects.append([])  # more than the number of cached responses
print(gc.get_freeze_count() > 1_000, len(full))
gc.collect(0)
cycle = []
cycle.append(cycle)
del cycle
print(gc.collect(0))
"""


def test_full_collections_are_rare_and_young_cycles_are_freed() -> None:
    run = run_program([sys.executable, "-c", _COLLECT], check=True)
    assert run.stdout.split() == ["True", "0", "1"]


_START_THREADS = """
import sys, threading
from pathlib import Path
from listings.cli.memory_tuning import limit_malloc
if sys.argv[1] == "limited":
    limit_malloc()
barrier = threading.Barrier(9)
def allocate():
    data = bytearray(10_000)  # too large for Python's own allocator
    barrier.wait()
    barrier.wait()
for _ in range(8):
    threading.Thread(target=allocate).start()
barrier.wait()
print(Path("/proc/self/statm").read_text().split()[0])
barrier.wait()
"""


@needs_arenas
def test_threads_share_the_arenas_of_malloc() -> None:
    limited, default = (
        int(subprocess.run([sys.executable, "-c", _START_THREADS, which], capture_output=True, check=True).stdout)
        for which in ("limited", "default")
    )
    assert (default - limited) * resource.getpagesize() > 4 * 64 * 1024 * 1024


def read_reserved_bytes(process: int) -> int:
    """Return the size of the addresses that a process has reserved."""
    return int(Path(f"/proc/{process}/statm").read_text("ascii").split()[0]) * resource.getpagesize()


@needs_arenas
@pytest.mark.covers_programs
def test_an_idle_service_reserves_few_addresses(service: Serving) -> None:
    assert read_reserved_bytes(service.process.pid) < MAX_RESERVED
