"""Exact sliding-window rate limiters."""
