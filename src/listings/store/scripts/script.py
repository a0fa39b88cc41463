"""Types for scripts: transactions written as generators of statements, independent of the engine."""

from collections.abc import Generator
from typing import Any, NamedTuple, TypeAlias, TypeVar

from listings.store.mapping import Row

T = TypeVar("T")


class Query(NamedTuple):
    """A statement of a script. If `locks` is set, the rows it reads stay locked until the transaction ends."""

    statement: str
    values: Row
    locks: bool = False


Script: TypeAlias = Generator[Query, list[Any], T]
"""A transaction that yields one statement at a time, receives its rows, and returns the result.

A store may run it again when it repeats the transaction."""


def run_query(statement: str, *values: object) -> Script[list[Any]]:
    """Return a script with a single statement. Its result is the rows."""
    return (yield Query(statement, values))
