-- A revert undoes change sets, from the newest to the oldest. Its id is that of its first own change set, which is
-- also in the column `import_id` of all its change sets. `done_revision` and `done_number` are the position that it has
-- reached, and `revision` is that of its audit event. Until `busy_until`, only `worker` may continue it.
CREATE TABLE reverts (
    bucket smallint NOT NULL,
    account_id bigint NOT NULL,
    id bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    subject bigint NOT NULL,
    first_revision bigint NOT NULL,
    last_revision bigint NOT NULL,
    since bigint NOT NULL,
    until bigint NOT NULL,
    overwrite boolean NOT NULL,
    author bigint NOT NULL,
    revision bigint NOT NULL,
    started_at bigint NOT NULL,
    done_revision bigint NOT NULL,
    done_number bigint NOT NULL,
    reverted bigint NOT NULL,
    unchanged bigint NOT NULL,
    conflicts bigint NOT NULL,
    finished_at bigint,
    worker bytea,
    busy_until bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (bucket, account_id, id),
    FOREIGN KEY (bucket, account_id) REFERENCES account_state (bucket, account_id)
);

CREATE INDEX reverts_running ON reverts (bucket) WHERE finished_at IS NULL;

-- The fields that a revert left as they were. `subject` is the change set that changed them later, or the listing that
-- has the external id.
CREATE TABLE revert_conflicts (
    bucket smallint NOT NULL,
    account_id bigint NOT NULL,
    revert_id bigint NOT NULL,
    number bigint NOT NULL,
    listing_id bigint NOT NULL,
    reason text COLLATE "C" NOT NULL,
    fields text COLLATE "C" NOT NULL,
    subject bigint,
    PRIMARY KEY (bucket, account_id, revert_id, number),
    FOREIGN KEY (bucket, account_id) REFERENCES account_state (bucket, account_id)
);
