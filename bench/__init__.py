"""Benchmarks of the service: `make bench`. docs/benchmarks.md describes the method."""


class BenchmarkError(Exception):
    """A benchmark has no result; the message says why and how to fix it."""
