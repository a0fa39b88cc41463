-- Requests of sellers for the Business plan, until the plan is extended or the request is declined.
CREATE TABLE plan_requests (
    account_id INTEGER PRIMARY KEY REFERENCES accounts (id),
    requested_at INTEGER NOT NULL
) STRICT;

-- When a task that runs once in a while, in any process, was last started.
CREATE TABLE periodic_tasks (
    name TEXT PRIMARY KEY,
    started_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
