"""Statements that know the types of their rows."""

from typing import Any, Generic, TypeAlias, TypeVar

Row: TypeAlias = tuple[Any, ...]
R = TypeVar("R", bound=Row)
R_co = TypeVar("R_co", bound=Row, covariant=True)


class Query(str, Generic[R_co]):
    """An SQL statement. Its rows are tuples of the type in brackets: `Query[tuple[int, str]]("SELECT …")`.

    asyncpg accepts only `str` itself: a statement that bypasses `Session` is converted, `connection.fetch(str(one))`.
    """

    __slots__ = ()


Command: TypeAlias = Query[tuple[()]]
"""A statement without rows."""
