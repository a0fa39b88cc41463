-- Listings that an operator has taken down. No public page shows them. `operator` is the name in the log.
CREATE TABLE takedowns (
    listing_id bigint PRIMARY KEY,
    account_id bigint NOT NULL REFERENCES accounts (id),
    reason text COLLATE "C" NOT NULL,
    operator text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL
);

CREATE INDEX takedowns_account ON takedowns (account_id, listing_id);

-- The listing with which the picture was hidden.
ALTER TABLE pictures ADD COLUMN hidden_by bigint;

-- Accounts whose owners may open the operator's page. `secret` is that of the second factor, in base32, and `last_step`
-- the number of the last half minute whose code was used.
CREATE TABLE operators (
    account_id bigint PRIMARY KEY REFERENCES accounts (id),
    secret text COLLATE "C" NOT NULL,
    last_step bigint NOT NULL,
    added_at bigint NOT NULL
);

-- When the owner entered a code in this session.
ALTER TABLE sessions ADD COLUMN operator_at bigint;
