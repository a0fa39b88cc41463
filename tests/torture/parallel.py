"""Runs work in a process per core."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from typing import TypeVar

_PRELOADED = [f"tests.torture.instruments.{name}" for name in ("disk", "kill", "linearizability", "power_cut")]
T = TypeVar("T")
R = TypeVar("R")


def count_cores() -> int:
    return len(os.sched_getaffinity(0))


def run_in_parallel(work: Callable[[T], R], jobs: Sequence[T]) -> list[R]:
    """Run all jobs at the same time, each in a new process; return the results in order.

    The processes are forks of one that has the instruments loaded and has done nothing else. Each has an executor of
    its own: one executor with `max_tasks_per_child=1` waits forever if a process that it has just started returns its
    result before the executor has noted the process (Python 3.11).
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    with ExitStack() as stack:
        executors = [stack.enter_context(ProcessPoolExecutor(1, context)) for _ in jobs]
        futures = [executor.submit(work, job) for executor, job in zip(executors, jobs, strict=True)]
        return [future.result() for future in futures]
