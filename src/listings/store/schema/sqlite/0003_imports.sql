-- How far each import of a file is; a row of it is written with the listings that it counts.
CREATE TABLE imports (
    bucket INTEGER NOT NULL,
    account_id INTEGER NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    format TEXT NOT NULL,
    new_ids INTEGER NOT NULL CHECK (new_ids IN (0, 1)),
    bytes_done INTEGER NOT NULL DEFAULT 0,
    lines_done INTEGER NOT NULL DEFAULT 0,
    made INTEGER NOT NULL DEFAULT 0,
    changed INTEGER NOT NULL DEFAULT 0,
    unchanged INTEGER NOT NULL DEFAULT 0,
    refused INTEGER NOT NULL DEFAULT 0,
    started_at INTEGER NOT NULL,
    finished_at INTEGER,
    PRIMARY KEY (bucket, account_id, digest, format, new_ids),
    FOREIGN KEY (bucket, account_id) REFERENCES account_state (bucket, account_id)
) STRICT, WITHOUT ROWID;
