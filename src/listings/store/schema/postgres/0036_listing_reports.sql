-- What visitors reported about listings, until the operator closes it.
CREATE TABLE listing_reports (
    id text COLLATE "C" PRIMARY KEY,
    account_id bigint NOT NULL REFERENCES accounts (id),
    listing_id bigint NOT NULL,
    reason text COLLATE "C" NOT NULL,
    text text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL
);
