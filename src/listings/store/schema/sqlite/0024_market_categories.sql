-- Entries get terms of version 3, which fold the spellings of a category: all of them, from the first on.
UPDATE market_indexer SET reindexed = 0;
