"""Listings: an API, a seller console and a public market for marketplace listings."""

from importlib.util import find_spec

__version__ = "0.1.0"


def is_compiled() -> bool:
    """Return whether the modules on the request path are compiled with mypyc."""
    spec = find_spec("listings.domain.api_keys")
    return spec is not None and not str(spec.origin).endswith(".py")
