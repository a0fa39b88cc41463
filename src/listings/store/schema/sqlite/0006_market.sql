-- The market: all listings that anybody may see, behind the listings themselves by a moment. A write of a listing only
-- enters it into an index of what is still to be done, which its new version does by itself.
ALTER TABLE listings ADD COLUMN market_version INTEGER NOT NULL DEFAULT 0;
CREATE INDEX listings_unmarketed ON listings (id) WHERE market_version <> version;

-- 1: the market shows the account's listings; 0: none of them; 2: some, until the next steps.
ALTER TABLE accounts ADD COLUMN marketed INTEGER NOT NULL DEFAULT 1 CHECK (marketed IN (0, 1, 2));
CREATE INDEX accounts_unmarketed ON accounts (id) WHERE marketed <> (disabled_at IS NULL);

-- What a card shows, in the order in which the listings first appeared. A listing keeps its place when it is paused or
-- deleted, for the time when it comes back. `state`: 0 hidden, 1 shown, 2 hidden since its account is disabled.
-- A serial has 26 bits, so that it goes into one number with a price.
CREATE TABLE market (
    serial INTEGER PRIMARY KEY CHECK (serial BETWEEN 1 AND 67108863),
    bucket INTEGER NOT NULL,
    listing_id INTEGER NOT NULL UNIQUE,
    account_id INTEGER NOT NULL,
    state INTEGER NOT NULL CHECK (state IN (0, 1, 2)),
    title TEXT NOT NULL,
    type TEXT NOT NULL,
    category TEXT NOT NULL,
    image TEXT NOT NULL,
    price_cents INTEGER NOT NULL,
    price_type TEXT NOT NULL,
    location TEXT NOT NULL,
    region TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL
) STRICT;

CREATE INDEX market_account ON market (account_id, state, listing_id);

-- The words of what is shown, and what it can be filtered by as words that no text can have: twice, since the order of
-- the rowids is the only one that a search has. One is by the serial, the other by price * 2^26 + serial.
CREATE VIRTUAL TABLE market_words USING fts5 (
    words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii');
CREATE VIRTUAL TABLE market_prices USING fts5 (
    words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii');

-- How many listings are shown of each category and region.
CREATE TABLE market_places (
    kind TEXT NOT NULL CHECK (kind IN ('category', 'region')),
    name TEXT NOT NULL,
    listings INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX market_places_size ON market_places (kind, listings DESC, name);

-- Which of several processes brings the market up to date, and until when, in seconds since 1970.
CREATE TABLE market_indexer (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    holder BLOB NOT NULL,
    until INTEGER NOT NULL
) STRICT;

-- Who has seen which listing's page on a day (days since 1970): a hash that nobody can undo once the day's salt is gone.
CREATE TABLE view_salts (
    day INTEGER PRIMARY KEY,
    salt BLOB NOT NULL CHECK (length(salt) = 32)
) STRICT;

-- The day leads the key, since a day is removed as a whole.
CREATE TABLE views (
    day INTEGER NOT NULL,
    bucket INTEGER NOT NULL,
    listing_id INTEGER NOT NULL,
    visitor BLOB NOT NULL CHECK (length(visitor) = 16),
    PRIMARY KEY (day, bucket, listing_id, visitor)
) STRICT, WITHOUT ROWID;
