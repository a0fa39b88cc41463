-- An account that becomes large is indexed in steps, each soon over, since nobody else writes meanwhile. Its `indexed`
-- is 2 until the last of them: it is looked through still, but new listings go into the indexes at once.
CREATE INDEX account_state_indexing ON account_state (bucket, account_id) WHERE indexed = 2;
