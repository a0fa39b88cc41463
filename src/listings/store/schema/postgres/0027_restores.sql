-- The random id of the last restore, empty if there was none. It is part of every tag and cursor.
ALTER TABLE database_id ADD COLUMN restore_id text COLLATE "C" NOT NULL DEFAULT '';

-- Ids of change sets that a restore skipped, because lost change sets may have had them.
CREATE TABLE lost_changes (
    bucket smallint NOT NULL,
    account_id bigint NOT NULL,
    first_revision bigint NOT NULL,
    last_revision bigint NOT NULL,
    PRIMARY KEY (bucket, account_id, last_revision),
    FOREIGN KEY (bucket, account_id) REFERENCES account_state (bucket, account_id)
);
