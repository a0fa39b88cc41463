-- The last reminder of the end of an account's plan: for which end, and how many days before it.
CREATE TABLE plan_reminders (
    account_id INTEGER PRIMARY KEY REFERENCES accounts (id),
    plan_expires_at INTEGER NOT NULL,
    days INTEGER NOT NULL
) STRICT;

CREATE INDEX accounts_plan_end ON accounts (plan_expires_at);
