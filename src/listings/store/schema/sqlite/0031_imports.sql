-- The name of an import's file, and its further outcomes. `changed` does not count restored and deleted listings.
ALTER TABLE imports ADD COLUMN restored INTEGER NOT NULL DEFAULT 0;
ALTER TABLE imports ADD COLUMN deleted INTEGER NOT NULL DEFAULT 0;
ALTER TABLE imports ADD COLUMN conflicts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE imports ADD COLUMN name TEXT NOT NULL DEFAULT '';

-- In a change by an import: the version of the listing that the row of the file was exported with.
ALTER TABLE changes ADD COLUMN base_version INTEGER;
