"""Types for scripts: transactions written as generators of statements, independent of the engine."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Generator, Iterable
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

import msgspec

from listings.store.mapping import Row

T = TypeVar("T")
P = ParamSpec("P")
Store = TypeVar("Store", bound="ScriptedStore")


class Query(msgspec.Struct, gc=False):
    """A statement of a script. If `locks` is set, the rows it reads stay locked until the transaction ends."""

    statement: str
    values: Row
    locks: bool = False


class QueryMany(msgspec.Struct, gc=False):
    """A statement that runs once for each row of values. The result is the rows of all runs.

    `many` may be slow to iterate: if it is not a list, an async engine iterates over it in a thread.

    `at_once` is a statement that does the same in one execution, on an engine with arrays. Its parameters are the first
    value, which all rows share, and an array for each further value. A revert then takes a third less time.
    """

    statement: str
    many: Iterable[Row]
    at_once: str = ""


Script: TypeAlias = Generator[Query | QueryMany, list[Any], T]
"""A transaction that yields one statement at a time, receives its rows, and returns the result.

A store that repeats the transaction builds and runs a new one."""


def run_all(scripts: Iterable[Script[T]]) -> Script[list[T]]:
    """Run scripts one after another and return their results."""
    results = []
    for script in scripts:
        results.append((yield from script))  # noqa: PERF401 - a comprehension can't yield
    return results


class ScriptedStore(ABC):
    """A store that runs statements and scripts on its engine."""

    @abstractmethod
    async def _fetch(self, statement: str, *values: object) -> list[Any]:
        """Return all rows of a read-only statement."""

    @abstractmethod
    async def _run_script(
        self, build_script: Callable[[], Script[T]], *, changes_callers: bool = False, is_dry_run: bool = False
    ) -> T:
        """Run a script in a transaction, which completes even if the caller is cancelled.

        Set `changes_callers` if the script may change a result of `Store.find_caller`. Set `is_dry_run` if every run
        that writes raises an exception, so that nothing is committed (a dry run).
        """

    @abstractmethod
    async def _run_reads(self, build_script: Callable[[], Script[T]]) -> T:
        """Run a script that only reads, in a snapshot."""

    async def _write(self, statement: str, *values: object) -> list[Any]:
        """Run a single statement in a transaction and return its rows."""
        return await self._run_script(partial(_run_query, statement, values))

    async def _find(self, build: Callable[..., T], statement: str, *values: object) -> T | None:
        """Return what `build` returns for the columns of the first row, or None if there is no row."""
        rows = await self._fetch(statement, *values)
        return build(*rows[0]) if rows else None


def _run_query(statement: str, values: Row) -> Script[list[Any]]:
    return (yield Query(statement, values))


def transaction(
    method: Callable[Concatenate[Store, P], Script[T]],
) -> Callable[Concatenate[Store, P], Coroutine[Any, Any, T]]:
    """Decorate a method that returns a script: calling it runs the script in a transaction."""
    return _run_in_transaction(method, changes_callers=False)


def caller_transaction(
    method: Callable[Concatenate[Store, P], Script[T]],
) -> Callable[Concatenate[Store, P], Coroutine[Any, Any, T]]:
    """Like `transaction`, for a script that may change a result of `Store.find_caller`."""
    return _run_in_transaction(method, changes_callers=True)


def _run_in_transaction(
    method: Callable[Concatenate[Store, P], Script[T]], *, changes_callers: bool
) -> Callable[Concatenate[Store, P], Coroutine[Any, Any, T]]:
    @wraps(method)
    async def run(self: Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run_script(partial(method, self, *args, **kwargs), changes_callers=changes_callers)

    return run
