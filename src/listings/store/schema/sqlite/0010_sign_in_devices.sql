-- Browsers in which an account's owner has signed in, by the SHA-256 of a random cookie. Wrong passwords in one of them
-- are counted on their own.
CREATE TABLE sign_in_devices (
    account_id INTEGER NOT NULL REFERENCES accounts (id),
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    used_at INTEGER NOT NULL,
    PRIMARY KEY (account_id, digest)
) STRICT, WITHOUT ROWID;
