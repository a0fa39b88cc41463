"""Scripts: transactions that run on every engine."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar, TypeVarTuple, Unpack

from listings.store.change_sql import PAGE_CREATES
from listings.store.query import Query, R, Row
from listings.store.sql import build_each

T = TypeVar("T")
Columns = TypeVarTuple("Columns")
P = ParamSpec("P")
Store = TypeVar("Store", bound="ScriptedStore")


class Transaction(ABC):
    """Runs the statements of a script, on the engine of the store."""

    page_creates = PAGE_CREATES
    """The statement that pages creates, as the engine runs it."""

    @abstractmethod
    async def fetch(self, statement: Query[R], values: Row, *, locks: bool = False) -> list[R]:
        """Run a statement, and return its rows. If `locks` is set, they stay locked until the transaction ends."""

    @abstractmethod
    async def fetch_many(self, statement: Query[R], many: Iterable[Row], at_once: Query[R] | None = None) -> list[R]:
        """Run a statement once for each row of values. Return the rows of all runs.

        `many` may be slow to iterate: if it is not a list, an async engine iterates over it in a thread.

        `at_once` is a statement that does the same in one execution, on an engine with arrays. Its parameters are the
        first value, which all rows share, and an array for each further value.
        """

    async def fetch_each(self, statement: Query[R], many: Iterable[Row]) -> list[R]:
        """Run a statement once for each row of integers, in one execution on an engine with arrays.

        With one execution, a revert takes a third less time.
        """
        return await self.fetch_many(statement, many, build_each(statement))

    async def find(
        self,
        build: Callable[[Unpack[Columns]], T],
        statement: Query[tuple[*Columns]],
        values: Row,
        *,
        locks: bool = False,
    ) -> T | None:
        """Return what `build` returns for the columns of the first row, or None if there is no row."""
        rows = await self.fetch(statement, values, locks=locks)
        return build(*rows[0]) if rows else None

    async def get(
        self,
        build: Callable[[Unpack[Columns]], T],
        statement: Query[tuple[*Columns]],
        values: Row,
        *,
        locks: bool = False,
    ) -> T:
        """Return what `build` returns for the columns of the first row, which exists."""
        rows = await self.fetch(statement, values, locks=locks)
        return build(*rows[0])


Script: TypeAlias = Callable[[Transaction], Coroutine[Any, Any, T]]
"""A transaction on any engine: it awaits nothing but the methods of its argument. A store may repeat it."""


class ScriptedStore(ABC):
    """A store that runs statements and scripts on its engine."""

    @abstractmethod
    async def _fetch(self, statement: Query[R], *values: object) -> list[R]:
        """Return all rows of a read-only statement."""

    @abstractmethod
    async def _run_script(self, script: Script[T], *, changes_callers: bool = False, is_dry_run: bool = False) -> T:
        """Run a script in a transaction, which completes even if the caller is cancelled.

        Set `changes_callers` if the script may change a result of `Store.find_caller`. Set `is_dry_run` if every run
        that writes raises an exception, so that nothing is committed (a dry run).
        """

    @abstractmethod
    async def _run_reads(self, script: Script[T]) -> T:
        """Run a script that only reads, in a snapshot."""

    async def _write(self, statement: Query[R], *values: object) -> list[R]:
        return await self._run_script(lambda tx: tx.fetch(statement, values))

    async def _list(
        self, build: Callable[[Unpack[Columns]], T], statement: Query[tuple[*Columns]], *values: object
    ) -> list[T]:
        return [build(*row) for row in await self._fetch(statement, *values)]

    async def _find(
        self, build: Callable[[Unpack[Columns]], T], statement: Query[tuple[*Columns]], *values: object
    ) -> T | None:
        rows = await self._fetch(statement, *values)
        return build(*rows[0]) if rows else None


def transaction(
    method: Callable[Concatenate[Store, Transaction, P], Coroutine[Any, Any, T]], *, changes_callers: bool = False
) -> Callable[Concatenate[Store, P], Coroutine[Any, Any, T]]:
    """Decorate a method that is a script: calling it runs the script in a transaction."""

    @wraps(method)
    async def run(self: Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run_script(lambda tx: method(self, tx, *args, **kwargs), changes_callers=changes_callers)

    return run


def caller_transaction(
    method: Callable[Concatenate[Store, Transaction, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Store, P], Coroutine[Any, Any, T]]:
    """Like `transaction`, for a script that may change a result of `Store.find_caller`."""
    return transaction(method, changes_callers=True)
