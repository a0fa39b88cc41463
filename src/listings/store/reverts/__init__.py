"""The store of reverts: its statements, and the scripts that find, preview and revert changes."""
