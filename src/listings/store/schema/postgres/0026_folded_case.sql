-- Searches fold the case of all letters now, also of those that compatibility characters such as "™" consist of.
-- Each row is updated by its key, because Citus rejects casts of arrays in an UPDATE of all shards.
DO $$
DECLARE
    entry record;
BEGIN
    FOR entry IN
        SELECT bucket, id, CAST(translate(
            CAST(words AS text),
            'ABCDEFGHIJKLMNOPQRSTUVWXYZÆĦƎƐȢΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩςϜ',
            'abcdefghijklmnopqrstuvwxyzæħǝɛȣαβγδεζηθικλμνξοπρστυφχψωσϝ') AS text[]) AS words
        FROM listing_words
        WHERE CAST(words AS text) COLLATE "C" ~ '[ABCDEFGHIJKLMNOPQRSTUVWXYZÆĦƎƐȢΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩςϜ]'
    LOOP
        UPDATE listing_words SET words = entry.words WHERE bucket = entry.bucket AND id = entry.id;
    END LOOP;
END
$$;

-- Entries of the market get terms of version 4, and their words are counted as spellings again: all of them, from the
-- first on.
UPDATE market_indexer SET reindexed = 0;
DELETE FROM market_spellings;
