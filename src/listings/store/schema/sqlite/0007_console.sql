-- Who signs in to the console: an account with a password, of which an argon2 hash is kept.
CREATE TABLE members (
    account_id INTEGER PRIMARY KEY REFERENCES accounts (id),
    password TEXT NOT NULL,
    changed_at INTEGER NOT NULL
) STRICT;

CREATE TABLE sessions (
    digest BLOB PRIMARY KEY CHECK (length(digest) = 32),
    account_id INTEGER NOT NULL REFERENCES accounts (id),
    handle TEXT NOT NULL,
    csrf_secret TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    seen_at INTEGER NOT NULL,
    confirmed_at INTEGER NOT NULL,
    agent TEXT NOT NULL,
    UNIQUE (account_id, handle)
) STRICT, WITHOUT ROWID;

CREATE INDEX sessions_seen ON sessions (seen_at);
CREATE INDEX sessions_age ON sessions (created_at);

CREATE TABLE invitations (
    digest BLOB PRIMARY KEY CHECK (length(digest) = 32),
    account_id INTEGER NOT NULL REFERENCES accounts (id),
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX invitations_account ON invitations (account_id);

-- Failed sign-ins since the first one, by the SHA-256 of what is counted: an address of e-mail, one of the network.
CREATE TABLE sign_in_attempts (
    subject BLOB PRIMARY KEY CHECK (length(subject) = 32),
    started_at INTEGER NOT NULL,
    count INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX sign_in_attempts_age ON sign_in_attempts (started_at);

-- What a provider of payments has told once is not done twice.
CREATE TABLE payments (
    provider TEXT NOT NULL,
    payment_id TEXT NOT NULL,
    account_id INTEGER NOT NULL REFERENCES accounts (id),
    months INTEGER NOT NULL,
    plan_expires_at INTEGER NOT NULL,
    received_at INTEGER NOT NULL,
    PRIMARY KEY (provider, payment_id)
) STRICT, WITHOUT ROWID;

-- Who has made a listing (the id of an API key, 0 the operator, -1 the console), and which edit of its account that
-- was. So a create is told of without a row of its own, which would cost it a tenth more. NULL where it was no edit of
-- its own: in a batch, by an import, or before this.
ALTER TABLE listings ADD COLUMN author INTEGER;
ALTER TABLE listings ADD COLUMN revision INTEGER;

-- What else was done: an edit has the number 0, what edits no listing has a number behind the revision that it found.
CREATE TABLE activity (
    bucket INTEGER NOT NULL,
    account_id INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    number INTEGER NOT NULL,
    moment INTEGER NOT NULL,
    author INTEGER NOT NULL,
    kind TEXT NOT NULL,
    subject INTEGER NOT NULL,
    detail TEXT NOT NULL,
    PRIMARY KEY (bucket, account_id, revision, number),
    FOREIGN KEY (bucket, account_id) REFERENCES account_state (bucket, account_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX activity_age ON activity (bucket, moment);

-- Which edit an import stands as in the activity.
ALTER TABLE imports ADD COLUMN revision INTEGER;

-- Answers by the hour since 1970.
CREATE TABLE usage_hours (
    bucket INTEGER NOT NULL,
    account_id INTEGER NOT NULL,
    hour INTEGER NOT NULL,
    key_id INTEGER NOT NULL,
    status INTEGER NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (bucket, account_id, hour, key_id, status),
    FOREIGN KEY (bucket, account_id) REFERENCES account_state (bucket, account_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX usage_hours_age ON usage_hours (bucket, hour);

-- The last requests of each account that were refused; the moment is in microseconds since 1970.
CREATE TABLE refusals (
    bucket INTEGER NOT NULL,
    account_id INTEGER NOT NULL,
    moment INTEGER NOT NULL,
    request_id TEXT NOT NULL,
    key_id INTEGER NOT NULL,
    code TEXT NOT NULL,
    status INTEGER NOT NULL,
    method TEXT NOT NULL,
    path TEXT NOT NULL,
    PRIMARY KEY (bucket, account_id, moment, request_id),
    FOREIGN KEY (bucket, account_id) REFERENCES account_state (bucket, account_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX refusals_age ON refusals (bucket, moment);
