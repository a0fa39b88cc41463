-- The name of an import's file, and its further outcomes. `changed` does not count restored and deleted listings.
ALTER TABLE imports ADD COLUMN restored bigint NOT NULL DEFAULT 0;
ALTER TABLE imports ADD COLUMN deleted bigint NOT NULL DEFAULT 0;
ALTER TABLE imports ADD COLUMN conflicts bigint NOT NULL DEFAULT 0;
ALTER TABLE imports ADD COLUMN name text NOT NULL DEFAULT '';

-- In a change by an import: the version of the listing that the row of the file was exported with.
ALTER TABLE changes ADD COLUMN base_version bigint;
