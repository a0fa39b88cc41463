-- The seller's own identifier of a listing. Those of an account's listings that are not deleted are unique. Deleted
-- listings are in the index too, each with its id, so that they can be found.
ALTER TABLE listings ADD COLUMN external_id text COLLATE "C";

CREATE UNIQUE INDEX listings_external_id
ON listings (bucket, account_id, external_id, (CASE WHEN deleted_at IS NULL THEN 0 ELSE id END))
WHERE external_id IS NOT NULL;

DROP FUNCTION create_listing(
    smallint, bigint, bigint, bigint, bigint, text, text, text, text, text, bigint, text, text, text, text,
    double precision, double precision, boolean, text, text[], text, bytea, bigint, bigint, bigint);

-- Create a listing in one round trip. Without an id, nothing was written: an earlier create had the same idempotency
-- key (`earlier_digest` and `earlier_result`), another listing has the external id, the account is full or missing, or
-- its listings are indexed, which needs their words, or must be indexed now, which this function does not do.
CREATE FUNCTION create_listing(
    of_bucket smallint, of_account bigint, large bigint, max_listings bigint, max_text_bytes bigint,
    new_title text, new_content text, new_type text, new_category text, new_images text, new_price_cents bigint,
    new_price_type text, new_location text, new_region text, new_district text, new_latitude double precision,
    new_longitude double precision, new_is_active boolean, new_external_id text, moment text, new_words text[],
    claim_key text, claim_digest bytea, claim_moment bigint, claim_oldest bigint, of_author bigint,
    OUT listing_id bigint, OUT earlier_digest bytea, OUT earlier_result text
) LANGUAGE plpgsql AS $$
DECLARE
    serial bigint;
    others bigint;
    is_indexed boolean;
    edit bigint;
    new_bytes CONSTANT bigint := octet_length(new_title) + octet_length(new_content) + octet_length(new_images);
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

    UPDATE account_state AS state
    SET revision = state.revision + 1, listings = state.listings + 1, current_listings = state.current_listings + 1,
        text_bytes = state.text_bytes + new_bytes
    WHERE state.bucket = of_bucket AND state.account_id = of_account AND state.current_listings < max_listings
        AND state.text_bytes + new_bytes <= max_text_bytes
    RETURNING state.listings, state.indexed, state.revision INTO others, is_indexed, edit;
    IF NOT FOUND THEN
        UPDATE listing_ids SET last = serial - 1 WHERE bucket = of_bucket;
        RETURN;
    END IF;
    -- The update has locked the account, so no other transaction can use the external id before this one ends.
    IF (is_indexed AND new_words IS NULL) OR (NOT is_indexed AND others >= large)
        OR (new_external_id IS NOT NULL AND EXISTS (
            SELECT 1 FROM listings
            WHERE listings.bucket = of_bucket AND listings.account_id = of_account
                AND listings.external_id = new_external_id
                AND CASE WHEN listings.deleted_at IS NULL THEN 0 ELSE listings.id END = 0))
    THEN
        UPDATE account_state AS state
        SET revision = state.revision - 1, listings = state.listings - 1, current_listings = state.current_listings - 1,
            text_bytes = state.text_bytes - new_bytes
        WHERE state.bucket = of_bucket AND state.account_id = of_account;
        UPDATE listing_ids SET last = serial - 1 WHERE bucket = of_bucket;
        RETURN;
    END IF;

    listing_id := serial * 1024 + of_bucket;
    INSERT INTO listings (
        id, bucket, account_id, title, content, type, category, images, price_cents, price_type, location, region,
        district, latitude, longitude, is_active, external_id, created_at, updated_at, indexed, author, revision)
    VALUES (
        listing_id, of_bucket, of_account, new_title, new_content, new_type, new_category, new_images,
        new_price_cents, new_price_type, new_location, new_region, new_district, new_latitude, new_longitude,
        new_is_active, new_external_id, moment, moment, COALESCE(is_indexed, false), of_author,
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
