"""Listings: sellers manage their marketplace listings by program."""

from importlib.util import find_spec

__version__ = "0.1.0"


def is_compiled() -> bool:
    """Whether what every request passes is compiled here; else it runs as it is written, which is slower."""
    spec = find_spec("listings.domain.api_keys")
    return spec is not None and not str(spec.origin).endswith(".py")
