-- Reverts are numbered by the account, from above all ids that they had before: those of change sets. `group_id` is the
-- id of a revert's first change set, which is in the column `import_id` of all its change sets.
ALTER TABLE account_state ADD COLUMN last_revert bigint NOT NULL DEFAULT 0;
UPDATE account_state SET last_revert = edit_revision WHERE edit_revision > 0;
ALTER TABLE reverts ADD COLUMN group_id bigint;
UPDATE reverts SET group_id = id;
CREATE INDEX reverts_group ON reverts (bucket, account_id, group_id) WHERE group_id IS NOT NULL;

-- A revert continues with the change set `done_revision`, and its changes with numbers below `done_number`. The number of
-- a create is now the negative id of its listing. What has been reverted is skipped.
UPDATE reverts SET done_number = 1 WHERE done_number < 0 AND done_number > -1000000;

-- A listing that a revert took an external id from before its turn has a conflict with a number below 0.
CREATE INDEX revert_conflicts_listing ON revert_conflicts (bucket, account_id, revert_id, listing_id);

-- The change sets of an import, a revert, a bulk action of the console ("bulk"), or of writes with the same name
-- ("named"). The id is that of the first one, which is in the column `import_id` of all of them. `revision` is that of
-- the audit event of a bulk action, whose name begins with "#".
CREATE TABLE change_groups (
    bucket smallint NOT NULL,
    account_id bigint NOT NULL,
    id bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C",
    author bigint NOT NULL,
    started_at bigint NOT NULL,
    ended_at bigint NOT NULL,
    last_id bigint NOT NULL,
    sets bigint NOT NULL,
    changes bigint NOT NULL,
    revision bigint,
    PRIMARY KEY (bucket, account_id, id),
    FOREIGN KEY (bucket, account_id) REFERENCES account_state (bucket, account_id)
);

CREATE UNIQUE INDEX change_groups_name ON change_groups (bucket, account_id, name) WHERE name IS NOT NULL;

INSERT INTO change_groups (bucket, account_id, id, kind, author, started_at, ended_at, last_id, sets, changes)
SELECT bucket, account_id, import_id, kind, MIN(author), MIN(moment), MAX(moment), MAX(edit_revision),
    COUNT(DISTINCT edit_revision), SUM(CASE listing_id WHEN 0 THEN COALESCE(
        (SELECT SUM(CAST(run ->> 1 AS bigint))
         FROM jsonb_array_elements(CAST(CASE detail WHEN '' THEN '[]' ELSE detail END AS jsonb)) AS run), 0) ELSE 1 END)
FROM changes WHERE import_id IS NOT NULL
GROUP BY bucket, account_id, import_id, kind
ON CONFLICT DO NOTHING;
