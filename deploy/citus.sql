-- Distributes a database of Listings over the nodes of a Citus cluster. The service does not change: it is given the
-- coordinator's address.
--
--     psql --set=ON_ERROR_STOP=on --file=deploy/citus.sql "$LISTINGS_DATABASE_URL"
--
-- Before:
--   - stop the services, `listings migrate`, and back the database up (`pg_dump`);
--   - as a superuser, in this very database on the coordinator and in one of the same name on every worker:
--     `CREATE EXTENSION citus`; then on the coordinator
--     `SELECT citus_set_coordinator_host('HOST', 5432)` and `SELECT citus_add_node('HOST', 5432)` for each worker;
--   - run this as the role that the service uses, which owns the tables.
-- It can't be run twice. Each statement is a transaction; where one fails, restore the backup into a new database.
-- Accounts and keys are made through the coordinator alone: a sequence counts from 2^48 on a worker.
--
-- What was run on Citus 13.2.2 over PostgreSQL 15, with a schema of the same keys and 127,000 listings: the two
-- settings, the distribution in this order, the removal of the local rows, a function that is delegated by its bucket,
-- a role's lock_timeout that reaches the workers, CREATE STATISTICS that is handed on. Not run there: this file as it
-- stands, `listing_words`, `imports` and `views`, the market, the console's tables, the partial indexes of the search and
-- the one of its words (plain indexes with options, which Citus hands on as they are written), the settings of the
-- planner, `run_command_on_shards`.
-- Every name, column and signature in it is checked against a migrated PostgreSQL by tests/deploy/test_citus.py.
--
-- Stays local, on the coordinator: database_id, schema_migrations, market, market_places, market_indexer, view_salts
-- The market is searched over all buckets at once, which one node does best.

-- Without this the keys from tables that are local still to tables that are distributed already are refused.
SET citus.enable_local_reference_table_foreign_keys = off;

-- Without this a database with rows ends in "cannot execute parallel DDL".
SET citus.multi_shard_modify_mode = 'sequential';

-- On every node: a key is found wherever it is looked for, digests and addresses are unique everywhere. A write to them
-- needs every node.
SELECT create_reference_table('accounts');
SELECT create_reference_table('api_keys');
SELECT create_reference_table('members');
SELECT create_reference_table('sessions');
SELECT create_reference_table('invitations');
SELECT create_reference_table('sign_in_attempts');
SELECT create_reference_table('payments');

-- A bucket's rows are together, so that whatever the service asks is asked of one shard.
SELECT create_distributed_table('account_state', 'bucket');
SELECT create_distributed_table('listing_ids', 'bucket', colocate_with => 'account_state');
SELECT create_distributed_table('listings', 'bucket', colocate_with => 'account_state');
SELECT create_distributed_table('listing_words', 'bucket', colocate_with => 'account_state');
SELECT create_distributed_table('idempotency', 'bucket', colocate_with => 'account_state');
SELECT create_distributed_table('imports', 'bucket', colocate_with => 'account_state');
SELECT create_distributed_table('views', 'bucket', colocate_with => 'account_state');
SELECT create_distributed_table('activity', 'bucket', colocate_with => 'account_state');
SELECT create_distributed_table('usage_hours', 'bucket', colocate_with => 'account_state');
SELECT create_distributed_table('refusals', 'bucket', colocate_with => 'account_state');

-- What is in the shards now is still in the coordinator's own tables, which nobody reads any more.
SELECT truncate_local_data_after_distributing_table('refusals');
SELECT truncate_local_data_after_distributing_table('usage_hours');
SELECT truncate_local_data_after_distributing_table('activity');
SELECT truncate_local_data_after_distributing_table('views');
SELECT truncate_local_data_after_distributing_table('imports');
SELECT truncate_local_data_after_distributing_table('idempotency');
SELECT truncate_local_data_after_distributing_table('listing_words');
SELECT truncate_local_data_after_distributing_table('listings');
SELECT truncate_local_data_after_distributing_table('listing_ids');
SELECT truncate_local_data_after_distributing_table('account_state');
SELECT truncate_local_data_after_distributing_table('payments');
SELECT truncate_local_data_after_distributing_table('sign_in_attempts');
SELECT truncate_local_data_after_distributing_table('invitations');
SELECT truncate_local_data_after_distributing_table('sessions');
SELECT truncate_local_data_after_distributing_table('members');
SELECT truncate_local_data_after_distributing_table('api_keys');
SELECT truncate_local_data_after_distributing_table('accounts');

-- A create is one call of the worker that has the bucket, outside of BEGIN; else the coordinator runs the function, and
-- asks the worker statement by statement, which comes to the same.
SELECT create_distributed_function(
    'create_listing(smallint, bigint, bigint, text, text, text, text, text, bigint, text, text, text, text, double precision, double precision, boolean, text, text[], text, bytea, bigint, bigint, bigint)',
    'of_bucket',
    colocate_with => 'listings');

-- A column's statistics target is handed to the shards, but not its options. Any row of this answer is a shard that has
-- refused. A shard that is moved or split loses it: run this statement again after a rebalance.
SELECT shardid, result
FROM run_command_on_shards('listings', 'ALTER TABLE %s ALTER COLUMN bucket SET (n_distinct = 1)')
WHERE NOT success;

-- A session's settings end at the coordinator; a role's reach the sessions that it opens on the workers, where the
-- plans are made. The lock_timeout bounds the wait for a row there. The others are those of the service's sessions,
-- which its searches count on. There is no statement_timeout among them: that of the service's session cancels its
-- statements on the workers too, and a role's would end migrations, and the copying of a shard that is moved.
DO $$
DECLARE
    setting text;
BEGIN
    FOREACH setting IN ARRAY ARRAY[
        'lock_timeout = ''3s''', 'jit = off', 'enable_seqscan = off', 'enable_hashjoin = off', 'enable_mergejoin = off',
        'enable_sort = off', 'enable_incremental_sort = off']
    LOOP
        EXECUTE format('ALTER ROLE CURRENT_USER IN DATABASE %I SET %s', current_database(), setting);
    END LOOP;
END
$$;

-- From now on migrations run on the coordinator as before, but for what Citus refuses of distributed tables: triggers,
-- UNIQUE without the bucket, ALTER COLUMN ... SET (n_distinct), an update of the bucket, foreign keys to other tables
-- than these. The purge of old idempotency keys goes to all shards, once a minute and outside of requests. A search for
-- words reads twice, which is one moment on PostgreSQL; on Citus, whose workers read what is committed at each
-- statement, a listing that is changed in between may be found by a word that it had.
