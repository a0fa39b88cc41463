-- Bytes that an account stores in addition to `text_bytes`: 100 and the values of each change (of a single create that
-- has a row, nothing), 100 and the names of the fields of each conflict of a revert, and 600 and the texts of each
-- deleted listing.
ALTER TABLE account_state ADD COLUMN history_bytes INTEGER NOT NULL DEFAULT 0;

-- The time of the last change set that has a row. No later one gets an earlier time.
ALTER TABLE account_state ADD COLUMN edited_at INTEGER NOT NULL DEFAULT 0;

-- The time of the change set `purged_revision`.
ALTER TABLE account_state ADD COLUMN purged_at INTEGER NOT NULL DEFAULT 0;

-- The account's own limits; NULL: those of the settings.
ALTER TABLE account_state ADD COLUMN max_listings INTEGER;
ALTER TABLE account_state ADD COLUMN max_text_bytes INTEGER;
ALTER TABLE account_state ADD COLUMN max_stored_bytes INTEGER;

UPDATE account_state SET (history_bytes, edited_at) = (
    SELECT coalesce(sum(CASE kind WHEN 'created' THEN 0 ELSE 100 + octet_length(detail) END), 0)
        + (SELECT coalesce(sum(100 + octet_length(fields)), 0) FROM revert_conflicts
           WHERE revert_conflicts.bucket = account_state.bucket
               AND revert_conflicts.account_id = account_state.account_id)
        + (SELECT coalesce(sum(600 + octet_length(title) + octet_length(content) + octet_length(images)), 0)
           FROM listings
           WHERE listings.bucket = account_state.bucket AND listings.account_id = account_state.account_id
               AND deleted_at IS NOT NULL),
        coalesce(max(moment), 0)
    FROM changes
    WHERE changes.bucket = account_state.bucket AND changes.account_id = account_state.account_id);

-- Deleted listings are removed in the order of their deletion. No search has this condition.
CREATE INDEX listings_by_deletion ON listings (bucket, account_id, deleted_at, id) WHERE deleted_at > 0;
