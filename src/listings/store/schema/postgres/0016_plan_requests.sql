-- Requests of sellers for the Business plan, until the plan is extended or the request is declined.
CREATE TABLE plan_requests (
    account_id bigint PRIMARY KEY REFERENCES accounts (id),
    requested_at bigint NOT NULL
);

-- When a task that runs once in a while, in any process, was last started.
CREATE TABLE periodic_tasks (
    name text COLLATE "C" PRIMARY KEY,
    started_at bigint NOT NULL
);
