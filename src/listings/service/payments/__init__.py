"""Payments for plans."""
