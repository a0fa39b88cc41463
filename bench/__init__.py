"""A benchmark of the service that anyone can repeat: `make bench`. docs/performance.md tells how it measures."""


class RejectedRequest(Exception):
    """Why there is no result: one sentence for the person who asked for it."""
