"""Style sheets, scripts, fonts and icons.

Each URL contains a digest of the content, so browsers can cache files forever. Unlike pages, texts are sent compressed:
they contain no secret.
"""

import gzip
import hashlib
import re
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.domain.errors import Problem
from listings.http.accept_encoding import parse_accept_encoding
from listings.http.asgi import SHARED

_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml; charset=utf-8",
    ".woff2": "font/woff2",
}
_FILE = re.compile(rb'url\("([a-z]+\.(?:svg|woff2))"\)')  # in a style sheet
_IMMUTABLE = "public, max-age=31536000, immutable"


class _Asset(NamedTuple):
    content: bytes
    digest: str
    media_type: str
    compressed: bytes  # empty for pictures and fonts


def asset_url(path_prefix: str, name: str) -> str:
    """Return the URL path of a static file."""
    return f"{path_prefix}/static/{_assets()[name].digest}/{name}"


async def _get_asset(request: Request) -> Response:
    asset = _assets().get(request.path_params["name"])
    if asset is None:
        raise Problem("path_not_found", "We can't find that file")
    # A page of a process with another version may request another digest.
    is_current = request.path_params["digest"] == asset.digest
    headers = {"Cache-Control": _IMMUTABLE if is_current else "no-cache"}
    content = asset.content
    if asset.compressed:
        headers["Vary"] = "Accept-Encoding"
        accepted = parse_accept_encoding(",".join(request.headers.getlist("accept-encoding")))
        if accepted.min_bytes is not None:
            headers["Content-Encoding"] = "gzip"
            content = asset.compressed
    return send_shared(request, Response(content, media_type=asset.media_type, headers=headers))


async def _get_demo_picture(request: Request) -> Response:
    content = _demo_pictures().get(request.path_params["name"])
    if content is None:
        raise Problem("path_not_found", "We can't find that file")
    headers = {"Cache-Control": "public, max-age=86400"}
    return send_shared(request, Response(content, media_type="image/webp", headers=headers))


ROUTES = [Route("/static/demo/{name}", _get_demo_picture), Route("/static/{digest}/{name}", _get_asset)]


def send_shared(request: Request, response: Response) -> Response:
    """Return a response whose body is one object for all requests, so that it needs no memory of its own."""
    request.scope["listings.owner"] = SHARED
    return response


def build_logo_route(file: Path | None) -> Route:
    """Return the route of the operator's logo, which is read once, or else of our icon."""
    logo = file or resources.files("listings.site").joinpath("static", "icon.svg")
    content, media_type = logo.read_bytes(), _MEDIA_TYPES[Path(logo.name).suffix]

    async def get_logo(request: Request) -> Response:
        response = Response(content, media_type=media_type, headers={"Cache-Control": "public, max-age=3600"})
        return send_shared(request, response)

    return Route("/logo", get_logo)


@cache
def _demo_pictures() -> dict[str, bytes]:  # which `tests/site/demo_pictures` draws
    folder = resources.files("listings.site.pictures").joinpath("demo")
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@cache
def _assets() -> dict[str, _Asset]:
    files = {file.name: file.read_bytes() for file in resources.files("listings.site").joinpath("static").iterdir()}
    files["site.css"] = files.pop("base.css") + files["site.css"]

    def insert_digest(match: re.Match[bytes]) -> bytes:
        name = match[1].decode()
        return f'url("../{_digest(files[name])}/{name}")'.encode()

    assets = {}
    for name, raw in files.items():
        media_type = _MEDIA_TYPES.get(Path(name).suffix)
        if media_type is not None:
            content = _FILE.sub(insert_digest, raw)
            compressed = gzip.compress(content, mtime=0) if "charset" in media_type else b""
            assets[name] = _Asset(content, _digest(content), media_type, compressed)
    return assets


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
