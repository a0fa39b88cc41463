"""Migrate, back up, restore and inspect a SQLite database."""
