"""Ports for servers that are told theirs before they start, and keep it while they are away."""

import random
import socket

# Below those that the kernel gives to whoever asks for any, and to clients; those of cluster nodes, too.
_LEAST, _MOST = 12_000, 22_000

_chance = random.SystemRandom()


def free_port() -> int:
    """One on which nobody listens; the port of a Redis cluster's node, which is 10,000 higher, is there too."""
    while True:
        with socket.socket() as trial:
            try:
                trial.bind(("127.0.0.1", _chance.randrange(_LEAST, _MOST)))
            except OSError:
                continue
            return int(trial.getsockname()[1])
