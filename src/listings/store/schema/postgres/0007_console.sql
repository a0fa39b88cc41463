-- Who signs in to the console: an account with a password, of which an argon2 hash is kept.
CREATE TABLE members (
    account_id bigint PRIMARY KEY REFERENCES accounts (id),
    password text COLLATE "C" NOT NULL,
    changed_at bigint NOT NULL
);

CREATE TABLE sessions (
    digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    account_id bigint NOT NULL REFERENCES accounts (id),
    handle text COLLATE "C" NOT NULL,
    csrf_secret text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    seen_at bigint NOT NULL,
    confirmed_at bigint NOT NULL,
    agent text COLLATE "C" NOT NULL,
    UNIQUE (account_id, handle)
);

CREATE INDEX sessions_seen ON sessions (seen_at);
CREATE INDEX sessions_age ON sessions (created_at);

CREATE TABLE invitations (
    digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    account_id bigint NOT NULL REFERENCES accounts (id),
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL
);

CREATE INDEX invitations_account ON invitations (account_id);

-- Failed sign-ins since the first one, by the SHA-256 of what is counted: an address of e-mail, one of the network.
CREATE TABLE sign_in_attempts (
    subject bytea PRIMARY KEY CHECK (octet_length(subject) = 32),
    started_at bigint NOT NULL,
    count bigint NOT NULL
);

CREATE INDEX sign_in_attempts_age ON sign_in_attempts (started_at);

-- What a provider of payments has told once is not done twice.
CREATE TABLE payments (
    provider text COLLATE "C" NOT NULL,
    payment_id text COLLATE "C" NOT NULL,
    account_id bigint NOT NULL REFERENCES accounts (id),
    months bigint NOT NULL,
    plan_expires_at bigint NOT NULL,
    received_at bigint NOT NULL,
    PRIMARY KEY (provider, payment_id)
);

-- Who has made a listing (the id of an API key, 0 the operator, -1 the console), and which edit of its account that
-- was. So a create is told of without a row of its own, which would cost it a tenth more. NULL where it was no edit of
-- its own: in a batch, by an import, or before this.
ALTER TABLE listings ADD COLUMN author bigint;
ALTER TABLE listings ADD COLUMN revision bigint;

-- What else was done: an edit has the number 0, what edits no listing has a number behind the revision that it found.
CREATE TABLE activity (
    bucket smallint NOT NULL,
    account_id bigint NOT NULL,
    revision bigint NOT NULL,
    number bigint NOT NULL,
    moment bigint NOT NULL,
    author bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    subject bigint NOT NULL,
    detail text COLLATE "C" NOT NULL,
    PRIMARY KEY (bucket, account_id, revision, number),
    FOREIGN KEY (bucket, account_id) REFERENCES account_state (bucket, account_id)
);

CREATE INDEX activity_age ON activity (bucket, moment);

-- Which edit an import stands as in the activity.
ALTER TABLE imports ADD COLUMN revision bigint;

-- Answers by the hour since 1970.
CREATE TABLE usage_hours (
    bucket smallint NOT NULL,
    account_id bigint NOT NULL,
    hour bigint NOT NULL,
    key_id bigint NOT NULL,
    status integer NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (bucket, account_id, hour, key_id, status),
    FOREIGN KEY (bucket, account_id) REFERENCES account_state (bucket, account_id)
);

CREATE INDEX usage_hours_age ON usage_hours (bucket, hour);

-- The last requests of each account that were refused; the moment is in microseconds since 1970.
CREATE TABLE refusals (
    bucket smallint NOT NULL,
    account_id bigint NOT NULL,
    moment bigint NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    key_id bigint NOT NULL,
    code text COLLATE "C" NOT NULL,
    status integer NOT NULL,
    method text COLLATE "C" NOT NULL,
    path text COLLATE "C" NOT NULL,
    PRIMARY KEY (bucket, account_id, moment, request_id),
    FOREIGN KEY (bucket, account_id) REFERENCES account_state (bucket, account_id)
);

CREATE INDEX refusals_age ON refusals (bucket, moment);

-- A create by the function tells its author, too.
DROP FUNCTION create_listing(
    smallint, bigint, bigint, text, text, text, text, text, bigint, text, text, text, text, double precision,
    double precision, boolean, text, text[], text, bytea, bigint, bigint);

-- A create in one round trip: what `postgres_writes.add` does by single statements. Without an id as its answer nothing
-- was written: a claim was made before (`earlier_digest` and `earlier_result`), or the account's listings are indexed,
-- which needs their words, or are to be indexed now, which this does not do.
CREATE FUNCTION create_listing(
    of_bucket smallint, of_account bigint, large bigint,
    new_title text, new_content text, new_type text, new_category text, new_images text, new_price_cents bigint,
    new_price_type text, new_location text, new_region text, new_district text, new_latitude double precision,
    new_longitude double precision, new_is_active boolean, moment text, new_words text[],
    claim_key text, claim_digest bytea, claim_moment bigint, claim_oldest bigint, of_author bigint,
    OUT listing_id bigint, OUT earlier_digest bytea, OUT earlier_result text
) LANGUAGE plpgsql AS $$
DECLARE
    serial bigint;
    others bigint;
    is_indexed boolean;
    edit bigint;
BEGIN
    INSERT INTO listing_ids AS ids (bucket, last) VALUES (of_bucket, 1)
    ON CONFLICT (bucket) DO UPDATE SET last = ids.last + 1
    RETURNING ids.last INTO serial;

    IF claim_key IS NOT NULL THEN
        SELECT claims.digest, claims.result INTO earlier_digest, earlier_result FROM idempotency AS claims
        WHERE claims.bucket = of_bucket AND claims.account_id = of_account AND claims.key = claim_key
            AND claims.created_at >= claim_oldest;
        IF FOUND THEN
            UPDATE listing_ids SET last = serial - 1 WHERE bucket = of_bucket;
            RETURN;
        END IF;
    END IF;

    UPDATE account_state AS state SET revision = state.revision + 1, listings = state.listings + 1
    WHERE state.bucket = of_bucket AND state.account_id = of_account
    RETURNING state.listings, state.indexed, state.revision INTO others, is_indexed, edit;
    IF (is_indexed AND new_words IS NULL) OR (NOT is_indexed AND others >= large) THEN
        UPDATE account_state AS state SET revision = state.revision - 1, listings = state.listings - 1
        WHERE state.bucket = of_bucket AND state.account_id = of_account;
        UPDATE listing_ids SET last = serial - 1 WHERE bucket = of_bucket;
        RETURN;
    END IF;

    listing_id := serial * 1024 + of_bucket;
    INSERT INTO listings (
        id, bucket, account_id, title, content, type, category, images, price_cents, price_type, location, region,
        district, latitude, longitude, is_active, created_at, updated_at, indexed, author,
        revision)
    VALUES (
        listing_id, of_bucket, of_account, new_title, new_content, new_type, new_category, new_images,
        new_price_cents, new_price_type, new_location, new_region, new_district, new_latitude, new_longitude,
        new_is_active, moment, moment, COALESCE(is_indexed, false), of_author,
        CASE WHEN of_author IS NOT NULL THEN edit END);
    IF is_indexed THEN
        INSERT INTO listing_words (bucket, id, words) VALUES (of_bucket, listing_id, new_words);
    END IF;
    IF claim_key IS NOT NULL THEN
        INSERT INTO idempotency AS claims (bucket, account_id, key, digest, result, created_at)
        VALUES (of_bucket, of_account, claim_key, claim_digest, CAST(listing_id AS text), claim_moment)
        ON CONFLICT (bucket, account_id, key) DO UPDATE
        SET digest = excluded.digest, result = excluded.result, created_at = excluded.created_at;
    END IF;
END
$$;
