-- A revert undoes change sets, from the newest to the oldest. Its id is that of its first own change set, which is
-- also in the column `import_id` of all its change sets. `done_revision` and `done_number` are the position that it has
-- reached, and `revision` is that of its audit event. Until `busy_until`, only `worker` may continue it.
CREATE TABLE reverts (
    bucket INTEGER NOT NULL,
    account_id INTEGER NOT NULL,
    id INTEGER NOT NULL,
    kind TEXT NOT NULL,
    subject INTEGER NOT NULL,
    first_revision INTEGER NOT NULL,
    last_revision INTEGER NOT NULL,
    since INTEGER NOT NULL,
    until INTEGER NOT NULL,
    overwrite INTEGER NOT NULL,
    author INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    done_revision INTEGER NOT NULL,
    done_number INTEGER NOT NULL,
    reverted INTEGER NOT NULL,
    unchanged INTEGER NOT NULL,
    conflicts INTEGER NOT NULL,
    finished_at INTEGER,
    worker BLOB,
    busy_until INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (bucket, account_id, id),
    FOREIGN KEY (bucket, account_id) REFERENCES account_state (bucket, account_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX reverts_running ON reverts (bucket) WHERE finished_at IS NULL;

-- The fields that a revert left as they were. `subject` is the change set that changed them later, or the listing that
-- has the external id.
CREATE TABLE revert_conflicts (
    bucket INTEGER NOT NULL,
    account_id INTEGER NOT NULL,
    revert_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    listing_id INTEGER NOT NULL,
    reason TEXT NOT NULL,
    fields TEXT NOT NULL,
    subject INTEGER,
    PRIMARY KEY (bucket, account_id, revert_id, number),
    FOREIGN KEY (bucket, account_id) REFERENCES account_state (bucket, account_id)
) STRICT, WITHOUT ROWID;
