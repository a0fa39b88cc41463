-- Nothing to do here, where the indexes of words are in the orders of the market already. PostgreSQL has a change of
-- its index under this number, and both count the same.
SELECT 1;
