-- Bytes that an account stores in addition to `text_bytes`: 100 and the values of each change (of a single create that
-- has a row, nothing), 100 and the names of the fields of each conflict of a revert, and 600 and the texts of each
-- deleted listing.
ALTER TABLE account_state ADD COLUMN history_bytes bigint NOT NULL DEFAULT 0;

-- The time of the last change set that has a row. No later one gets an earlier time.
ALTER TABLE account_state ADD COLUMN edited_at bigint NOT NULL DEFAULT 0;

-- The time of the change set `purged_revision`.
ALTER TABLE account_state ADD COLUMN purged_at bigint NOT NULL DEFAULT 0;

-- The account's own limits; NULL: those of the settings.
ALTER TABLE account_state ADD COLUMN max_listings bigint;
ALTER TABLE account_state ADD COLUMN max_text_bytes bigint;
ALTER TABLE account_state ADD COLUMN max_stored_bytes bigint;

UPDATE account_state SET (history_bytes, edited_at) = (
    SELECT COALESCE(sum(CASE kind WHEN 'created' THEN 0 ELSE 100 + octet_length(detail) END), 0)
        + (SELECT COALESCE(sum(100 + octet_length(fields)), 0) FROM revert_conflicts
           WHERE revert_conflicts.bucket = account_state.bucket
               AND revert_conflicts.account_id = account_state.account_id)
        + (SELECT COALESCE(sum(600 + octet_length(title) + octet_length(content) + octet_length(images)), 0)
           FROM listings
           WHERE listings.bucket = account_state.bucket AND listings.account_id = account_state.account_id
               AND deleted_at IS NOT NULL),
        COALESCE(max(moment), 0)
    FROM changes
    WHERE changes.bucket = account_state.bucket AND changes.account_id = account_state.account_id);

-- Deleted listings are removed in the order of their deletion. No search has this condition.
CREATE INDEX listings_by_deletion ON listings (bucket, account_id, deleted_at, id) WHERE deleted_at > 0;

-- Create a listing in one round trip. Without an id, nothing was written: an earlier create had the same idempotency
-- key (`earlier_digest` and `earlier_result`), another listing has the external id, the account is full or missing, or
-- its listings are indexed, which needs their words, or must be indexed now, which this function does not do.
CREATE OR REPLACE FUNCTION create_listing(
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
    new_edit bigint;
    last_moment bigint;
    step CONSTANT integer := CASE WHEN of_author IS NULL THEN 0 ELSE 1 END;
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
        text_bytes = state.text_bytes + new_bytes, edit_revision = state.edit_revision + step
    WHERE state.bucket = of_bucket AND state.account_id = of_account
        AND state.current_listings < COALESCE(state.max_listings, create_listing.max_listings)
        AND state.text_bytes + new_bytes <= COALESCE(state.max_text_bytes, create_listing.max_text_bytes)
    RETURNING state.listings, state.indexed, state.revision, state.edit_revision, state.edited_at
    INTO others, is_indexed, edit, new_edit, last_moment;
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
            text_bytes = state.text_bytes - new_bytes, edit_revision = state.edit_revision - step
        WHERE state.bucket = of_bucket AND state.account_id = of_account;
        UPDATE listing_ids SET last = serial - 1 WHERE bucket = of_bucket;
        RETURN;
    END IF;

    listing_id := serial * 1024 + of_bucket;
    INSERT INTO listings (
        id, bucket, account_id, title, content, type, category, images, price_cents, price_type, location, region,
        district, latitude, longitude, is_active, external_id, created_at, updated_at, indexed, author, revision,
        edit_revision)
    VALUES (
        listing_id, of_bucket, of_account, new_title, new_content, new_type, new_category, new_images,
        new_price_cents, new_price_type, new_location, new_region, new_district, new_latitude, new_longitude,
        new_is_active, new_external_id, moment, moment, COALESCE(is_indexed, false), of_author,
        CASE WHEN of_author IS NOT NULL THEN edit END, CASE WHEN of_author IS NOT NULL THEN new_edit END);
    IF is_indexed THEN
        INSERT INTO listing_words (bucket, id, words) VALUES (of_bucket, listing_id, new_words);
    END IF;
    IF of_author IS NOT NULL AND new_edit % 256 = 0 THEN
        last_moment := GREATEST(last_moment, EXTRACT(epoch FROM CAST(moment AS timestamp)));
        UPDATE account_state AS state SET edited_at = last_moment
        WHERE state.bucket = of_bucket AND state.account_id = of_account;
        INSERT INTO changes (
            bucket, account_id, edit_revision, number, listing_id, moment, author, kind, last_serial, fields, detail)
        VALUES (
            of_bucket, of_account, new_edit, 0, 0, last_moment, of_author, 'created', serial, '',
            format('[[%s,1]]', serial));
    END IF;
    IF claim_key IS NOT NULL THEN
        INSERT INTO idempotency AS claims (bucket, account_id, key, digest, result, created_at)
        VALUES (of_bucket, of_account, claim_key, claim_digest, CAST(listing_id AS text), claim_moment)
        ON CONFLICT (bucket, account_id, key) DO UPDATE
        SET digest = excluded.digest, result = excluded.result, created_at = excluded.created_at;
    END IF;
END
$$;

DROP FUNCTION record_edit(smallint, bigint, bigint, bigint, bigint, bigint, text, bigint, text, text);

-- Finish the edit of one listing: raise the account's revisions, and store the change, not before the last one. If that
-- is more than a minute ahead of the clock, a wrong clock has written it: times that are ahead are set to now.
CREATE FUNCTION record_edit(
    of_bucket smallint, of_account bigint, more_listings bigint, more_bytes bigint, more_history bigint,
    of_moment bigint, of_author bigint, of_kind text, of_listing bigint, of_fields text, of_detail text
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    edit bigint;
    new_edit bigint;
    new_moment bigint;
    serial bigint;
BEGIN
    UPDATE account_state AS state
    SET revision = state.revision + 1, edit_revision = state.edit_revision + 1,
        current_listings = state.current_listings + more_listings, text_bytes = state.text_bytes + more_bytes,
        history_bytes = state.history_bytes + more_history, edited_at = GREATEST(state.edited_at, of_moment)
    WHERE state.bucket = of_bucket AND state.account_id = of_account
    RETURNING state.revision, state.edit_revision, state.edited_at INTO edit, new_edit, new_moment;
    IF new_moment > of_moment + 60 THEN
        new_moment := of_moment;
        UPDATE changes SET moment = of_moment
        WHERE changes.bucket = of_bucket AND changes.account_id = of_account AND changes.moment > of_moment;
        UPDATE account_state AS state SET edited_at = of_moment
        WHERE state.bucket = of_bucket AND state.account_id = of_account;
    END IF;
    SELECT ids.last INTO serial FROM listing_ids AS ids WHERE ids.bucket = of_bucket;
    INSERT INTO changes (
        bucket, account_id, edit_revision, number, listing_id, moment, author, kind, revision, last_serial, fields,
        detail)
    VALUES (
        of_bucket, of_account, new_edit, 0, of_listing, new_moment, of_author, of_kind, edit, serial, of_fields,
        of_detail);
END
$$;
