"""The listings and changes in the rows of a file, and the errors of invalid rows."""

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from listings.domain import fields, timestamps
from listings.domain.faults import FieldError, InvalidFieldsError, preview, raise_faults
from listings.domain.imports import ExportedVersion
from listings.domain.model import ImportedListing, Listing, ListingChange
from listings.service.listings.steps import find_changes
from listings.service.transfer.rows import Row

T = TypeVar("T")

_MAX_VIEWS = 2**53 - 1
_VERSION = re.compile(r"v([1-9][0-9]{0,15})-([0-9a-f]+)")


def parse_version(content: Mapping[str, object], origin: str) -> int | None:
    """Return the version in a row that this database exported, or None. `origin` is that of its exports."""
    version = content.get("version")
    match = _VERSION.fullmatch(version) if isinstance(version, str) else None
    return int(match[1]) if match is not None and match[2] == origin else None


def parse_exported(content: Mapping[str, object], origin: str) -> ExportedVersion | None:
    """Return when a row was exported, or None if it has neither a version of this database nor a valid updated_at."""
    number = parse_version(content, origin)
    if number is not None:
        return ExportedVersion(number)
    try:
        updated_at = content.get("updated_at")
        return None if updated_at is None else ExportedVersion(None, _parse_past(updated_at, "9"))
    except FieldError:
        return None


def parse_external_id(row: Row, *, new_ids: bool) -> str | None:
    """Return the external id by which to find a row's listing, or None. A row with deleted_at is found by id only.

    For an invalid external id, this returns None, and `decide` raises the error.
    """
    external_id = row.content.get("external_id")
    if external_id is None and new_ids and row.content.get("id") is not None:
        external_id = str(row.content["id"])
    if external_id is None or row.content.get("deleted_at") is not None:
        return None
    try:
        return str(fields.FIELDS["external_id"].rule(external_id))
    except FieldError:
        return None


class _RowParser:
    def __init__(self, content: Mapping[str, object], now: float, cell_errors: Mapping[str, FieldError]) -> None:
        self.now = timestamps.format_timestamp(now)
        self._content = content
        self._faults = [error.locate(name) for name, error in cell_errors.items()]

    def parse_fields(self, parse: Callable[[fields.Body], tuple[T, list[str]]]) -> T | None:
        names = {fault.field.partition("[")[0] for fault in self._faults}
        try:
            return parse({name: self._content[name] for name in fields.FIELDS if name in self._content})[0]
        except InvalidFieldsError as problem:
            self._faults = [*(fault for fault in problem.faults if fault.field not in names), *self._faults]
            return None

    def parse_value(self, name: str, rule: Callable[[object], T], default: T) -> T:
        if self._content.get(name) is None:
            return default
        try:
            return rule(self._content[name])
        except FieldError as error:
            self._faults.append(error.locate(name))
            return default

    def parse_past(self, value: object) -> str:
        return _parse_past(value, self.now)

    def parse_deletion(self) -> int | None:
        return self.parse_value("deleted_at", lambda value: timestamps.parse_timestamp(self.parse_past(value)), None)

    def raise_faults(self, *, is_deleted: bool) -> None:
        if is_deleted and self._content.get("is_active") is True:  # decision G11
            error = FieldError("must be false for a deleted listing, got true", "inconsistent")
            self._faults.append(error.locate("is_active"))
        raise_faults(self._faults)


def build_imported_listing(
    content: Mapping[str, object], now: float, cell_errors: Mapping[str, FieldError]
) -> ImportedListing:
    """Return the new listing that a row describes. Its last update is `now`, so that programs that poll find it.

    `cell_errors` are those of cells that are not in the content. Raises InvalidFieldsError, which lists every error.
    """
    row = _RowParser(content, now, cell_errors)
    new = row.parse_fields(fields.parse_new_listing)
    views = row.parse_value("view_count", _parse_views, 0)
    created_at = row.parse_value("created_at", row.parse_past, row.now)
    deleted_at = row.parse_deletion()
    row.raise_faults(is_deleted=deleted_at is not None)
    assert new is not None  # noqa: S101 - otherwise there is an error
    if deleted_at is not None:
        new = msgspec.structs.replace(new, is_active=False)
    return ImportedListing(new, views, created_at, row.now, deleted_at)


def build_listing_change(
    content: Mapping[str, object],
    listing: Listing,
    now: float,
    cell_errors: Mapping[str, FieldError],
    *,
    may_restore: bool,
) -> ListingChange:
    """Return the changes that a row makes to its listing. It may also delete the listing or, if it may, restore it.

    Raises InvalidFieldsError, which lists every error.
    """
    row = _RowParser(content, now, cell_errors)
    change = dict(row.parse_fields(fields.parse_listing_change) or {})
    if "deleted_at" in content and (may_restore or content["deleted_at"] is not None):
        change["deleted_at"] = row.parse_deletion()
    is_deleted = change.get("deleted_at", listing.deleted_at) is not None
    row.raise_faults(is_deleted=is_deleted)
    if is_deleted:
        change["is_active"] = False
    return find_changes(listing, change, row.now)


def _parse_views(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_VIEWS:
        raise FieldError(f"must be an integer from 0 to {_MAX_VIEWS}, got {preview(value)}", "out_of_range")
    return value


def _parse_past(value: object, now: str) -> str:
    try:
        text = timestamps.format_timestamp(timestamps.parse_timestamp(value)) if isinstance(value, str) else None
    except ValueError:
        text = None
    if text is None or text != value:
        raise FieldError(f"must be a time like {now}, got {preview(value)}")
    if text > now:
        raise FieldError(f"must not be in the future, got {value}", "out_of_range")
    return text
