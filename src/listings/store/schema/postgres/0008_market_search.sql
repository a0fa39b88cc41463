-- The market's words together with where a listing stands in each order, so that a search goes along an order in parts
-- and looks only at those that it needs. `serial >> 13` numbers parts of 8,192 listings in the order of appearance.
CREATE FUNCTION market_price_class(price_cents bigint) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT width_bucket(price_cents, CAST('{
        1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 120, 150, 200, 250, 300, 400, 500,
        600, 800, 1000, 1200, 1500, 2000, 2500, 3000, 4000, 5000, 6000, 8000, 10000, 12000, 15000, 20000,
        25000, 30000, 40000, 50000, 60000, 80000, 100000, 120000, 150000, 200000, 250000, 300000, 400000,
        500000, 600000, 800000, 1000000, 1200000, 1500000, 2000000, 2500000, 3000000, 4000000, 5000000,
        6000000, 8000000, 10000000, 12000000, 15000000, 20000000, 25000000, 30000000, 40000000, 50000000,
        60000000, 80000000, 100000000, 120000000, 150000000, 200000000, 250000000, 300000000, 400000000,
        500000000, 600000000, 800000000, 1000000000, 1200000000, 1500000000, 2000000000, 2500000000,
        3000000000, 4000000000, 5000000000, 6000000000, 8000000000, 10000000000, 12000000000, 15000000000,
        20000000000, 25000000000, 30000000000, 40000000000, 50000000000, 60000000000, 80000000000,
        100000000000
    }' AS bigint[]))
$$;

-- What a price is found by: its class, and a number for ten classes.
CREATE FUNCTION market_price_places(price_class integer) RETURNS integer[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT ARRAY[price_class, 1000 + price_class / 10] $$;

-- What all prices of a range of classes are found by: tens where they are whole. The last class has no end.
CREATE FUNCTION market_price_range(first integer, last integer) RETURNS integer[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ARRAY(
        SELECT generate_series(first, LEAST(last, (first + 9) / 10 * 10 - 1))
        UNION SELECT generate_series(1000 + (first + 9) / 10, 1000 + ends / 10 - 1)
        UNION SELECT generate_series(GREATEST(first, ends / 10 * 10), last)
    ) FROM (SELECT CASE last WHEN 108 THEN 110 ELSE last + 1 END AS ends) AS range
$$;

DROP INDEX market_words;
CREATE INDEX market_words ON market USING gin (
    (ARRAY[serial >> 13]), (market_price_places(market_price_class(price_cents))), words)
WITH (gin_pending_list_limit = 256); -- places first: their end is the end of a scan
