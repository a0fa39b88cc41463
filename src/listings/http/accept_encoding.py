"""Parse the Accept-Encoding header (RFC 9110, 12.5.3)."""

import re
from functools import lru_cache
from typing import NamedTuple

GZIP_TAG_SUFFIX = "-gzip"
_MIN_BYTES = 1024
_CODING = re.compile(r"([!#$%&'*+.^_`|~0-9a-z-]+)(?:[ \t]*;[ \t]*q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?))?")


class Encodings(NamedTuple):
    """The encodings of a body that a client accepts.

    `suffixes`: the entity-tag suffix of each accepted encoding, "" for no encoding. Bodies are compressed from
    `min_bytes` on, or never (None).
    """

    suffixes: tuple[str, ...]
    min_bytes: int | None

    def permit(self, size: int) -> bool:
        """Return whether a body of this size is compressed."""
        return self.min_bytes is not None and size >= max(self.min_bytes, 1)


PLAIN = Encodings(("",), None)


@lru_cache(maxsize=32)
def parse_accept_encoding(value: str) -> Encodings:
    """Parse Accept-Encoding (RFC 9110, 12.5.3). If it is invalid or permits nothing, bodies are not compressed."""
    weights: dict[str, float] = {}
    for part in filter(None, (part.strip(" \t") for part in value.lower().split(","))):
        match = _CODING.fullmatch(part)
        if match is None:
            return PLAIN
        weights[match[1]] = float(match[2] or 1)
    gzip = weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0)))
    plain = weights.get("identity", weights.get("*"))
    if not gzip:
        return PLAIN
    if plain == 0:
        return Encodings((GZIP_TAG_SUFFIX,), 0)
    return Encodings(("", GZIP_TAG_SUFFIX), _MIN_BYTES if plain is None or plain <= gzip else None)
