"""The store on PostgreSQL and Citus."""
