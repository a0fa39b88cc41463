-- Searches fold the case of all letters now, also of those that compatibility characters such as "™" consist of.
-- The index of an account's words ignores the case of ASCII letters. So only listings with characters that consist of
-- other capitals are indexed again.
UPDATE listings SET indexed = FALSE
WHERE indexed AND octet_length(title) + octet_length(content) > length(title) + length(content)
    AND title || content GLOB '*[ͺϒϓϔϲϹᴭᴲᴽℇℾℿ㏀㏁ꟸ𝚨-𝟊]*';
UPDATE account_state SET indexed = 2
WHERE indexed = 1 AND (bucket, account_id) IN (SELECT bucket, account_id FROM listings WHERE NOT indexed);

-- Entries of the market get terms of version 4, and their words are counted as spellings again: all of them, from the
-- first on.
UPDATE market_indexer SET reindexed = 0;
DELETE FROM market_spellings;
