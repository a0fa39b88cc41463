-- The listings that were ever shown on the market, in the order of their first appearance (`serial`) and of their latest
-- change (`sequence`), which each machine's index follows. `state`: 0 hidden, 1 shown, 2 hidden because its account is
-- disabled, 3 removed. The words of listings are no longer in the database.
CREATE TABLE market_listings (
    serial INTEGER PRIMARY KEY,
    listing_id INTEGER NOT NULL UNIQUE,
    account_id INTEGER NOT NULL,
    state INTEGER NOT NULL CHECK (state IN (0, 1, 2, 3)),
    sequence INTEGER NOT NULL,
    stamped_at INTEGER NOT NULL,
    listed_at TEXT NOT NULL
) STRICT;

INSERT INTO market_listings (serial, listing_id, account_id, state, sequence, stamped_at, listed_at)
SELECT serial, listing_id, account_id, state, serial, CAST(strftime('%s', 'now') AS INTEGER), created_at FROM market;

CREATE UNIQUE INDEX market_listings_sequence ON market_listings (sequence);
CREATE INDEX market_listings_account ON market_listings (account_id, state, listing_id);
CREATE INDEX market_listings_removed ON market_listings (stamped_at) WHERE state = 3;

-- The process that numbers changes, until when, in seconds since 1970, and the last numbers. `purged` is the highest
-- sequence of a row that was deleted, and `turn` the account whose changes were numbered last.
DROP TABLE market_indexer;
CREATE TABLE market_indexer (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    holder BLOB NOT NULL,
    until INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    purged INTEGER NOT NULL,
    serial INTEGER NOT NULL,
    listed_at TEXT NOT NULL,
    turn INTEGER NOT NULL
) STRICT;
INSERT INTO market_indexer (id, holder, until, sequence, purged, serial, listed_at, turn)
SELECT 1, x'', 0, coalesce(max(serial), 0), 0, coalesce(max(serial), 0), coalesce(max(listed_at), ''), -1
FROM market_listings;

-- Accounts take turns.
DROP INDEX listings_unmarketed;
CREATE INDEX listings_unmarketed ON listings (account_id, id) WHERE market_version <> version;

DROP TABLE market;
DROP TABLE market_words;
DROP TABLE market_prices;
DROP TABLE market_places;
DROP TABLE market_spellings;
