-- What visitors reported about listings, until the operator closes it.
CREATE TABLE listing_reports (
    id TEXT PRIMARY KEY,
    account_id INTEGER NOT NULL REFERENCES accounts (id),
    listing_id INTEGER NOT NULL,
    reason TEXT NOT NULL,
    text TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
