-- Writes that a client may repeat, with what they came to.
CREATE TABLE idempotency (
    bucket smallint NOT NULL,
    account_id bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    result text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    PRIMARY KEY (bucket, account_id, key),
    FOREIGN KEY (bucket, account_id) REFERENCES account_state (bucket, account_id)
);

CREATE INDEX idempotency_age ON idempotency (created_at);

-- A create in one round trip: what `postgres_writes.add` does by single statements. Without an id as its answer nothing
-- was written: a claim was made before (`earlier_digest` and `earlier_result`), or the account's listings are indexed,
-- which needs their words, or are to be indexed now, which this does not do.
CREATE FUNCTION create_listing(
    of_bucket smallint, of_account bigint, large bigint,
    new_title text, new_content text, new_type text, new_category text, new_images text, new_price_cents bigint,
    new_price_type text, new_location text, new_region text, new_district text, new_latitude double precision,
    new_longitude double precision, new_is_active boolean, moment text, new_words text[],
    claim_key text, claim_digest bytea, claim_moment bigint, claim_oldest bigint,
    OUT listing_id bigint, OUT earlier_digest bytea, OUT earlier_result text
) LANGUAGE plpgsql AS $$
DECLARE
    serial bigint;
    others bigint;
    is_indexed boolean;
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
    RETURNING state.listings, state.indexed INTO others, is_indexed;
    IF (is_indexed AND new_words IS NULL) OR (NOT is_indexed AND others >= large) THEN
        UPDATE account_state AS state SET revision = state.revision - 1, listings = state.listings - 1
        WHERE state.bucket = of_bucket AND state.account_id = of_account;
        UPDATE listing_ids SET last = serial - 1 WHERE bucket = of_bucket;
        RETURN;
    END IF;

    listing_id := serial * 1024 + of_bucket;
    INSERT INTO listings (
        id, bucket, account_id, title, content, type, category, images, price_cents, price_type, location, region,
        district, latitude, longitude, is_active, created_at, updated_at, indexed)
    VALUES (
        listing_id, of_bucket, of_account, new_title, new_content, new_type, new_category, new_images,
        new_price_cents, new_price_type, new_location, new_region, new_district, new_latitude, new_longitude,
        new_is_active, moment, moment, COALESCE(is_indexed, false));
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
