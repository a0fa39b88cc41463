-- Times are seconds since 1970, but for a listing's own, which are text as they are shown.
-- A bucket is an account's id & 1023, and the last ten bits of its listings' ids: where their rows live.

-- What is kept beside the file (the log of the rate limit) is known by this.
CREATE TABLE database_id (id TEXT NOT NULL) STRICT;
INSERT INTO database_id (id) VALUES (lower(hex(randomblob(16))));

CREATE TABLE accounts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    bucket INTEGER NOT NULL CHECK (bucket BETWEEN 0 AND 1023),
    name TEXT NOT NULL,
    email TEXT NOT NULL UNIQUE,
    plan_expires_at INTEGER,
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE api_keys (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    account_id INTEGER NOT NULL REFERENCES accounts (id),
    digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    hint TEXT NOT NULL,
    name TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER
) STRICT;

CREATE INDEX api_keys_account ON api_keys (account_id);

-- How often an account's listings were edited.
CREATE TABLE account_state (
    bucket INTEGER NOT NULL,
    account_id INTEGER NOT NULL REFERENCES accounts (id),
    revision INTEGER NOT NULL,
    PRIMARY KEY (bucket, account_id)
) STRICT, WITHOUT ROWID;

-- The last serial given in a bucket; a listing's id is serial * 1024 + bucket.
CREATE TABLE listing_ids (
    bucket INTEGER PRIMARY KEY,
    last INTEGER NOT NULL
) STRICT;

-- The id alone is the row's place here: within one file it is unique by itself, and rows may be long.
CREATE TABLE listings (
    id INTEGER PRIMARY KEY,
    bucket INTEGER NOT NULL CHECK (bucket = id & 1023),
    account_id INTEGER NOT NULL,
    version INTEGER NOT NULL DEFAULT 1,
    title TEXT NOT NULL,
    content TEXT NOT NULL,
    type TEXT NOT NULL,
    category TEXT NOT NULL,
    images TEXT NOT NULL,
    price_cents INTEGER NOT NULL,
    price_type TEXT NOT NULL,
    location TEXT NOT NULL,
    region TEXT NOT NULL,
    district TEXT NOT NULL,
    latitude REAL,
    longitude REAL,
    is_active INTEGER NOT NULL CHECK (is_active IN (0, 1)),
    view_count INTEGER NOT NULL DEFAULT 0,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    deleted_at INTEGER,
    FOREIGN KEY (bucket, account_id) REFERENCES account_state (bucket, account_id)
) STRICT;

CREATE INDEX listings_active ON listings (bucket, account_id, id DESC) WHERE is_active AND deleted_at IS NULL;
