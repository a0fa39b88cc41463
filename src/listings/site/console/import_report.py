"""The rows of an import as a page shows them."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from listings.domain.errors import Problem
from listings.domain.faults import InvalidFieldsError
from listings.domain.fields import FIELDS
from listings.domain.imports import ConflictProblem, ImportProgress, Position, RowOutcome
from listings.domain.market.regions import fold_region
from listings.service.transfer.importer import ImportPhase
from listings.service.transfer.rows import Row
from listings.site.console.faults import describe_faults
from listings.site.console.history.describe import ChangedField, describe_attribute

_MAX_ROWS = 500
_MAX_COLUMNS = 20
_MAX_REGIONS = 10
_MAX_TEXT_LENGTH = 80

Span: TypeAlias = tuple[int, int]
"""The offsets of a row's first byte, and of the next row's."""


class RowReport(NamedTuple):
    """The outcome of a row, which may also be "conflict" or "rejected", with the reason, and the changed fields."""

    line: int
    listing_id: str
    title: str
    outcome: str
    reason: str
    fields: Sequence[ChangedField]


class ImportReport:
    """The rows of an import that a page shows (`listings.service.transfer.importer.ImportProgressListener`).

    Only the first rows and the first rejected rows are stored, and the spans of all rejected ones with their reasons.
    """

    def __init__(self, on_batch: Callable[[int], None] | None = None) -> None:
        """`on_batch` is called after each imported batch with the byte offset up to which the file is done."""
        self.rows: list[RowReport] = []
        self.rejected: list[RowReport] = []
        self.rejected_spans: dict[Span, str] = {}
        self.ignored_columns: list[str] = []
        self.regions: Counter[tuple[str, str]] = Counter()  # those that are filtered as another one
        self.count = 0
        self.resumed_after_line = self.resumed_at = 0  # `resumed_at`: the offset of the first row after them
        self.resumed_import_id: int | None = None
        self.rejected_before = 0  # rows that were rejected before the interruption
        self._on_batch = on_batch

    @property
    def rejected_count(self) -> int:
        """The number of rejected rows, including those before an interruption."""
        return self.rejected_before + len(self.rejected_spans)

    def on_resume(self, done: ImportProgress) -> None:
        self.resumed_after_line, self.resumed_import_id = done.line, done.import_id
        self.resumed_at = done.offset
        self.rejected_before = done.rejected + done.conflicts

    def on_progress(self, phase: ImportPhase, position: Position) -> None:
        if self._on_batch is not None and phase == "Importing":
            self._on_batch(position.offset)

    def on_outcome(self, row: Row, outcome: RowOutcome) -> None:
        self.count += 1
        report = _report_row(row, outcome)
        if len(self.rows) < _MAX_ROWS:
            self.rows.append(report)
        region = row.content.get("region")
        if isinstance(region, str) and fold_region(region) != region and len(self.regions) < _MAX_REGIONS:
            self.regions[region[:_MAX_TEXT_LENGTH], fold_region(region)] += 1
        if report.reason:
            self.rejected_spans[row.offset, row.end.offset] = report.reason
        if report.reason and len(self.rejected) < _MAX_ROWS:
            self.rejected.append(report)

    def on_ignored_columns(self, names: frozenset[str]) -> None:
        if len(self.ignored_columns) == _MAX_COLUMNS:
            return
        cut = (name[:_MAX_TEXT_LENGTH] for name in names)
        self.ignored_columns += sorted(name for name in cut if name not in self.ignored_columns)[:_MAX_COLUMNS]
        del self.ignored_columns[_MAX_COLUMNS:]


def _report_row(row: Row, outcome: RowOutcome) -> RowReport:
    listing_id, title = (row.content.get(name) for name in ("id", "title"))
    cut = ("" if listing_id is None else str(listing_id)[:_MAX_TEXT_LENGTH], str(title or "")[:_MAX_TEXT_LENGTH])
    if isinstance(outcome, Problem):
        kind = "conflict" if isinstance(outcome, ConflictProblem) else "rejected"
        return RowReport(row.line, *cut, kind, describe_problem(outcome), ())
    fields = [describe_attribute(name, *pair) for name, pair in row.diff.items()]
    return RowReport(row.line, *cut, outcome, "", fields)


def describe_problem(problem: Problem) -> str:
    """Return the sentences for a rejected row."""
    if isinstance(problem, InvalidFieldsError):
        return " ".join(describe_faults(problem).values())
    if isinstance(problem, ConflictProblem):
        pairs = [describe_attribute(name, *pair) for name, pair in problem.attributes.items()]
        changes = ", ".join(
            f"{label} is \u201c{now}\u201d now, your file has \u201c{row}\u201d" for label, now, row in pairs
        )
        return f"Changed since your file was exported: {changes}."
    if problem.code == "external_id_taken":
        return f"{FIELDS['external_id'].label}{problem.message.removeprefix('external_id')}."
    return f"{problem.message[:1].upper()}{problem.message[1:]}."
