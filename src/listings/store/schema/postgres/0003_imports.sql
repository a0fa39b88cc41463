-- How far each import of a file is; a row of it is written with the listings that it counts.
CREATE TABLE imports (
    bucket smallint NOT NULL,
    account_id bigint NOT NULL,
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    format text COLLATE "C" NOT NULL,
    new_ids boolean NOT NULL,
    bytes_done bigint NOT NULL DEFAULT 0,
    lines_done bigint NOT NULL DEFAULT 0,
    made bigint NOT NULL DEFAULT 0,
    changed bigint NOT NULL DEFAULT 0,
    unchanged bigint NOT NULL DEFAULT 0,
    refused bigint NOT NULL DEFAULT 0,
    started_at bigint NOT NULL,
    finished_at bigint,
    PRIMARY KEY (bucket, account_id, digest, format, new_ids),
    FOREIGN KEY (bucket, account_id) REFERENCES account_state (bucket, account_id)
);
