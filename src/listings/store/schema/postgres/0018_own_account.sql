-- Links with which the owner of an account confirms an email address, by the SHA-256 of their tokens.
CREATE TABLE email_tokens (
    digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    account_id bigint NOT NULL REFERENCES accounts (id),
    email text COLLATE "C" NOT NULL,
    expires_at bigint NOT NULL
);

CREATE INDEX email_tokens_account ON email_tokens (account_id);

-- The last email address that the owner of an account has confirmed.
CREATE TABLE confirmed_emails (
    account_id bigint PRIMARY KEY REFERENCES accounts (id),
    email text COLLATE "C" NOT NULL,
    confirmed_at bigint NOT NULL
);

-- Accounts that their owners have closed, until they are erased.
CREATE TABLE closed_accounts (
    account_id bigint PRIMARY KEY REFERENCES accounts (id),
    closed_at bigint NOT NULL
);
