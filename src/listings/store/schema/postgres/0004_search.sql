-- How many listings an account has, deleted ones included, and whether they are in the indexes below. A small account
-- is looked through, a large one is looked up: most accounts never need the indexes, which every write would pay for.
ALTER TABLE account_state ADD COLUMN listings bigint NOT NULL DEFAULT 0;
ALTER TABLE account_state ADD COLUMN indexed boolean NOT NULL DEFAULT false;
UPDATE account_state SET listings = (
    SELECT count(*) FROM listings
    WHERE listings.bucket = account_state.bucket AND listings.account_id = account_state.account_id);

ALTER TABLE listings ADD COLUMN indexed boolean NOT NULL DEFAULT false;

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

-- The words of those listings as `words.words_of` gives them, each behind the account's id. An array, since a tsvector
-- ends at 1 MiB, which the words of a long text can pass.
CREATE TABLE listing_words (
    bucket smallint NOT NULL,
    id bigint NOT NULL,
    words text[] COLLATE "C" NOT NULL,
    PRIMARY KEY (bucket, id)
);
ALTER TABLE listing_words ALTER COLUMN words SET STATISTICS 0;

CREATE INDEX listing_words_words ON listing_words USING gin (words) WITH (gin_pending_list_limit = 256);
