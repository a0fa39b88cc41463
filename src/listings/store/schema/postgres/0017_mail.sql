-- Mail that waits until it is sent, or has been given up (next_at is NULL). Its text is written when it is sent.
-- account_id is NULL if the account is found by the recipient's address.
CREATE TABLE mails (
    id text COLLATE "C" PRIMARY KEY,
    kind text COLLATE "C" NOT NULL,
    recipient text COLLATE "C" NOT NULL,
    account_id bigint REFERENCES accounts (id),
    detail text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    next_at bigint,
    attempts bigint NOT NULL
);

CREATE INDEX mails_due ON mails (next_at);
CREATE INDEX mails_account ON mails (account_id);
CREATE INDEX mails_recipient ON mails (recipient);
