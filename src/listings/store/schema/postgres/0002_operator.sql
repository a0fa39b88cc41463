ALTER TABLE accounts ADD COLUMN disabled_at bigint;

-- Written now and then, not with every request.
ALTER TABLE api_keys ADD COLUMN last_used_at bigint;

-- What listings_active leaves out.
CREATE INDEX listings_hidden ON listings (bucket, account_id, id DESC) WHERE NOT (is_active AND deleted_at IS NULL);
