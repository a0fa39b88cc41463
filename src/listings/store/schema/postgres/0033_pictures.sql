-- Uploaded pictures, whose files are in the media folder. `name` is random, `digest` is the SHA-256 of the upload, and
-- `file_key` the file's name for comparing. `unused_since`: when a sweep first found no listing with it.
CREATE TABLE pictures (
    name text COLLATE "C" PRIMARY KEY,
    account_id bigint NOT NULL REFERENCES accounts (id),
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    width bigint NOT NULL,
    height bigint NOT NULL,
    size bigint NOT NULL,
    created_at bigint NOT NULL,
    unused_since bigint,
    file_name text COLLATE "C" NOT NULL,
    file_key text COLLATE "C" NOT NULL
);

CREATE UNIQUE INDEX pictures_digest ON pictures (account_id, digest);
CREATE INDEX pictures_newest ON pictures (account_id, created_at, name);
CREATE INDEX pictures_file ON pictures (account_id, file_key, created_at);

-- The bytes of an account's pictures, and its own limit. NULL: the limit of all accounts.
CREATE TABLE picture_usage (
    account_id bigint PRIMARY KEY REFERENCES accounts (id),
    bytes bigint NOT NULL,
    max_bytes bigint
);

-- Pictures that the operator does not accept, from any account.
CREATE TABLE blocked_pictures (
    digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    blocked_at bigint NOT NULL
);
