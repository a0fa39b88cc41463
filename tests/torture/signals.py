"""The same work done beside itself, in a process for each core."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def cores() -> int:
    """How many there are for us."""
    return len(os.sched_getaffinity(0))


def beside(work: Callable[[T], R], shares: Sequence[T]) -> list[R]:
    """The results of all shares, each in a process that has no other, as many at work as there are cores."""
    with ProcessPoolExecutor(
        min(len(shares), cores()), multiprocessing.get_context("spawn"), max_tasks_per_child=1
    ) as pool:
        return list(pool.map(work, shares))
