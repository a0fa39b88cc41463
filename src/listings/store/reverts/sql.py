"""The SQL statements for reverts. See `sql` for the conventions."""

from listings.store.sql import LISTING_COLUMNS, build_arrays

_LEASE_SECONDS = 3
_MAX_LEASE_SECONDS = 6  # a lease that ends later than this was stored with a wrong clock
_MAX_SHORT_BYTES = 128  # of the values that are read with an edit, without a query of their own
_SCOPE_COLUMNS = "kind, subject, first_revision, last_revision, since, until, overwrite"
_PROGRESS_COLUMNS = "done_revision, done_number, reverted, unchanged, conflicts, finished_at"
REVERT_COLUMNS = f"bucket, account_id, id, {_SCOPE_COLUMNS}, author, started_at, {_PROGRESS_COLUMNS}"

# What to revert

GET_SET_HEAD = """
SELECT edit_revision, moment, author, import_id, kind FROM changes
WHERE bucket = $1 AND account_id = $2 AND edit_revision = $3 AND number = 0
"""

FIND_SET_BEFORE = """
SELECT edit_revision, moment FROM changes
WHERE bucket = $1 AND account_id = $2 AND edit_revision <= $3 AND number = 0
ORDER BY edit_revision DESC, number DESC LIMIT 1
"""

SCAN_CHANGES = """
SELECT edit_revision, number, listing_id, moment, author, import_id, CASE listing_id WHEN 0 THEN detail END,
    fields LIKE '%external_id%' OR fields LIKE '%deleted_at%' AND (
        SELECT external_id FROM listings WHERE bucket = $1 AND id = changes.listing_id) IS NOT NULL
FROM changes
WHERE bucket = $1 AND account_id = $2 AND (edit_revision, number) < ($3, $4) AND edit_revision >= $5
ORDER BY edit_revision DESC, number DESC LIMIT $6
"""

GET_CREATED_LISTING = f"SELECT {LISTING_COLUMNS}, author, edit_revision FROM listings WHERE bucket = $1 AND id = $2"
GET_CREATED_LISTINGS = GET_CREATED_LISTING.replace("id = $2", "id = ANY(CAST($2 AS bigint[]))")


def _build_list_edits(listing_id: str, first: str, count: str) -> str:
    return f"""
SELECT listing_id, edit_revision, number, moment, author, import_id, kind, fields, octet_length(detail),
    CASE WHEN octet_length(detail) <= {_MAX_SHORT_BYTES} THEN detail END
FROM changes
WHERE bucket = $1 AND listing_id = {listing_id} AND listing_id <> 0 AND edit_revision >= {first}
ORDER BY edit_revision DESC, number DESC LIMIT {count}
"""


LIST_EDITS = _build_list_edits("$2", "$3", "$4")
LIST_EDITS_OF_LISTINGS = f"""
SELECT edits.* FROM {build_arrays(["bigint"] * 3)} AS wanted (id, first, count),
    LATERAL ({_build_list_edits("wanted.id", "wanted.first", "wanted.count")}) AS edits
ORDER BY edit_revision DESC, number DESC
"""


def _build_find_newer_edit(condition: str) -> str:
    return f"""
SELECT 1 FROM changes
WHERE bucket = $1 AND listing_id = $2 AND listing_id <> 0 AND edit_revision > $3 AND edit_revision <= $4
    AND {condition}
LIMIT 1
"""


FIND_NEWER_EDIT_OF_KEY = _build_find_newer_edit("author = $5 AND moment >= $6 AND moment <= $7")
FIND_NEWER_EDIT_OF_GROUP = _build_find_newer_edit("import_id = $5")

GET_EDIT_VALUES = """
SELECT edit_revision, number, fields, detail FROM changes
WHERE bucket = $1 AND account_id = $2 AND edit_revision = $3 AND number = $4
"""

FREE_EXTERNAL_ID = "UPDATE listings SET external_id = NULL WHERE bucket = $1 AND id = $2"

# Reverts

ADD_REVERT = f"""
INSERT INTO reverts ({REVERT_COLUMNS}, revision)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
"""

GET_REVERT = f"""
SELECT {REVERT_COLUMNS}, revision FROM reverts WHERE bucket = $1 AND account_id = $2 AND id = $3
"""

FIND_UNFINISHED_REVERT = """
SELECT id FROM reverts WHERE bucket = $1 AND account_id = $2 AND finished_at IS NULL LIMIT 1
"""

LEASE_REVERT = f"""
UPDATE reverts SET worker = $4, busy_until = CAST($5 AS bigint) + {_LEASE_SECONDS}
WHERE bucket = $1 AND account_id = $2 AND id = $3 AND finished_at IS NULL
    AND (worker IS NULL OR worker = $4 OR busy_until <= $5 OR busy_until > $5 + {_MAX_LEASE_SECONDS})
RETURNING {REVERT_COLUMNS}, revision
"""

ADVANCE_REVERT = """
UPDATE reverts SET done_revision = $4, done_number = $5, reverted = $6, unchanged = $7, conflicts = $8, finished_at = $9
WHERE bucket = $1 AND account_id = $2 AND id = $3
"""

LIST_RUNNING_REVERTS = f"""
SELECT {REVERT_COLUMNS} FROM reverts
WHERE finished_at IS NULL
    AND (worker IS NULL OR worker = $1 OR busy_until <= $2 OR busy_until > $2 + {_MAX_LEASE_SECONDS})
    AND (SELECT disabled_at FROM accounts WHERE accounts.id = reverts.account_id) IS NULL
"""

ADD_CONFLICT = """
INSERT INTO revert_conflicts (bucket, account_id, revert_id, number, listing_id, reason, fields, subject)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
"""

PAGE_CONFLICTS = """
SELECT number, listing_id,
    (SELECT external_id FROM listings WHERE listings.bucket = $1 AND listings.id = revert_conflicts.listing_id),
    reason, fields, subject FROM revert_conflicts
WHERE bucket = $1 AND account_id = $2 AND revert_id = $3 AND number > $4
ORDER BY number LIMIT $5
"""

PURGE_REVERTS = """
DELETE FROM reverts WHERE bucket = $1 AND account_id = $2 AND id <= $3 AND finished_at IS NOT NULL
"""

PURGE_CONFLICTS = """
DELETE FROM revert_conflicts WHERE bucket = $1 AND account_id = $2 AND revert_id <= $3 AND NOT EXISTS (
    SELECT 1 FROM reverts
    WHERE reverts.bucket = $1 AND reverts.account_id = $2 AND reverts.id = revert_conflicts.revert_id)
"""

ERASE_REVERTS = "DELETE FROM reverts WHERE bucket = $1 AND account_id = $2"

ERASE_CONFLICTS = "DELETE FROM revert_conflicts WHERE bucket = $1 AND account_id = $2"
