ALTER TABLE accounts ADD COLUMN disabled_at INTEGER;

-- Written now and then, not with every request.
ALTER TABLE api_keys ADD COLUMN last_used_at INTEGER;

-- All listings of an account, whatever their state.
CREATE INDEX listings_account ON listings (bucket, account_id, id DESC);

-- Both indexes of an account's listings would do for the active ones: tell the planner that theirs is the smaller.
ANALYZE sqlite_schema;
INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES
    ('listings', 'listings_active', '1000000 10000 1000 1'),
    ('listings', 'listings_account', '2000000 20000 2000 1');
