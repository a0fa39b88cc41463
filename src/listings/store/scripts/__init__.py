"""Transactions as scripts: generators of statements that every engine can run."""
