-- The size of an account: its listings that are not deleted, and the bytes of their text, for the limits of accounts.
ALTER TABLE account_state ADD COLUMN current_listings INTEGER NOT NULL DEFAULT 0;
ALTER TABLE account_state ADD COLUMN text_bytes INTEGER NOT NULL DEFAULT 0;
UPDATE account_state SET (current_listings, text_bytes) = (
    SELECT count(*), coalesce(sum(octet_length(title) + octet_length(content) + octet_length(images)), 0)
    FROM listings
    WHERE listings.bucket = account_state.bucket AND listings.account_id = account_state.account_id
        AND deleted_at IS NULL);
