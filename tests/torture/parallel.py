"""Runs work in a process per core."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

_PRELOADED = [f"tests.torture.instruments.{name}" for name in ("disk", "kill", "linearizability", "power_cut")]
T = TypeVar("T")
R = TypeVar("R")


def count_cores() -> int:
    """Return the number of cores available to this process."""
    return len(os.sched_getaffinity(0))


def run_in_parallel(work: Callable[[T], R], jobs: Sequence[T]) -> list[R]:
    """Run each job in a new process, as many at a time as there are cores; return the results in order.

    The processes are forks of one that has the instruments loaded and has done nothing else.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    with ProcessPoolExecutor(min(len(jobs), count_cores()), context, max_tasks_per_child=1) as pool:
        return list(pool.map(work, jobs))
