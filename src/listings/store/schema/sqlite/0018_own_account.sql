-- Links with which the owner of an account confirms an email address, by the SHA-256 of their tokens.
CREATE TABLE email_tokens (
    digest BLOB PRIMARY KEY CHECK (length(digest) = 32),
    account_id INTEGER NOT NULL REFERENCES accounts (id),
    email TEXT NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX email_tokens_account ON email_tokens (account_id);

-- The last email address that the owner of an account has confirmed.
CREATE TABLE confirmed_emails (
    account_id INTEGER PRIMARY KEY REFERENCES accounts (id),
    email TEXT NOT NULL,
    confirmed_at INTEGER NOT NULL
) STRICT;

-- Accounts that their owners have closed, until they are erased.
CREATE TABLE closed_accounts (
    account_id INTEGER PRIMARY KEY REFERENCES accounts (id),
    closed_at INTEGER NOT NULL
) STRICT;
