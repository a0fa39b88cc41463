"""Transactions written once for both engines, as generators of statements."""
