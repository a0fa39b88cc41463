"""Copy a SQLite database to PostgreSQL."""
