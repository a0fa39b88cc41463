"""The store of imports, and its types."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from listings.contract.history import Actor
from listings.domain.errors import Problem
from listings.domain.model import ImportedListing, Listing, ListingChange


class ImportKey(msgspec.Struct, frozen=True):
    """Identifies an import: the account, the file's SHA-256 and format, and whether its ids are ignored."""

    bucket: int
    account_id: int
    digest: bytes
    format: str
    new_ids: bool


class Position(NamedTuple):
    """A position between two rows of a file: the number of bytes and of lines before it."""

    offset: int = 0
    line: int = 0


class ImportProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The position that an import has reached, and the number of rows so far by outcome.

    Times are Unix times in seconds. `import_id` is the id of the import's first change set, or None if it
    changed nothing.
    """

    offset: int = 0
    line: int = 0
    created: int = 0
    updated: int = 0
    unchanged: int = 0
    rejected: int = 0
    started_at: int
    finished_at: int | None = None
    import_id: int | None = None

    @property
    def position(self) -> Position:
        """The position after the last processed row."""
        return Position(self.offset, self.line)


class ImportRow(NamedTuple):
    """A row to be imported: the ids that it names, if any, and the function that decides what to do with it.

    `decide` is pure. It receives the listing with the id of the row or, if the row has no id, the account's undeleted
    listing with the external id of the row, or None if there is none. It returns a listing to create (with the id, or
    with a new one if the row has none) or the changes to the existing listing, or it raises a Problem.
    """

    listing_id: int | None
    decide: Callable[[Listing | None], ImportedListing | ListingChange]
    external_id: str | None = None


RowOutcome: TypeAlias = Literal["created", "updated", "unchanged"] | Problem


class ImportBatch(NamedTuple):
    """The rows between two positions of a file. The last batch of a file sets `finished_at`."""

    start: Position
    end: Position
    rows: Sequence[ImportRow]
    finished_at: int | None = None


class ImportStore(Protocol):
    """Stores imports, with the guarantees of `contract.store.Store`."""

    async def find_import(self, key: ImportKey) -> ImportProgress | None:
        """Return the progress of an import, or None if it was never started."""

    async def begin_import(
        self, key: ImportKey, expected: ImportProgress | None, started_at: int, last_id: int
    ) -> ImportProgress | None:
        """Start an import into an existing account from the beginning and return its progress.

        Ids up to `last_id`, which is 0 or an id in the account's bucket, are reserved: from now on, a new listing gets
        one of them only if a row of an import has that id.
        Return None and write nothing if the stored progress is not `expected`: another process started the import.
        Raises Problem("account_disabled") if the account is erased.
        """

    async def import_listings(
        self, key: ImportKey, batch: ImportBatch, actor: Actor | None = None
    ) -> list[RowOutcome] | None:
        """Call the `decide` of each row in order, write the decisions, and store the progress.

        If a new listing's row has an id, the listing gets that id, and ids generated later are higher. If `decide`
        raises a Problem, it is the outcome of that row only. Return None and write nothing if the import is not at the
        start of the batch, because another process continued or finished it. Raises Problem("account_disabled") if the
        account is erased.
        """
