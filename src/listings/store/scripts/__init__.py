"""Transactions as scripts, which every engine can run."""
