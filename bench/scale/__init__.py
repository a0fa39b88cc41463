"""Measures the service with several processes and on PostgreSQL."""
