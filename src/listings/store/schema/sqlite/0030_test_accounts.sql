-- The live account that a test account belongs to.
ALTER TABLE accounts ADD COLUMN test_of INTEGER;
CREATE UNIQUE INDEX accounts_test_of ON accounts (test_of) WHERE test_of IS NOT NULL;
