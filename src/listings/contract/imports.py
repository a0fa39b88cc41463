"""Types of the store's import methods."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from listings.domain.errors import Problem
from listings.domain.model import (
    ImportedListing,
    Listing,
    ListingChange,
)


class ImportKey(msgspec.Struct, frozen=True):
    """What tells imports apart: the account, the file's SHA-256, its format, and whether its ids are passed over."""

    bucket: int
    account_id: int
    digest: bytes
    format: str
    new_ids: bool


class Position(NamedTuple):
    """A place between two rows of a file: how many bytes and how many lines lie before it."""

    offset: int = 0
    line: int = 0


class ImportProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far an import is and what became of the rows so far. Times are seconds since 1970."""

    offset: int = 0
    line: int = 0
    made: int = 0
    changed: int = 0
    unchanged: int = 0
    refused: int = 0
    started_at: int
    finished_at: int | None = None

    @property
    def position(self) -> Position:
        """Behind the last row that is done."""
        return Position(self.offset, self.line)


class ImportRow(NamedTuple):
    """A row to be imported: whose id it has, if any, and its judge.

    `decide` is given the listing of that id, or None. It returns a listing to be made (with that id, or a new one
    where there is none) or what to change of the listing that is there, or raises a Problem. It is pure.
    """

    listing_id: int | None
    decide: Callable[[Listing | None], ImportedListing | ListingChange]


RowOutcome: TypeAlias = Literal["made", "changed", "unchanged"] | Problem


class ImportBatch(NamedTuple):
    """The rows between two places of a file; `finished_at` is given with the last ones."""

    start: Position
    end: Position
    rows: Sequence[ImportRow]
    finished_at: int | None = None
