"""Runs work in a process per core."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def count_cores() -> int:
    """Return the number of cores available to this process."""
    return len(os.sched_getaffinity(0))


def run_in_parallel(work: Callable[[T], R], jobs: Sequence[T]) -> list[R]:
    """Run each job in a new process, as many at a time as there are cores; return the results in order."""
    with ProcessPoolExecutor(
        min(len(jobs), count_cores()), multiprocessing.get_context("spawn"), max_tasks_per_child=1
    ) as pool:
        return list(pool.map(work, jobs))
