-- Listings that an operator has taken down. No public page shows them. `operator` is the name in the log.
CREATE TABLE takedowns (
    listing_id INTEGER PRIMARY KEY,
    account_id INTEGER NOT NULL REFERENCES accounts (id),
    reason TEXT NOT NULL,
    operator TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

CREATE INDEX takedowns_account ON takedowns (account_id, listing_id);

-- The listing with which the picture was hidden.
ALTER TABLE pictures ADD COLUMN hidden_by INTEGER;

-- Accounts whose owners may open the operator's page. `secret` is that of the second factor, in base32, and `last_step`
-- the number of the last half minute whose code was used.
CREATE TABLE operators (
    account_id INTEGER PRIMARY KEY REFERENCES accounts (id),
    secret TEXT NOT NULL,
    last_step INTEGER NOT NULL,
    added_at INTEGER NOT NULL
) STRICT;

-- When the owner entered a code in this session.
ALTER TABLE sessions ADD COLUMN operator_at INTEGER;
