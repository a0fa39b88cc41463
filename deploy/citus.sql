-- Distribute a Listings database over the nodes of a Citus cluster. The service itself does not change: set its
-- database URL to the coordinator.
--
--     psql --set=ON_ERROR_STOP=on --file=deploy/citus.sql --host=COORDINATOR --username=listings listings
--
-- Before you run it:
--   - Set up the cluster as docs/scaling.md describes. Without nodes that can log in to each other as the service's role,
--     the first statement of this file that distributes a table fails.
--   - Stop the services, run `listings migrate`, and back up the database (docs/scaling.md).
--   - Run this file as the role that the service uses, which must own the tables.
-- Run it only once. Each statement is one transaction. If a statement fails, restore the backup into a new database.
-- The service connects only to the coordinator. It refuses a worker: sequences count from 2^48 there, and the local
-- tables are missing.
--
-- The contract and API tests pass on Citus 13.2 with a coordinator and two workers.
-- tests/deploy/test_citus.py checks every name, column and signature against a migrated PostgreSQL database, and
-- `make test-citus` runs the contract and API tests on a cluster (docs/testing.md).
--
-- Local tables, on the coordinator: database_id, schema_migrations, market_listings, market_indexer, view_salts
-- Changes for the market are numbered across all buckets; each machine's index follows these numbers.

-- Without this, psql shows a notice for each table whose rows are copied to the shards.
SET client_min_messages = warning;

-- Without this, foreign keys from tables that are still local to distributed tables are rejected.
SET citus.enable_local_reference_table_foreign_keys = off;

-- Without this, distributing tables with rows fails with "cannot execute parallel DDL".
SET citus.multi_shard_modify_mode = 'sequential';

-- Reference tables are on every node: any node can look up a key, and digests and email addresses are unique across all
-- nodes. A write to them needs every node.
SELECT create_reference_table('accounts');
SELECT create_reference_table('api_keys');
SELECT create_reference_table('members');
SELECT create_reference_table('sessions');
SELECT create_reference_table('invitations');
SELECT create_reference_table('sign_in_attempts');
SELECT create_reference_table('sign_in_devices');
SELECT create_reference_table('plan_requests');
SELECT create_reference_table('periodic_tasks');
SELECT create_reference_table('mails');
SELECT create_reference_table('plan_reminders');
SELECT create_reference_table('email_tokens');
SELECT create_reference_table('confirmed_emails');
SELECT create_reference_table('closed_accounts');
SELECT create_reference_table('payments');
SELECT create_reference_table('listing_reports');
SELECT create_reference_table('takedowns');
SELECT create_reference_table('operators');
SELECT create_reference_table('pictures');
SELECT create_reference_table('picture_usage');
SELECT create_reference_table('blocked_pictures');

-- All rows of a bucket are in one shard, so that each query of the service needs only one shard.
SELECT create_distributed_table('account_state', 'bucket');
SELECT create_distributed_table('listing_ids', 'bucket', colocate_with => 'account_state');
SELECT create_distributed_table('listings', 'bucket', colocate_with => 'account_state');
SELECT create_distributed_table('listing_words', 'bucket', colocate_with => 'account_state');
SELECT create_distributed_table('idempotency', 'bucket', colocate_with => 'account_state');
SELECT create_distributed_table('imports', 'bucket', colocate_with => 'account_state');
SELECT create_distributed_table('views', 'bucket', colocate_with => 'account_state');
SELECT create_distributed_table('messages', 'bucket', colocate_with => 'account_state');
SELECT create_distributed_table('account_days', 'bucket', colocate_with => 'account_state');
SELECT create_distributed_table('activity', 'bucket', colocate_with => 'account_state');
SELECT create_distributed_table('changes', 'bucket', colocate_with => 'account_state');
SELECT create_distributed_table('lost_changes', 'bucket', colocate_with => 'account_state');
SELECT create_distributed_table('reverts', 'bucket', colocate_with => 'account_state');
SELECT create_distributed_table('revert_conflicts', 'bucket', colocate_with => 'account_state');
SELECT create_distributed_table('change_groups', 'bucket', colocate_with => 'account_state');
SELECT create_distributed_table('usage_hours', 'bucket', colocate_with => 'account_state');
SELECT create_distributed_table('refusals', 'bucket', colocate_with => 'account_state');

-- The coordinator's local tables still contain the rows that are now in the shards, but nothing reads them.
SELECT truncate_local_data_after_distributing_table('refusals');
SELECT truncate_local_data_after_distributing_table('usage_hours');
SELECT truncate_local_data_after_distributing_table('change_groups');
SELECT truncate_local_data_after_distributing_table('revert_conflicts');
SELECT truncate_local_data_after_distributing_table('reverts');
SELECT truncate_local_data_after_distributing_table('lost_changes');
SELECT truncate_local_data_after_distributing_table('changes');
SELECT truncate_local_data_after_distributing_table('operators');
SELECT truncate_local_data_after_distributing_table('takedowns');
SELECT truncate_local_data_after_distributing_table('listing_reports');
SELECT truncate_local_data_after_distributing_table('messages');
SELECT truncate_local_data_after_distributing_table('account_days');
SELECT truncate_local_data_after_distributing_table('activity');
SELECT truncate_local_data_after_distributing_table('views');
SELECT truncate_local_data_after_distributing_table('imports');
SELECT truncate_local_data_after_distributing_table('idempotency');
SELECT truncate_local_data_after_distributing_table('listing_words');
SELECT truncate_local_data_after_distributing_table('listings');
SELECT truncate_local_data_after_distributing_table('listing_ids');
SELECT truncate_local_data_after_distributing_table('account_state');
SELECT truncate_local_data_after_distributing_table('blocked_pictures');
SELECT truncate_local_data_after_distributing_table('picture_usage');
SELECT truncate_local_data_after_distributing_table('pictures');
SELECT truncate_local_data_after_distributing_table('payments');
SELECT truncate_local_data_after_distributing_table('closed_accounts');
SELECT truncate_local_data_after_distributing_table('confirmed_emails');
SELECT truncate_local_data_after_distributing_table('email_tokens');
SELECT truncate_local_data_after_distributing_table('plan_reminders');
SELECT truncate_local_data_after_distributing_table('mails');
SELECT truncate_local_data_after_distributing_table('periodic_tasks');
SELECT truncate_local_data_after_distributing_table('plan_requests');
SELECT truncate_local_data_after_distributing_table('sign_in_devices');
SELECT truncate_local_data_after_distributing_table('sign_in_attempts');
SELECT truncate_local_data_after_distributing_table('invitations');
SELECT truncate_local_data_after_distributing_table('sessions');
SELECT truncate_local_data_after_distributing_table('members');
SELECT truncate_local_data_after_distributing_table('api_keys');
SELECT truncate_local_data_after_distributing_table('accounts');

-- Outside a transaction block, a create is one call to the worker that has the bucket. Inside one, the coordinator runs
-- the function and sends each statement to the worker, with the same result.
SELECT create_distributed_function(CAST('create_listing' AS regproc), 'of_bucket', colocate_with => 'listings');

-- Citus passes a column's statistics target to the shards, but not its options. Each row of the result is a shard where
-- the statement failed. A shard that is moved or split loses the option: run this statement again after a rebalance.
SELECT shardid, result
FROM run_command_on_shards('listings', 'ALTER TABLE %s ALTER COLUMN bucket SET (n_distinct = 1)')
WHERE NOT success;

-- Settings of a session apply only on the coordinator. Settings of a role also apply to its sessions on the workers,
-- where queries are planned. multi_shard_modify_mode is for the step that numbers changes: it reads listings of all
-- shards and then changes an account, which Citus rejects after a parallel read. lock_timeout limits the wait for a row
-- on the workers. The other settings are those of the service's sessions for searches. On the workers they apply to all
-- statements, because Citus sends at most SET LOCAL there, and only in a transaction, for which each search would need more round trips. On the coordinator, the
-- service's sessions override them. statement_timeout is not set here: the service's own one already cancels statements
-- on the workers, and a role's would cancel migrations and the copying of moved shards.
DO $$
DECLARE
    setting text;
BEGIN
    FOREACH setting IN ARRAY ARRAY[
        'citus.multi_shard_modify_mode = ''sequential''', 'lock_timeout = ''3s''', 'jit = off', 'enable_seqscan = off',
        'enable_hashjoin = off', 'enable_mergejoin = off', 'enable_sort = off', 'enable_incremental_sort = off']
    LOOP
        EXECUTE format('ALTER ROLE CURRENT_USER IN DATABASE %I SET %s', current_database(), setting);
    END LOOP;
END
$$;

-- From now on, migrations run on the coordinator as before, except for statements that Citus rejects on distributed
-- tables: triggers, UNIQUE without the bucket, ALTER COLUMN ... SET (n_distinct), updates of the bucket, and foreign
-- keys to tables other than these. The purge of old idempotency keys runs on all shards, once a minute and outside
-- requests. A search for words runs two queries. PostgreSQL runs them on one snapshot, but Citus workers read the
-- latest committed rows for each. So a listing that is updated in between may be found by a word that it no longer
-- contains.
