"""Compress bodies with gzip for the clients that accept it (decision G41)."""

import asyncio

from msgspec.structs import replace

from listings.api import codec
from listings.api.codec import Response
from listings.api.response_cache import ResponseCache
from listings.http.accept_encoding import GZIP_TAG_SUFFIX, Encodings
from listings.http.body_files import build_compressor

_MAX_BYTES_ON_LOOP = 256 * 1024  # takes at most 2 ms
_MAX_PENDING = 8  # larger bodies that are compressed in threads; others are sent as they are
_CONTENT_ENCODING = b"content-encoding: gzip\r\n"
_CACHE_SUFFIX = "/gzip"  # no name in a path has a slash


def build_tags(tag: str, encodings: Encodings) -> list[str]:
    """Return the entity tags that a body has in the encodings. `tag` is that of the uncompressed body."""
    return [f'{tag[:-1]}{suffix}"' for suffix in encodings.suffixes]


def mark_compressed(response: Response) -> Response:
    """Return the response with the headers of a compressed body."""
    tag = f'{response.tag[:-1]}{GZIP_TAG_SUFFIX}"' if response.tag else ""
    return codec.with_head(replace(response, headers=response.headers + _CONTENT_ENCODING, tag=tag))


class Compressor:
    """Compresses bodies in memory."""

    def __init__(self) -> None:
        self._pending = 0

    async def compress(self, response: Response, encodings: Encodings, cache: ResponseCache) -> Response:
        """Return the response as the client accepts it. A response that is cached is compressed once."""
        if response.is_shared or not encodings.permit(len(response.body)):
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
            return compress(response)
        if self._pending == _MAX_PENDING:
            return response
        self._pending += 1
        try:
            return await asyncio.to_thread(compress, response)
        finally:
            self._pending -= 1


def compress(response: Response) -> Response:
    """Return the response with a compressed body. Takes 2 ms for 256 KiB."""
    compressor = build_compressor()
    return mark_compressed(replace(response, body=compressor.compress(response.body) + compressor.flush()))
