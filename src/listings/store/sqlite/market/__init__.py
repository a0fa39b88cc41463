"""The market in the SQLite file: its index, searches, and its store."""
