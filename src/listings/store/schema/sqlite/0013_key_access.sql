-- The access of a key: a read-only key sends GET and HEAD only.
ALTER TABLE api_keys ADD COLUMN access TEXT NOT NULL DEFAULT 'write' CHECK (access IN ('read', 'write'));
