"""The market in PostgreSQL: its index, searches, and its store."""
