-- Writes that a client may repeat, with what they came to.
CREATE TABLE idempotency (
    bucket INTEGER NOT NULL,
    account_id INTEGER NOT NULL,
    key TEXT NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    result TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (bucket, account_id, key),
    FOREIGN KEY (bucket, account_id) REFERENCES account_state (bucket, account_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_age ON idempotency (created_at);
