"""The limits of connections."""

from typing import NamedTuple


class ConnectionLimits(NamedTuple):
    """Limits of connections."""

    header_seconds: float = 10
    body_seconds: float = 30
    idle_seconds: float = 75
    write_seconds: float = 30
    head_bytes: int = 16 * 1024
    head_fields: int = 100
    url_bytes: int = 8 * 1024
    connections: int = 10_000
    accept_batch_size: int = 16  # per loop iteration; more would delay the requests of open connections
