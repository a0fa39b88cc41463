-- `created_at` is the time that a card shows, which now ascends with the serial: when the listing was created, or the
-- time of the entry before it, if that is later.
UPDATE market SET created_at = best.listed_at
FROM (
    SELECT serial, max(LEAST(created_at, to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS'))) OVER (
        ORDER BY serial) AS listed_at
    FROM market) AS best
WHERE best.serial = market.serial AND best.listed_at <> market.created_at;

-- Version of the terms of an entry. The version of the index is that of searches: 1 until all entries have version 2.
-- Until then, entries are written with the terms of both, and `reindexed` is the last serial that was.
ALTER TABLE market ADD COLUMN version smallint NOT NULL DEFAULT 1;
ALTER TABLE market_indexer ADD COLUMN version smallint NOT NULL DEFAULT 2;
ALTER TABLE market_indexer ADD COLUMN reindexed bigint NOT NULL DEFAULT 0;
UPDATE market_indexer SET version = 1;

-- Words that can be suggested for misspelt ones, and how many listings are shown with them. A skeleton has the
-- consonants only.
CREATE TABLE market_spellings (
    word text COLLATE "C" PRIMARY KEY,
    skeleton text COLLATE "C" NOT NULL,
    listings bigint NOT NULL
);

CREATE INDEX market_spellings_skeleton ON market_spellings (skeleton);
