"""Types for scripts: transactions written as generators of statements, independent of the engine."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeAlias, TypeVar

import msgspec

from listings.store.mapping import Row

T = TypeVar("T")


class Query(msgspec.Struct, gc=False):
    """A statement of a script. If `locks` is set, the rows it reads stay locked until the transaction ends."""

    statement: str
    values: Row
    locks: bool = False


class QueryMany(msgspec.Struct, gc=False):
    """A statement that runs once for each row of values. The result is the rows of all runs.

    `many` may be slow to iterate: unless it is a list, that happens in a thread.
    """

    statement: str
    many: Iterable[Row]


Script: TypeAlias = Generator[Query | QueryMany, list[Any], T]
"""A transaction that yields one statement at a time, receives its rows, and returns the result.

A store that repeats the transaction builds and runs a new one."""


def run_all(scripts: Iterable[Script[T]]) -> Script[list[T]]:
    """Run scripts one after another and return their results."""
    results = []
    for script in scripts:
        results.append((yield from script))  # noqa: PERF401 - a comprehension can't yield
    return results


def run_query(statement: str, *values: object) -> Script[list[Any]]:
    """Return a script with a single statement. Its result is the rows."""
    return (yield Query(statement, values))


class ScriptedStore(ABC):
    """A store that can run statements and scripts, as its database engine does."""

    @abstractmethod
    async def _fetch(self, statement: str, *values: object) -> list[Any]:
        """Return all rows of a read-only statement."""

    @abstractmethod
    async def _run_script(self, build_script: Callable[[], Script[T]], *, changes_callers: bool = False) -> T:
        """Run a script in a transaction, which completes even if the caller is cancelled.

        Set `changes_callers` if the script may change a result of `Store.find_caller`.
        """

    @abstractmethod
    async def _run_reads(self, build_script: Callable[[], Script[T]]) -> T:
        """Run a script that only reads, in a snapshot."""
