-- A change set is what one transaction changes in the listings of an account. They are numbered by the account.
ALTER TABLE account_state ADD COLUMN edit_revision INTEGER NOT NULL DEFAULT 0;
ALTER TABLE listings ADD COLUMN edit_revision INTEGER;

-- Up to which change set the rows are deleted, and the bucket's last serial at that time.
ALTER TABLE account_state ADD COLUMN purged_revision INTEGER NOT NULL DEFAULT 0;
ALTER TABLE account_state ADD COLUMN purged_serial INTEGER NOT NULL DEFAULT 0;
UPDATE account_state
SET purged_serial = coalesce((SELECT last FROM listing_ids WHERE listing_ids.bucket = account_state.bucket), 0);

-- The first change set of an import, which is the import's id.
ALTER TABLE imports ADD COLUMN edit_revision INTEGER;

-- The change sets, except those that only create one listing: these are in the row of the listing. But every 256th has
-- a row here, whatever it does. A single update, deletion or restore is one row with the number 0. A batch, or a step
-- of an import, has a row 0 without a listing (`listing_id` is 0), and a row from number 1 on for each change.
-- `fields` are the changed columns, and `detail` the old and the new value of each. In a row without a listing,
-- `detail` has the created listings as pairs of a first serial and a count. `last_serial`, in a row 0: all listings of
-- later change sets have higher serials. A single edit has the account's `revision`, since it is its own audit event.
CREATE TABLE changes (
    bucket INTEGER NOT NULL,
    account_id INTEGER NOT NULL,
    edit_revision INTEGER NOT NULL,
    number INTEGER NOT NULL,
    listing_id INTEGER NOT NULL,
    moment INTEGER NOT NULL,
    author INTEGER NOT NULL,
    kind TEXT NOT NULL,
    import_id INTEGER,
    revision INTEGER,
    last_serial INTEGER NOT NULL,
    fields TEXT NOT NULL,
    detail TEXT NOT NULL,
    PRIMARY KEY (bucket, account_id, edit_revision, number),
    FOREIGN KEY (bucket, account_id) REFERENCES account_state (bucket, account_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX changes_listing ON changes (bucket, listing_id, edit_revision, number) WHERE listing_id <> 0;
CREATE INDEX changes_events ON changes (bucket, account_id, revision, number) WHERE revision IS NOT NULL;
