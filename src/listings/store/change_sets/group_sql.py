"""The SQL statements for groups of change sets. See `sql` for the conventions."""

GROUP_COLUMNS = "id, kind, name, author, started_at, ended_at, last_id, sets, changes"

ADD_TO_GROUP = f"""
INSERT INTO change_groups (bucket, account_id, {GROUP_COLUMNS}, revision)
VALUES ($1, $2, $3, $4, $5, $6, $7, $7, $8, 1, $9, $10)
ON CONFLICT (bucket, account_id, id) DO UPDATE
SET ended_at = excluded.ended_at, last_id = excluded.last_id, sets = change_groups.sets + 1,
    changes = change_groups.changes + excluded.changes
RETURNING sets, changes, revision
"""

SET_GROUP_OF_CHANGE = """
UPDATE changes SET import_id = $4 WHERE bucket = $1 AND account_id = $2 AND edit_revision = $3 AND number = 0
RETURNING moment
"""

GET_GROUP = f"SELECT {GROUP_COLUMNS} FROM change_groups WHERE bucket = $1 AND account_id = $2 AND id = $3"

FIND_GROUP = f"SELECT {GROUP_COLUMNS} FROM change_groups WHERE bucket = $1 AND account_id = $2 AND name = $3"

PAGE_GROUPS = f"""
SELECT {GROUP_COLUMNS}, CASE change_groups.kind WHEN 'reverted' THEN (
    SELECT reverts.id FROM reverts
    WHERE reverts.bucket = $1 AND reverts.account_id = $2 AND reverts.group_id = change_groups.id) END
FROM change_groups WHERE bucket = $1 AND account_id = $2 AND id < $3
ORDER BY id DESC LIMIT $4
"""

PURGE_GROUPS = "DELETE FROM change_groups WHERE bucket = $1 AND account_id = $2 AND last_id <= $3"

ERASE_GROUPS = "DELETE FROM change_groups WHERE bucket = $1 AND account_id = $2"
