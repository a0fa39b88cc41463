-- How many listings an account has, deleted ones included, and whether they are in the indexes below. A small account
-- is looked through, a large one is looked up: the indexes cost a write three times as much as all the rest of it, and
-- most accounts never need them.
ALTER TABLE account_state ADD COLUMN listings INTEGER NOT NULL DEFAULT 0;
ALTER TABLE account_state ADD COLUMN indexed INTEGER NOT NULL DEFAULT 0;
UPDATE account_state SET listings = (
    SELECT count(*) FROM listings
    WHERE listings.bucket = account_state.bucket AND listings.account_id = account_state.account_id);

ALTER TABLE listings ADD COLUMN indexed INTEGER NOT NULL DEFAULT 0 CHECK (indexed IN (0, 1));

CREATE INDEX listings_by_id ON listings (bucket, account_id, id) WHERE indexed;
CREATE INDEX listings_inactive ON listings (bucket, account_id, id)
    WHERE indexed AND NOT is_active AND deleted_at IS NULL;
CREATE INDEX listings_deleted ON listings (bucket, account_id, id) WHERE indexed AND deleted_at IS NOT NULL;
CREATE INDEX listings_by_type ON listings (bucket, account_id, type, id) WHERE indexed;
CREATE INDEX listings_by_category ON listings (bucket, account_id, category, id) WHERE indexed;
CREATE INDEX listings_by_region ON listings (bucket, account_id, region, id) WHERE indexed;
CREATE INDEX listings_by_price ON listings (bucket, account_id, price_cents, id) WHERE indexed;
CREATE INDEX listings_by_created_at ON listings (bucket, account_id, created_at, id) WHERE indexed;
CREATE INDEX listings_by_updated_at ON listings (bucket, account_id, updated_at, id) WHERE indexed;
CREATE INDEX listings_by_title ON listings (bucket, account_id, title, id) WHERE indexed;

-- The words of those listings as `words.words_of` gives them, and the account as a word that no text can have. The
-- tokenizer parts at spaces and leaves all other letters as they are.
CREATE VIRTUAL TABLE listings_words USING fts5 (
    words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii');
