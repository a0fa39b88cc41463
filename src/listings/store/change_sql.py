"""The SQL statements for change sets. See `sql` for the conventions."""

from typing import TypeAlias

from listings.domain.account_limits import CHANGE_BYTES
from listings.store.mapping import ListingRow
from listings.store.query import Command, Query
from listings.store.sql import LISTING_COLUMNS, TEXT_BYTES, build_page

Span: TypeAlias = tuple[int, int]
"""The first and the last of the ids of change sets that a restore skipped."""

MeasuredChange: TypeAlias = tuple[int, int, int, str | None, int]
"""A row of MEASURE_CHANGES: change set, number, listing, the created listings if it describes a set, and bytes."""

ChangeRow: TypeAlias = tuple[int, int, int, int, int, str, int | None, str, str, str | None, str | None]
"""The columns `CHANGE_COLUMNS`, the external id, and the name of the group."""

CreatedRow: TypeAlias = tuple[int, int | None, int | None, int]
"""A row of PAGE_CREATES: the listing, its author, the change set that created it, and the bytes of its texts."""

LaterEdit: TypeAlias = tuple[int, int, int, str, int]
"""A row of LIST_LATER: the listing, the change set and number of the edit, its fields and its bytes."""

CreatedListing: TypeAlias = tuple[*ListingRow, int | None]
"""A listing, and its author."""

CHANGE_COLUMNS = "edit_revision, number, listing_id, moment, author, kind, import_id, fields, detail"

_GROUP_NAME_COLUMNS = """
CASE WHEN import_id IS NULL OR kind = 'import' THEN NULL
WHEN kind = 'reverted' THEN (
    SELECT CAST(id AS text) FROM reverts
    WHERE reverts.bucket = $1 AND reverts.account_id = changes.account_id AND group_id = import_id)
ELSE COALESCE((
    SELECT name FROM change_groups
    WHERE change_groups.bucket = $1 AND change_groups.account_id = changes.account_id AND id = import_id
        AND change_groups.kind = 'named'),
    '#' || import_id) END
"""
"""The id of the revert that a change belongs to, or the name of its group."""

_CHANGES_WITH_ID_COLUMNS = (
    f"{CHANGE_COLUMNS}, "
    "(SELECT external_id FROM listings WHERE listings.bucket = $1 AND listings.id = changes.listing_id), "
    f"{_GROUP_NAME_COLUMNS}"
)

ADD_CHANGE = Command(f"""
INSERT INTO changes (bucket, account_id, {CHANGE_COLUMNS}, last_serial, base_version)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
""")
SET_IMPORT_EDIT_REVISION = Command("""
UPDATE imports SET edit_revision = $6
WHERE bucket = $1 AND account_id = $2 AND digest = $3 AND format = $4 AND new_ids = $5
""")
GET_EDIT_STATE = Query[tuple[int, int, int, int, int]]("""
SELECT edit_revision, purged_revision, COALESCE((
    SELECT max(last_revision) FROM lost_changes AS l WHERE l.bucket = $1 AND l.account_id = $2), 0),
    purged_serial, purged_at
FROM account_state WHERE bucket = $1 AND account_id = $2
""")
LIST_LOST_CHANGES = Query[Span]("""
SELECT first_revision, last_revision FROM lost_changes WHERE bucket = $1 AND account_id = $2 ORDER BY last_revision
""")
FIND_START = Query[tuple[int]]("""
SELECT last_serial FROM changes
WHERE bucket = $1 AND account_id = $2 AND edit_revision <= $3 AND number = 0
ORDER BY edit_revision DESC, number DESC LIMIT 1
""")
FIND_SET_BEFORE = Query[tuple[int, int]]("""
SELECT edit_revision, moment FROM changes
WHERE bucket = $1 AND account_id = $2 AND edit_revision <= $3 AND number = 0
ORDER BY edit_revision DESC, number DESC LIMIT 1
""")
FIND_SET_AFTER = Query[tuple[int]]("""
SELECT edit_revision FROM changes
WHERE bucket = $1 AND account_id = $2 AND edit_revision > $3 AND number = 0
ORDER BY edit_revision, number LIMIT 1
""")
GET_CREATION_TIME = Query[tuple[str]]("SELECT created_at FROM listings WHERE bucket = $1 AND id = $2")

_VALUE_BYTES = "2 * octet_length(detail)"  # at most, because a new value may be stored as what differs

MEASURE_CHANGES = Query[MeasuredChange](f"""
SELECT edit_revision, number, listing_id, CASE WHEN listing_id = 0 THEN detail END, {_VALUE_BYTES} FROM changes
WHERE bucket = $1 AND account_id = $2 AND (edit_revision, number) > ($3, $4) AND edit_revision <= $5
ORDER BY edit_revision, number LIMIT $6
""")
LIST_CHANGES = Query[ChangeRow](f"""
SELECT {_CHANGES_WITH_ID_COLUMNS} FROM changes
WHERE bucket = $1 AND account_id = $2 AND (edit_revision, number) >= ($3, $4) AND (edit_revision, number) <= ($5, $6)
ORDER BY edit_revision, number
""")
MEASURE_FIRST_CHANGES = Query[tuple[int, int, int]]("""
SELECT edit_revision, number, octet_length(detail) FROM changes
WHERE bucket = $1 AND account_id = $2 AND edit_revision = $3
ORDER BY edit_revision, number LIMIT $4
""")
GET_CHANGE = Query[ChangeRow](f"""
SELECT {_CHANGES_WITH_ID_COLUMNS} FROM changes
WHERE bucket = $1 AND account_id = $2 AND edit_revision = $3 AND number = $4
""")

PAGE_CREATES = Query[CreatedRow](build_page(f"id, author, edit_revision, {TEXT_BYTES}"))

MEASURE_LISTING = Query[tuple[int]](f"SELECT {TEXT_BYTES} FROM listings WHERE bucket = $1 AND id = $2")

MAX_LATER = 2_000

LIST_LATER = Query[LaterEdit](f"""
SELECT listing_id, edit_revision, number, fields, octet_length(detail) FROM changes
WHERE bucket = $1 AND listing_id = $2 AND listing_id <> 0 AND (edit_revision, number) >= ($3, $4)
ORDER BY edit_revision, number LIMIT {MAX_LATER}
""")

LIST_EDITS = Query[tuple[int, str, int | None, str]]("""
SELECT moment, kind, base_version, fields FROM changes
WHERE bucket = $1 AND listing_id = $2 AND listing_id <> 0
ORDER BY edit_revision DESC, number DESC LIMIT $3
""")
GET_CREATED = Query[CreatedListing](f"SELECT {LISTING_COLUMNS}, author FROM listings WHERE bucket = $1 AND id = $2")
GET_CREATION = Query[tuple[int, int | None]](
    "SELECT account_id, edit_revision FROM listings WHERE bucket = $1 AND id = $2"
)
MEASURE_LISTING_CHANGES = Query[tuple[int, int, int]](f"""
SELECT edit_revision, number, {_VALUE_BYTES} FROM changes
WHERE bucket = $1 AND listing_id = $2 AND listing_id <> 0 AND edit_revision < $3
ORDER BY edit_revision DESC, number DESC LIMIT $4
""")
LIST_LISTING_CHANGES = Query[ChangeRow](f"""
SELECT {_CHANGES_WITH_ID_COLUMNS} FROM changes
WHERE bucket = $1 AND listing_id = $2 AND listing_id <> 0 AND edit_revision < $3 AND edit_revision >= $4
ORDER BY edit_revision DESC, number DESC
""")
STORED_BYTES = f"CASE WHEN kind = 'created' THEN 0 ELSE {CHANGE_BYTES} + octet_length(detail) END"
"""The bytes that are counted for a change. A single create that has a row is not counted."""

ERASE_CHANGES = Query[tuple[int]](f"DELETE FROM changes WHERE bucket = $1 AND account_id = $2 RETURNING {STORED_BYTES}")
FORGET_CHANGES = Command("""
UPDATE account_state SET purged_revision = edit_revision, history_bytes = history_bytes - $3
WHERE bucket = $1 AND account_id = $2
""")
ADD_HISTORY_BYTES = Command("""
UPDATE account_state SET history_bytes = history_bytes + $3 WHERE bucket = $1 AND account_id = $2
""")
FINISH_CHANGE_SET = Command("""
UPDATE account_state SET history_bytes = history_bytes + $3, edited_at = $4 WHERE bucket = $1 AND account_id = $2
""")
SET_BACK_CHANGES = Command("UPDATE changes SET moment = $3 WHERE bucket = $1 AND account_id = $2 AND moment > $3")
SET_EDITED_AT = Command("UPDATE account_state SET edited_at = $3 WHERE bucket = $1 AND account_id = $2")
