-- The random id of the last restore, empty if there was none. It is part of every tag and cursor.
ALTER TABLE database_id ADD COLUMN restore_id TEXT NOT NULL DEFAULT '';

-- Ids of change sets that a restore skipped, because lost change sets may have had them.
CREATE TABLE lost_changes (
    bucket INTEGER NOT NULL,
    account_id INTEGER NOT NULL,
    first_revision INTEGER NOT NULL,
    last_revision INTEGER NOT NULL,
    PRIMARY KEY (bucket, account_id, last_revision),
    FOREIGN KEY (bucket, account_id) REFERENCES account_state (bucket, account_id)
) STRICT, WITHOUT ROWID;
