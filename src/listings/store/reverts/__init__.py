"""The store of reverts: its statements, and the script of one step."""
