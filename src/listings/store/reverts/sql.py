"""The SQL statements for reverts. See `sql` for the conventions."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from listings.domain.account_limits import CHANGE_BYTES
from listings.domain.reverts import ConflictReason, RevertKind
from listings.store.mapping import ListingRow
from listings.store.query import Command, Query
from listings.store.sql import HALVES, LISTING_COLUMNS

_Scope: TypeAlias = tuple[RevertKind, int, int, int, int, int, bool]
RevertRow: TypeAlias = tuple[int, int, int, *_Scope, int, int, int, int, int, int, int, int | None, int | None]
ScannedRow: TypeAlias = tuple[int, int, int, str | None, int, int, str, int | None, bool]
_CreatedListing: TypeAlias = tuple[*ListingRow, int | None, int | None]

_LEASE_SECONDS = 3
_MAX_LEASE_SECONDS = 6  # a lease that ends later than this was stored with a wrong clock
_SCOPE_COLUMNS = "kind, subject, first_revision, last_revision, since, until, overwrite"
CONFLICT_BYTES = f"{CHANGE_BYTES} + octet_length(fields)"
_PROGRESS_COLUMNS = "done_revision, done_number, reverted, unchanged, conflicts, finished_at, group_id"
REVERT_COLUMNS = f"bucket, account_id, id, {_SCOPE_COLUMNS}, author, started_at, {_PROGRESS_COLUMNS}"

# What to revert

GET_SET_HEAD = Query[tuple[int, int, int, str, int | None]]("""
SELECT edit_revision, moment, author, kind, import_id FROM changes
WHERE bucket = $1 AND account_id = $2 AND edit_revision = $3 AND number = 0
""")

_CREATES = " UNION ALL ".join(
    f"SELECT edit_revision FROM listings WHERE bucket = $1 AND account_id = $2 AND {half}"
    " AND author = $3 AND created_at >= $4 AND edit_revision <= $5"
    for half in HALVES
)
FIND_FIRST_CREATE = Query[tuple[int | None]](f"SELECT min(edit_revision) FROM ({_CREATES}) AS creates")

_SCOPE_CONDITIONS: Mapping[RevertKind, str] = {
    "change": "changes.edit_revision = {subject}",
    "import": "changes.import_id = {subject} AND changes.kind = 'import'",
    "revert": "changes.import_id = {subject} AND changes.kind = 'reverted'",
    "group": "changes.import_id = {subject} AND changes.kind NOT IN ('import', 'reverted')",
    "key": "changes.author = {subject}",
}


def _build_condition(kind: RevertKind, table: str, scope: Sequence[str]) -> str:
    last, subject, since, until = scope
    condition = _SCOPE_CONDITIONS[kind].format(subject=subject).replace("changes.", f"{table}.")
    return f"{condition} AND {table}.edit_revision <= {last} AND {table}.moment BETWEEN {since} AND {until}"


SCANS = {
    kind: Query[ScannedRow](f"""
SELECT page.*, {_build_condition(kind, "page", ("$6", "$7", "$8", "$9"))} AND NOT EXISTS (
    SELECT 1 FROM changes AS newer
    WHERE newer.bucket = $1 AND newer.listing_id = page.listing_id AND newer.listing_id <> 0
        AND (newer.edit_revision, newer.number) > (page.edit_revision, page.number)
        AND {_build_condition(kind, "newer", ("$6", "$7", "$8", "$9"))})
FROM (
    SELECT edit_revision, number, listing_id, CASE WHEN listing_id = 0 THEN detail END, moment, author, kind, import_id
    FROM changes
    WHERE bucket = $1 AND account_id = $2 AND edit_revision <= $3 AND edit_revision >= $4
    ORDER BY edit_revision DESC, number DESC LIMIT $5) AS page
ORDER BY page.edit_revision DESC, page.number DESC
""")
    for kind in _SCOPE_CONDITIONS
}
"""Changes, newest first. The last column tells whether the revert undoes the change, and none of its listing later."""

FIND_NEWER = {
    kind: Query[tuple[int]](f"""
SELECT listing_id FROM changes
WHERE bucket = $1 AND listing_id = $2 AND listing_id <> 0 AND edit_revision >= $3
    AND {_build_condition(kind, "changes", ("$4", "$5", "$6", "$7"))}
LIMIT 1
""")
    for kind in _SCOPE_CONDITIONS
}
"""The listing, if the revert undoes a change of it since the change set that created it."""

# The plans

GET_CREATED_LISTING = Query[_CreatedListing](
    f"SELECT {LISTING_COLUMNS}, author, edit_revision FROM listings WHERE bucket = $1 AND id = $2"
)
LIST_EDITS = Query[tuple[int, int, int, int, str, int | None, int, str, int]]("""
SELECT listing_id, edit_revision, moment, author, kind, import_id, number, fields, octet_length(detail)
FROM changes
WHERE bucket = $1 AND listing_id = $2 AND listing_id <> 0 AND edit_revision >= $3
ORDER BY edit_revision DESC, number DESC LIMIT $4
""")
MAY_CLAIM = Query[tuple[int]]("""
SELECT listing_id FROM changes
WHERE bucket = $1 AND listing_id = $2 AND listing_id <> 0 AND edit_revision >= $3
    AND (fields LIKE '%external_id%' OR fields LIKE '%deleted_at%')
LIMIT 1
""")
GET_GROUP_OF_REVERT = Query[tuple[int | None, int | None]](
    "SELECT group_id, finished_at FROM reverts WHERE bucket = $1 AND account_id = $2 AND id = $3"
)
GET_SCOPE_OF_GROUP = Query[tuple[int, *_Scope]](f"""
SELECT group_id, {_SCOPE_COLUMNS} FROM reverts WHERE bucket = $1 AND account_id = $2 AND group_id = $3
""")
GET_EDIT_VALUES = Query[tuple[int, int, str, str]]("""
SELECT edit_revision, number, fields, detail FROM changes
WHERE bucket = $1 AND account_id = $2 AND edit_revision = $3 AND number = $4
""")
LIST_CONFLICTS_OF_LISTING = Query[tuple[int, int]]("""
SELECT listing_id, number FROM revert_conflicts
WHERE bucket = $1 AND account_id = $2 AND revert_id = $3 AND listing_id = $4
""")

FREE_EXTERNAL_ID = Command("UPDATE listings SET external_id = NULL WHERE bucket = $1 AND id = $2")

# Reverts

RAISE_LAST_REVERT = Query[tuple[int]]("""
UPDATE account_state SET last_revert = last_revert + 1 WHERE bucket = $1 AND account_id = $2 RETURNING last_revert
""")
ADD_REVERT = Command(f"""
INSERT INTO reverts ({REVERT_COLUMNS}, revision)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, 0, 0, 0, NULL, NULL, 0)
""")
GET_REVERT = Query[RevertRow](f"""
SELECT {REVERT_COLUMNS} FROM reverts WHERE bucket = $1 AND account_id = $2 AND id = $3
""")
FIND_UNFINISHED_REVERT = Query[tuple[int, int]]("""
SELECT id, first_revision FROM reverts WHERE bucket = $1 AND account_id = $2 AND finished_at IS NULL LIMIT 1
""")
LEASE_REVERT = Query[tuple[*RevertRow, int]](f"""
UPDATE reverts SET worker = $4, busy_until = CAST($5 AS bigint) + {_LEASE_SECONDS}
WHERE bucket = $1 AND account_id = $2 AND id = $3 AND finished_at IS NULL
    AND (worker IS NULL OR worker = $4 OR busy_until <= $5 OR busy_until > $5 + {_MAX_LEASE_SECONDS})
RETURNING {REVERT_COLUMNS}, revision
""")
ADVANCE_REVERT = Command("""
UPDATE reverts
SET done_revision = $4, done_number = $5, reverted = $6, unchanged = $7, conflicts = $8, finished_at = $9,
    group_id = $10, revision = $11
WHERE bucket = $1 AND account_id = $2 AND id = $3
""")
LIST_RUNNING_REVERTS = Query[RevertRow](f"""
SELECT {REVERT_COLUMNS} FROM reverts
WHERE finished_at IS NULL
    AND (worker IS NULL OR worker = $1 OR busy_until <= $2 OR busy_until > $2 + {_MAX_LEASE_SECONDS})
    AND (SELECT disabled_at FROM accounts WHERE accounts.id = reverts.account_id) IS NULL
""")
LIST_UNDONE = Query[tuple[RevertKind, int, int]]("""
SELECT kind, subject, group_id FROM reverts
WHERE bucket = $1 AND account_id = $2 AND finished_at IS NOT NULL AND group_id IS NOT NULL AND conflicts = 0
ORDER BY id DESC LIMIT 1000
""")
ADD_CONFLICT = Command("""
INSERT INTO revert_conflicts (bucket, account_id, revert_id, number, listing_id, reason, fields, subject)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
""")
DELETE_CONFLICT = Query[tuple[int]](f"""
DELETE FROM revert_conflicts WHERE bucket = $1 AND account_id = $2 AND revert_id = $3 AND number = $4
RETURNING {CONFLICT_BYTES}
""")
PAGE_CONFLICTS = Query[tuple[int, int, str | None, ConflictReason, str, int | None]]("""
SELECT number, listing_id,
    (SELECT external_id FROM listings WHERE listings.bucket = $1 AND listings.id = revert_conflicts.listing_id),
    reason, fields, subject FROM revert_conflicts
WHERE bucket = $1 AND account_id = $2 AND revert_id = $3 AND number > $4
ORDER BY number LIMIT $5
""")


def _build_purge(action: str) -> str:
    return f"""
{action} reverts WHERE bucket = $1 AND account_id = $2 AND finished_at IS NOT NULL
    AND CASE WHEN group_id IS NULL THEN started_at < $4 ELSE group_id <= $3 END
"""


PURGE_CONFLICTS = Query[tuple[int]](f"""
DELETE FROM revert_conflicts
WHERE bucket = $1 AND account_id = $2 AND revert_id IN ({_build_purge("SELECT id FROM")})
RETURNING {CONFLICT_BYTES}
""")
PURGE_REVERTS = Command(_build_purge("DELETE FROM"))
ERASE_REVERTS = Command("DELETE FROM reverts WHERE bucket = $1 AND account_id = $2")
ERASE_CONFLICTS = Query[tuple[int]](
    f"DELETE FROM revert_conflicts WHERE bucket = $1 AND account_id = $2 RETURNING {CONFLICT_BYTES}"
)
