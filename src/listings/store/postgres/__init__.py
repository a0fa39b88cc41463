"""The store for PostgreSQL and Citus."""
