"""Imports of listings: their progress, their rows, and conflicts of rows with later edits."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from listings.domain import timestamps
from listings.domain.account_limits import AccountLimits, AccountSize
from listings.domain.changes import format_pairs
from listings.domain.errors import Problem
from listings.domain.faults import preview
from listings.domain.model import ImportedListing, Listing, ListingChange, Value

_MAX_EDITS = 1_000  # that are compared with a row


class ImportKey(msgspec.Struct, frozen=True):
    """Identifies an import: the account, the SHA-256 of file and options, the format, and whether ids are ignored."""

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
    changed nothing. `name` is that of the file.
    """

    offset: int = 0
    line: int = 0
    created: int = 0
    updated: int = 0
    unchanged: int = 0
    rejected: int = 0
    restored: int = 0
    deleted: int = 0
    conflicts: int = 0
    started_at: int
    finished_at: int | None = None
    import_id: int | None = None
    name: str = ""

    @property
    def position(self) -> Position:
        """The position after the last processed row."""
        return Position(self.offset, self.line)


class Edit(NamedTuple):
    """An edit of a listing: when, and which attributes it changed. `base_version`: see `ImportRow.check`."""

    moment: int
    kind: str
    base_version: int | None
    fields: str  # separated by commas

    @property
    def names(self) -> frozenset[str]:
        """The names of the changed attributes."""
        return frozenset(self.fields.split(","))


class ConflictProblem(Problem):
    """A row would change attributes of a listing that somebody has changed since it was exported.

    `attributes` has the stored value and that of the row of each.
    """

    def __init__(self, values: Mapping[str, tuple[Value, Value]]) -> None:
        shown = format_pairs(values).items()
        changes = [f"{name} is {preview(now)} now, the row has {preview(row)}" for name, (now, row) in shown]
        super().__init__("precondition_failed", f"Changed after this file was exported: {'; '.join(changes)}")
        self.attributes = values


class ExportedVersion(NamedTuple):
    """When a row was exported: at a version of its listing, or else after its last update at `updated_at`."""

    number: int | None
    updated_at: str = ""

    def is_current(self, listing: Listing) -> bool:
        """Return whether the listing was not edited since."""
        return listing.version <= self.number if self.number else listing.updated_at <= self.updated_at

    def find_later(self, listing: Listing, edits: Sequence[Edit]) -> tuple[Sequence[Edit], int, bool]:
        """Return the later edits, the version that was exported, and whether all later edits are stored.

        `edits` are those of the listing, newest first.
        """
        if self.number:
            count = listing.version - self.number
            return edits[:count], self.number, len(edits) >= count
        moment = timestamps.parse_timestamp(self.updated_at)
        later = [edit for edit in edits if edit.moment > moment]
        is_complete = len(later) < len(edits) or len(edits) >= listing.version - 1
        return later, listing.version - len(later), is_complete


class ImportRow(NamedTuple):
    """A row to be imported: the ids that it names, if any, and the function that decides what to do with it.

    `decide` is pure. It receives the listing with the id of the row or, if the row has no id, the account's undeleted
    listing with the external id of the row, or None if there is none. It returns a listing to create (with the id, or
    with a new one if the row has none) or the changes to the existing listing, or it raises a Problem.
    """

    listing_id: int | None
    decide: Callable[[Listing | None], ImportedListing | ListingChange]
    external_id: str | None = None
    exported: ExportedVersion | None = None
    overwrite: bool = False  # later changes

    def count_edits(self, listing: Listing) -> int:
        """Return how many edits of the listing `check` needs, newest first."""
        if self.exported is None or self.exported.is_current(listing):
            return 0
        return min(listing.version - (self.exported.number or 1), _MAX_EDITS)

    def check(self, listing: Listing, change: ListingChange, edits: Sequence[Edit]) -> int | None:
        """Return the version of the listing that the row was exported with, if it is known.

        Raises ConflictProblem if another writer has changed a field since that the row would change. Imports of rows
        with the same version, the `base_version` of their edits, are not other writers. Raises
        Problem("invalid_request") if the row would restore a listing that such an import has deleted.
        """
        if self.exported is None or self.exported.is_current(listing):
            return None if self.exported is None else self.exported.number or listing.version
        later, base_version, is_complete = self.exported.find_later(listing, edits)
        if self.overwrite:
            return base_version
        others = [edit.names for edit in later if edit.kind != "import" or edit.base_version != base_version]
        changed = frozenset[str]().union(*others) if is_complete else change.keys()
        values = {
            name: (getattr(listing, name), value)
            for name, value in change.items()
            if name in changed and name != "updated_at"
        }
        if values:
            raise ConflictProblem(values)
        if change.get("deleted_at", 0) is None and any("deleted_at" in edit.names for edit in later):
            message = "deleted_at is empty, but the listing was deleted after this file was exported: export it again"
            raise Problem("invalid_request", message)
        return base_version


RowOutcome: TypeAlias = Literal["created", "updated", "unchanged", "restored", "deleted"] | Problem


def count_outcomes(outcomes: Sequence[RowOutcome]) -> dict[str, int]:
    """Return the number of rows by the name that their outcome has in `ImportProgress`."""
    names = ("created", "updated", "unchanged", "rejected", "restored", "deleted", "conflicts")
    counts = {name: outcomes.count(name) for name in names}
    counts["conflicts"] = sum(isinstance(outcome, ConflictProblem) for outcome in outcomes)
    counts["rejected"] = sum(isinstance(outcome, Problem) for outcome in outcomes) - counts["conflicts"]
    return counts


class NoRoomToCreateError(Problem):
    """A row would create a listing in an account that is full. `index` is that of the row in its batch."""

    index = 0


def require_room(
    limits: AccountLimits, size: AccountSize, growth: AccountSize, decision: ImportedListing | ListingChange
) -> None:
    """Raise Problem("account_full") if an account of this size may not grow by the growth of a row."""
    try:
        limits.require_room(size, growth)
    except Problem as full:
        if isinstance(decision, ImportedListing):
            raise NoRoomToCreateError(full.code, full.message) from None
        raise


class ImportBatch(NamedTuple):
    """The rows between two positions of a file. The last batch of a file sets `finished_at`."""

    start: Position
    end: Position
    rows: Sequence[ImportRow]
    finished_at: int | None = None
    stops_when_full: bool = False

    def require_room(self, index: int, outcome: RowOutcome) -> None:
        """Raise the outcome of a row if it stops the import, because the account is full."""
        if self.stops_when_full and isinstance(outcome, NoRoomToCreateError):
            outcome.index = index
            raise outcome
