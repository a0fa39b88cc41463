-- Nothing to do here, where an account is indexed while others write. SQLite has a change under this number, and both
-- count the same.
SELECT 1;
