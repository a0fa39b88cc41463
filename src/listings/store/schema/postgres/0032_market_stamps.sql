-- The listings that were ever shown on the market, in the order of their first appearance (`serial`) and of their latest
-- change (`sequence`), which each machine's index follows. `state`: 0 hidden, 1 shown, 2 hidden because its account is
-- disabled, 3 removed. The words of listings are no longer in the database.
CREATE TABLE market_listings (
    serial bigint PRIMARY KEY,
    listing_id bigint NOT NULL UNIQUE,
    account_id bigint NOT NULL,
    state smallint NOT NULL CHECK (state IN (0, 1, 2, 3)),
    sequence bigint NOT NULL,
    stamped_at bigint NOT NULL,
    listed_at text COLLATE "C" NOT NULL
);

INSERT INTO market_listings (serial, listing_id, account_id, state, sequence, stamped_at, listed_at)
SELECT serial, listing_id, account_id, state, serial, CAST(extract(epoch FROM now()) AS bigint), created_at FROM market;

CREATE UNIQUE INDEX market_listings_sequence ON market_listings (sequence);
CREATE INDEX market_listings_account ON market_listings (account_id, state, listing_id);
CREATE INDEX market_listings_newest ON market_listings (serial) WHERE state = 1;
CREATE INDEX market_listings_removed ON market_listings (stamped_at) WHERE state = 3;

-- The process that numbers changes, until when, in seconds since 1970, and the last numbers. `purged` is the highest
-- sequence of a row that was deleted, and `turn` the account whose changes were numbered last.
DROP TABLE market_indexer;
CREATE TABLE market_indexer (
    id smallint PRIMARY KEY CHECK (id = 1),
    holder bytea NOT NULL,
    until bigint NOT NULL,
    sequence bigint NOT NULL,
    purged bigint NOT NULL,
    serial bigint NOT NULL,
    listed_at text COLLATE "C" NOT NULL,
    turn bigint NOT NULL
);
INSERT INTO market_indexer (id, holder, until, sequence, purged, serial, listed_at, turn)
SELECT 1, '', 0, coalesce(max(serial), 0), 0, coalesce(max(serial), 0), coalesce(max(listed_at), ''), -1
FROM market_listings;

-- Accounts take turns.
DROP INDEX listings_unmarketed;
CREATE INDEX listings_unmarketed ON listings (account_id, id) WHERE market_version <> version;

DROP TABLE market;
DROP TABLE market_places;
DROP TABLE market_spellings;
DROP FUNCTION market_price_range;
DROP FUNCTION market_price_places;
DROP FUNCTION market_price_class;
