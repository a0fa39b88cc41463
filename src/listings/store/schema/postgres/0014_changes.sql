-- A change set is what one transaction changes in the listings of an account. They are numbered by the account.
ALTER TABLE account_state ADD COLUMN edit_revision bigint NOT NULL DEFAULT 0;
ALTER TABLE listings ADD COLUMN edit_revision bigint;

-- Up to which change set the rows are deleted, and the bucket's last serial at that time.
ALTER TABLE account_state ADD COLUMN purged_revision bigint NOT NULL DEFAULT 0;
ALTER TABLE account_state ADD COLUMN purged_serial bigint NOT NULL DEFAULT 0;
UPDATE account_state
SET purged_serial = COALESCE((SELECT last FROM listing_ids WHERE listing_ids.bucket = account_state.bucket), 0);

-- The first change set of an import, which is the import's id.
ALTER TABLE imports ADD COLUMN edit_revision bigint;

-- The change sets, except those that only create one listing: these are in the row of the listing. But every 256th has
-- a row here, whatever it does. A single update, deletion or restore is one row with the number 0. A batch, or a step
-- of an import, has a row 0 without a listing (`listing_id` is 0), and a row from number 1 on for each change.
-- `fields` are the changed columns, and `detail` the old and the new value of each. In a row without a listing,
-- `detail` has the created listings as pairs of a first serial and a count. `last_serial`, in a row 0: all listings of
-- later change sets have higher serials. A single edit has the account's `revision`, since it is its own audit event.
CREATE TABLE changes (
    bucket smallint NOT NULL,
    account_id bigint NOT NULL,
    edit_revision bigint NOT NULL,
    number bigint NOT NULL,
    listing_id bigint NOT NULL,
    moment bigint NOT NULL,
    author bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    import_id bigint,
    revision bigint,
    last_serial bigint NOT NULL,
    fields text COLLATE "C" NOT NULL,
    detail text COLLATE "C" NOT NULL,
    PRIMARY KEY (bucket, account_id, edit_revision, number),
    FOREIGN KEY (bucket, account_id) REFERENCES account_state (bucket, account_id)
);

CREATE INDEX changes_listing ON changes (bucket, listing_id, edit_revision, number) WHERE listing_id <> 0;
CREATE INDEX changes_events ON changes (bucket, account_id, revision, number) WHERE revision IS NOT NULL;

DROP FUNCTION create_listing(
    smallint, bigint, bigint, bigint, bigint, text, text, text, text, text, bigint, text, text, text, text,
    double precision, double precision, boolean, text, text, text[], text, bytea, bigint, bigint, bigint);

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
    new_edit bigint;
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
    WHERE state.bucket = of_bucket AND state.account_id = of_account AND state.current_listings < max_listings
        AND state.text_bytes + new_bytes <= max_text_bytes
    RETURNING state.listings, state.indexed, state.revision, state.edit_revision
    INTO others, is_indexed, edit, new_edit;
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
        INSERT INTO changes (
            bucket, account_id, edit_revision, number, listing_id, moment, author, kind, last_serial, fields, detail)
        VALUES (
            of_bucket, of_account, new_edit, 0, 0, EXTRACT(epoch FROM CAST(moment AS timestamp)), of_author, 'created',
            serial, '', format('[[%s,1]]', serial));
    END IF;
    IF claim_key IS NOT NULL THEN
        INSERT INTO idempotency AS claims (bucket, account_id, key, digest, result, created_at)
        VALUES (of_bucket, of_account, claim_key, claim_digest, CAST(listing_id AS text), claim_moment)
        ON CONFLICT (bucket, account_id, key) DO UPDATE
        SET digest = excluded.digest, result = excluded.result, created_at = excluded.created_at;
    END IF;
END
$$;

-- Finish the edit of one listing: raise the account's revisions, and store the change.
CREATE FUNCTION record_edit(
    of_bucket smallint, of_account bigint, more_listings bigint, more_bytes bigint,
    of_moment bigint, of_author bigint, of_kind text, of_listing bigint, of_fields text, of_detail text
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    edit bigint;
    new_edit bigint;
    serial bigint;
BEGIN
    UPDATE account_state AS state
    SET revision = state.revision + 1, edit_revision = state.edit_revision + 1,
        current_listings = state.current_listings + more_listings, text_bytes = state.text_bytes + more_bytes
    WHERE state.bucket = of_bucket AND state.account_id = of_account
    RETURNING state.revision, state.edit_revision INTO edit, new_edit;
    SELECT ids.last INTO serial FROM listing_ids AS ids WHERE ids.bucket = of_bucket;
    INSERT INTO changes (
        bucket, account_id, edit_revision, number, listing_id, moment, author, kind, revision, last_serial, fields,
        detail)
    VALUES (
        of_bucket, of_account, new_edit, 0, of_listing, of_moment, of_author, of_kind, edit, serial, of_fields,
        of_detail);
END
$$;
