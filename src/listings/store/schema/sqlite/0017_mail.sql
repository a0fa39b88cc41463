-- Mail that waits until it is sent, or has been given up (next_at is NULL). Its text is written when it is sent.
-- account_id is NULL if the account is found by the recipient's address.
CREATE TABLE mails (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    recipient TEXT NOT NULL,
    account_id INTEGER REFERENCES accounts (id),
    detail TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    next_at INTEGER,
    attempts INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX mails_due ON mails (next_at);
CREATE INDEX mails_account ON mails (account_id);
CREATE INDEX mails_recipient ON mails (recipient);
