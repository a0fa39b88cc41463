-- The last reminder of the end of an account's plan: for which end, and how many days before it.
CREATE TABLE plan_reminders (
    account_id bigint PRIMARY KEY REFERENCES accounts (id),
    plan_expires_at bigint NOT NULL,
    days bigint NOT NULL
);

CREATE INDEX accounts_plan_end ON accounts (plan_expires_at);
