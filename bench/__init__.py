"""A benchmark of the service that anyone can repeat: `make bench`. docs/benchmarks.md describes the method."""


class RejectedRequest(Exception):
    """Why there is no result: one sentence for the person who asked for it."""
