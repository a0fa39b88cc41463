-- Uploaded pictures, whose files are in the media folder. `name` is random, `digest` is the SHA-256 of the upload, and
-- `file_key` the file's name for comparing. `unused_since`: when a sweep first found no listing with it.
CREATE TABLE pictures (
    name TEXT PRIMARY KEY,
    account_id INTEGER NOT NULL REFERENCES accounts (id),
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    width INTEGER NOT NULL,
    height INTEGER NOT NULL,
    size INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    unused_since INTEGER,
    file_name TEXT NOT NULL,
    file_key TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX pictures_digest ON pictures (account_id, digest);
CREATE INDEX pictures_newest ON pictures (account_id, created_at, name);
CREATE INDEX pictures_file ON pictures (account_id, file_key, created_at);

-- The bytes of an account's pictures, and its own limit. NULL: the limit of all accounts.
CREATE TABLE picture_usage (
    account_id INTEGER PRIMARY KEY REFERENCES accounts (id),
    bytes INTEGER NOT NULL,
    max_bytes INTEGER
) STRICT;

-- Pictures that the operator does not accept, from any account.
CREATE TABLE blocked_pictures (
    digest BLOB PRIMARY KEY CHECK (length(digest) = 32),
    blocked_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
