-- The market: all listings that anybody may see, behind the listings themselves by a moment. A write of a listing only
-- enters it into an index of what is still to be done, which its new version does by itself.
ALTER TABLE listings ADD COLUMN market_version integer NOT NULL DEFAULT 0;
CREATE INDEX listings_unmarketed ON listings (id) WHERE market_version <> version;

-- 1: the market shows the account's listings; 0: none of them; 2: some, until the next steps.
ALTER TABLE accounts ADD COLUMN marketed smallint NOT NULL DEFAULT 1 CHECK (marketed IN (0, 1, 2));
CREATE INDEX accounts_unmarketed ON accounts (id) WHERE marketed <> CAST(disabled_at IS NULL AS integer);

-- What a card shows, in the order in which the listings first appeared. A listing keeps its place when it is paused or
-- deleted, for the time when it comes back. `state`: 0 hidden, 1 shown, 2 hidden since its account is disabled. `words`
-- are those of what is shown, and what it can be filtered by as words that no text can have.
CREATE TABLE market (
    serial bigint PRIMARY KEY,
    bucket smallint NOT NULL,
    listing_id bigint NOT NULL UNIQUE,
    account_id bigint NOT NULL,
    state smallint NOT NULL CHECK (state IN (0, 1, 2)),
    title text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    category text COLLATE "C" NOT NULL,
    image text COLLATE "C" NOT NULL,
    price_cents bigint NOT NULL,
    price_type text COLLATE "C" NOT NULL,
    location text COLLATE "C" NOT NULL,
    region text COLLATE "C" NOT NULL,
    created_at text COLLATE "C" NOT NULL,
    updated_at text COLLATE "C" NOT NULL,
    words text[] COLLATE "C" NOT NULL
);
ALTER TABLE market ALTER COLUMN words SET STATISTICS 0;

CREATE INDEX market_account ON market (account_id, state, listing_id);
CREATE INDEX market_newest ON market (serial) WHERE state = 1;
CREATE INDEX market_price ON market (price_cents, serial) INCLUDE (account_id) WHERE state = 1;
CREATE INDEX market_words ON market USING gin (words) WITH (gin_pending_list_limit = 256);

-- How many listings are shown of each category and region.
CREATE TABLE market_places (
    kind text COLLATE "C" NOT NULL CHECK (kind IN ('category', 'region')),
    name text COLLATE "C" NOT NULL,
    listings bigint NOT NULL,
    PRIMARY KEY (kind, name)
);

CREATE INDEX market_places_size ON market_places (kind, listings DESC, name);

-- Which of several processes brings the market up to date, and until when, in seconds since 1970.
CREATE TABLE market_indexer (
    id smallint PRIMARY KEY CHECK (id = 1),
    holder bytea NOT NULL,
    until bigint NOT NULL
);

-- Who has seen which listing's page on a day (days since 1970): a hash that nobody can undo once the day's salt is gone.
CREATE TABLE view_salts (
    day integer PRIMARY KEY,
    salt bytea NOT NULL CHECK (octet_length(salt) = 32)
);

-- The day leads the key, since a day is removed as a whole.
CREATE TABLE views (
    day integer NOT NULL,
    bucket smallint NOT NULL,
    listing_id bigint NOT NULL,
    visitor bytea NOT NULL CHECK (octet_length(visitor) = 16),
    PRIMARY KEY (day, bucket, listing_id, visitor)
);
