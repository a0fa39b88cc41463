"""Compress bodies with gzip for the clients that accept it (decision G41)."""

import asyncio
import re
from functools import lru_cache
from typing import NamedTuple

from listings.api import codec
from listings.api.body_files import build_compressor
from listings.api.codec import Response
from listings.api.response_cache import ResponseCache

_MIN_BYTES = 1024
_MAX_BYTES_ON_LOOP = 256 * 1024  # takes at most 2 ms
_MAX_PENDING = 8  # larger bodies that are compressed in threads; others are sent as they are
_CONTENT_ENCODING = b"content-encoding: gzip\r\n"
_TAG_SUFFIX = "-gzip"
_CACHE_SUFFIX = "/gzip"  # no name in a path has a slash
_CODING = re.compile(r"([!#$%&'*+.^_`|~0-9a-z-]+)(?:[ \t]*;[ \t]*q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?))?")


class Encodings(NamedTuple):
    """The encodings of a body that a client accepts.

    `suffixes` are those of their entity tags, "" for no encoding. Bodies of at least `min_bytes` are compressed; None:
    no bodies.
    """

    suffixes: tuple[str, ...]
    min_bytes: int | None


PLAIN = Encodings(("",), None)


@lru_cache(maxsize=32)
def parse_accept_encoding(value: str) -> Encodings:
    """Parse Accept-Encoding (RFC 9110, 12.5.3). If it is invalid or permits nothing, bodies are not compressed."""
    weights: dict[str, float] = {}
    for part in filter(None, map(_strip, value.lower().split(","))):
        match = _CODING.fullmatch(part)
        if match is None:
            return PLAIN
        weights[match[1]] = float(match[2] or 1)
    gzip = weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0)))
    plain = weights.get("identity", weights.get("*"))
    if not gzip:
        return PLAIN
    if plain == 0:
        return Encodings((_TAG_SUFFIX,), 0)
    return Encodings(("", _TAG_SUFFIX), _MIN_BYTES if plain is None or plain <= gzip else None)


def build_tags(tag: str, encodings: Encodings) -> list[str]:
    """Return the entity tags of the body `tag` in the encodings."""
    return [f'{tag[:-1]}{suffix}"' for suffix in encodings.suffixes]


def mark_compressed(response: Response) -> Response:
    """Return the response with the headers of a compressed body."""
    tag = f'{response.tag[:-1]}{_TAG_SUFFIX}"' if response.tag else ""
    return codec.with_head(response._replace(headers=response.headers + _CONTENT_ENCODING, tag=tag))


class Compressor:
    """Compresses bodies in memory."""

    def __init__(self) -> None:
        self._pending = 0

    async def compress(self, response: Response, encodings: Encodings, cache: ResponseCache) -> Response:
        """Return the response as the client accepts it. A response that is cached is compressed once."""
        if encodings.min_bytes is None or len(response.body) < max(encodings.min_bytes, 1):
            return response
        if response.cache_key is None:
            return await self._compress(response)
        account_id, revision, name = response.cache_key
        name += _CACHE_SUFFIX
        cached = cache.find(account_id, revision, name)
        if cached is not None:
            return cached
        compressed = await self._compress(response)
        return response if compressed is response else cache.store(account_id, revision, name, compressed)

    async def _compress(self, response: Response) -> Response:
        if len(response.body) <= _MAX_BYTES_ON_LOOP:
            return _compress(response)
        if self._pending == _MAX_PENDING:
            return response
        self._pending += 1
        try:
            return await asyncio.to_thread(_compress, response)
        finally:
            self._pending -= 1


def _compress(response: Response) -> Response:
    compressor = build_compressor()
    return mark_compressed(response._replace(body=compressor.compress(response.body) + compressor.flush()))


def _strip(part: str) -> str:
    return part.strip(" \t")
