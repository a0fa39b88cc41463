"""Statements over a SQLite connection, every cursor read to its end, and what their rows mean."""

from collections.abc import Generator
from typing import Any, NamedTuple, TypeAlias, TypeVar

from listings.store.mapping import Row

T = TypeVar("T")


class Query(NamedTuple):
    """A statement of a script. `locks`: the rows that it reads stay as they are until the transaction ends."""

    statement: str
    values: Row
    locks: bool = False


Script: TypeAlias = Generator[Query, list[Any], T]
"""What a transaction does, statement by statement, for engines of any kind: it is given the rows of each.

It may be run more than once."""


def query(statement: str, *values: object) -> Script[list[Any]]:
    """The script of one statement, and its rows."""
    return (yield Query(statement, values))
