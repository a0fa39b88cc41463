-- An answered request: when the operator declined it, and why. It stays until the next request or plan.
ALTER TABLE plan_requests ADD COLUMN declined_at bigint;
ALTER TABLE plan_requests ADD COLUMN reason text NOT NULL DEFAULT '';
