"""The SQL statements for change sets. See `sql` for the conventions."""

from listings.store.sql import LISTING_COLUMNS, TEXT_BYTES, build_page

CHANGE_COLUMNS = "edit_revision, number, listing_id, moment, author, kind, import_id, fields, detail"

_CHANGES_WITH_ID_COLUMNS = (
    f"{CHANGE_COLUMNS}, "
    "(SELECT external_id FROM listings WHERE listings.bucket = $1 AND listings.id = changes.listing_id)"
)

ADD_CHANGE = f"""
INSERT INTO changes (bucket, account_id, {CHANGE_COLUMNS}, last_serial)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
"""

SET_IMPORT_EDIT_REVISION = """
UPDATE imports SET edit_revision = $6
WHERE bucket = $1 AND account_id = $2 AND digest = $3 AND format = $4 AND new_ids = $5
"""

GET_EDIT_STATE = """
SELECT edit_revision, purged_revision, purged_serial FROM account_state WHERE bucket = $1 AND account_id = $2
"""

FIND_START = """
SELECT last_serial FROM changes
WHERE bucket = $1 AND account_id = $2 AND edit_revision <= $3 AND number = 0
ORDER BY edit_revision DESC, number DESC LIMIT 1
"""

MEASURE_CHANGES = """
SELECT edit_revision, number, listing_id, CASE listing_id WHEN 0 THEN detail END, octet_length(detail) FROM changes
WHERE bucket = $1 AND account_id = $2 AND (edit_revision, number) > ($3, $4) AND edit_revision <= $5
ORDER BY edit_revision, number LIMIT $6
"""

LIST_CHANGES = f"""
SELECT {_CHANGES_WITH_ID_COLUMNS} FROM changes
WHERE bucket = $1 AND account_id = $2 AND (edit_revision, number) >= ($3, $4) AND (edit_revision, number) <= ($5, $6)
ORDER BY edit_revision, number
"""

PAGE_CREATES = build_page(f"id, author, edit_revision, {TEXT_BYTES}")

MEASURE_LISTING = f"SELECT {TEXT_BYTES} FROM listings WHERE bucket = $1 AND id = $2"

GET_CREATED = f"SELECT {LISTING_COLUMNS}, author FROM listings WHERE bucket = $1 AND id = $2"

GET_CREATION = "SELECT account_id, edit_revision FROM listings WHERE bucket = $1 AND id = $2"

MEASURE_LISTING_CHANGES = """
SELECT edit_revision, number, octet_length(detail) FROM changes
WHERE bucket = $1 AND listing_id = $2 AND listing_id <> 0 AND edit_revision < $3
ORDER BY edit_revision DESC, number DESC LIMIT $4
"""

LIST_LISTING_CHANGES = f"""
SELECT {_CHANGES_WITH_ID_COLUMNS} FROM changes
WHERE bucket = $1 AND listing_id = $2 AND listing_id <> 0 AND edit_revision < $3 AND edit_revision >= $4
ORDER BY edit_revision DESC, number DESC
"""

FIND_OLD_ACCOUNTS = """
SELECT account_id FROM account_state AS state
WHERE bucket = $1 AND (
    SELECT moment FROM changes WHERE bucket = $1 AND changes.account_id = state.account_id
    ORDER BY changes.edit_revision, number LIMIT 1) < $2
"""

GET_FIRST_CHANGE = """
SELECT edit_revision, moment FROM changes WHERE bucket = $1 AND account_id = $2 ORDER BY edit_revision, number LIMIT 1
"""

LIST_OLDEST_SETS = """
SELECT edit_revision, moment, last_serial FROM changes
WHERE bucket = $1 AND account_id = $2 AND number = 0
ORDER BY edit_revision, number LIMIT $3
"""

DELETE_CHANGES = """
DELETE FROM changes WHERE bucket = $1 AND account_id = $2 AND edit_revision <= $3
"""

SET_PURGED = """
UPDATE account_state SET purged_revision = $3, purged_serial = $4
WHERE bucket = $1 AND account_id = $2 AND purged_revision < $3
"""

ERASE_CHANGES = "DELETE FROM changes WHERE bucket = $1 AND account_id = $2"

FORGET_CHANGES = "UPDATE account_state SET purged_revision = edit_revision WHERE bucket = $1 AND account_id = $2"
