"""How pages show the pictures of listings: uploaded ones in several sizes, those of other hosts as they are."""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

import msgspec
from starlette.requests import Request

from listings.domain.pictures import WIDTHS, compute_size, find_name
from listings.site.context import site_of
from listings.site.presentation import picture_url

Sizes: TypeAlias = Mapping[str, tuple[int, int] | None]
"""Width and height of uploaded pictures by name. None: a takedown hides the picture."""

_DEMO = re.compile(r"/static/demo/([a-z]+)\.webp")
_DEMO_SIZE = (800, 600)


class Source(NamedTuple):
    """The URLs of a picture and of a small variant, and attributes with which a browser chooses a variant.

    Of pictures on other hosts, only the URL is known.
    """

    url: str
    small: str
    srcset: str = ""
    width: int = 0
    height: int = 0


async def find_sizes(request: Request, urls: Iterable[str]) -> Sizes:
    """Return the sizes of those pictures of this service that are among the URLs and exist."""
    names = [name for url in urls if (name := find_name(url)) is not None]
    return await site_of(request).services.pictures.get_sizes(names) if names else {}


def decode_urls(images: str) -> list[str]:
    """Return the image URLs of a listing, which stores them as a JSON array."""
    return msgspec.json.decode(images, type=list[str])


def list_sources(images: str, sizes: Sizes, prefix: str, media_url: str = "") -> list[Source]:
    """Return those pictures of a listing that a page may show. The parameters are those of `find_source`."""
    return [source for url in decode_urls(images) if (source := find_source(url, sizes, prefix, media_url)) is not None]


def list_hidden(urls: Iterable[str], sizes: Sizes) -> list[str]:
    """Return the names of those pictures that a takedown hides."""
    names = {name: None for url in urls if (name := find_name(url)) is not None}
    return [name for name in names if name in sizes and sizes[name] is None]


def has_hidden(images: str, sizes: Sizes) -> bool:
    """Return whether a takedown hides one of a listing's pictures."""
    return bool(list_hidden(decode_urls(images), sizes))


def find_source(url: str, sizes: Sizes, prefix: str, media_url: str = "") -> Source | None:
    """Return a picture, or None if a page may not show it, or it is an uploaded one that was deleted or is hidden.

    `prefix` is that of the service's paths, and `media_url` where uploaded pictures are, if that is another host. They
    are recognised by their path under any host, so that the service's address may change.
    """
    name = find_name(url)
    if name is not None and name in sizes:
        size = sizes[name]
        return _build_source(f"{media_url or f'{prefix}/media'}/{name}", *size) if size is not None else None
    demo = _DEMO.fullmatch(url)
    if demo is not None:
        large, small = f"{prefix}{url}", f"{prefix}/static/demo/{demo[1]}-400.webp"
        return Source(large, small, f"{small} 400w, {large} 800w", *_DEMO_SIZE)
    return Source(url, url) if picture_url(url) else None


def _build_source(stem: str, width: int, height: int) -> Source:
    variants = {compute_size(width, height, side)[0]: side for side in reversed(WIDTHS)}  # none twice
    urls = {wide: f"{stem}-{side}.webp" for wide, side in sorted(variants.items())}
    srcset = ", ".join(f"{url} {wide}w" for wide, url in urls.items())
    return Source(f"{stem}.jpg", next(iter(urls.values())), srcset, width, height)
