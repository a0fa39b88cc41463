-- Browsers in which an account's owner has signed in, by the SHA-256 of a random cookie. Wrong passwords in one of them
-- are counted on their own.
CREATE TABLE sign_in_devices (
    account_id bigint NOT NULL REFERENCES accounts (id),
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    used_at bigint NOT NULL,
    PRIMARY KEY (account_id, digest)
);
