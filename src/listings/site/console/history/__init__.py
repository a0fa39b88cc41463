"""The console's pages of changes: the history of a listing, and undo."""
