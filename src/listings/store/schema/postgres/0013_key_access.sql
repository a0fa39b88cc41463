-- The access of a key: a read-only key sends GET and HEAD only. Some versions of Citus add
-- a constraint only in a statement of its own.
ALTER TABLE api_keys ADD COLUMN access text NOT NULL DEFAULT 'write';
ALTER TABLE api_keys ADD CONSTRAINT api_keys_access_check CHECK (access IN ('read', 'write'));
