-- Messages from buyers to sellers.
CREATE TABLE messages (
    bucket smallint NOT NULL,
    account_id bigint NOT NULL REFERENCES accounts (id),
    created_at bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    listing_id bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    email text COLLATE "C" NOT NULL,
    text text COLLATE "C" NOT NULL,
    PRIMARY KEY (bucket, account_id, created_at, id)
);

CREATE INDEX messages_created ON messages (created_at);

-- Views and messages of an account's listings by day (days since 1970).
CREATE TABLE account_days (
    bucket smallint NOT NULL,
    account_id bigint NOT NULL REFERENCES accounts (id),
    day bigint NOT NULL,
    views bigint NOT NULL,
    messages bigint NOT NULL,
    PRIMARY KEY (bucket, account_id, day)
);

CREATE INDEX account_days_day ON account_days (day);
