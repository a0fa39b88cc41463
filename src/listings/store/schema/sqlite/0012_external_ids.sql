-- The seller's own identifier of a listing. Those of an account's listings that are not deleted are unique. Deleted
-- listings are in the index too, each with its id, so that they can be found.
ALTER TABLE listings ADD COLUMN external_id TEXT;

CREATE UNIQUE INDEX listings_external_id
ON listings (bucket, account_id, external_id, CASE WHEN deleted_at IS NULL THEN 0 ELSE id END)
WHERE external_id IS NOT NULL;
