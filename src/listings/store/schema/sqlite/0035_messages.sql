-- Messages from buyers to sellers.
CREATE TABLE messages (
    bucket INTEGER NOT NULL,
    account_id INTEGER NOT NULL REFERENCES accounts (id),
    created_at INTEGER NOT NULL,
    id TEXT NOT NULL,
    listing_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    email TEXT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (bucket, account_id, created_at, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX messages_created ON messages (created_at);

-- Views and messages of an account's listings by day (days since 1970).
CREATE TABLE account_days (
    bucket INTEGER NOT NULL,
    account_id INTEGER NOT NULL REFERENCES accounts (id),
    day INTEGER NOT NULL,
    views INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    PRIMARY KEY (bucket, account_id, day)
) STRICT, WITHOUT ROWID;

CREATE INDEX account_days_day ON account_days (day);
