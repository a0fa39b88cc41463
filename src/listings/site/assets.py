"""Style, scripts and icons: each at an address that names its content, so that a browser may keep it for ever."""

import hashlib
import re
from functools import cache
from importlib import resources
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.domain.errors import Problem

_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml; charset=utf-8",
}
_PICTURE = re.compile(rb'url\("([a-z]+\.svg)"\)')  # in a style
_FOR_EVER = "public, max-age=31536000, immutable"


class _Asset(NamedTuple):
    content: bytes
    digest: str
    kind: str


def address_of(name: str) -> str:
    """Where a page finds one of these files."""
    return f"/static/{_assets()[name].digest}/{name}"


async def get_asset(request: Request) -> Response:
    """A file. Under the digest of an older or newer version, which a page of another process may name: not kept."""
    asset = _assets().get(request.path_params["name"])
    if asset is None:
        raise Problem("path_not_found", "There is nothing at this address")
    kept = request.path_params["digest"] == asset.digest
    headers = {"Cache-Control": _FOR_EVER if kept else "no-cache"}
    return Response(asset.content, media_type=asset.kind, headers=headers)


ROUTES = [Route("/static/{digest}/{name}", get_asset)]


@cache
def _assets() -> dict[str, _Asset]:
    files = {file.name: file.read_bytes() for file in resources.files("listings.site").joinpath("static").iterdir()}
    digests = {name: _digest(content) for name, content in files.items()}

    def named(match: re.Match[bytes]) -> bytes:
        name = match[1].decode()
        return f'url("../{digests[name]}/{name}")'.encode()

    return {name: _asset(name, _PICTURE.sub(named, files[name])) for name in files if _kind(name)}


def _asset(name: str, content: bytes) -> _Asset:
    return _Asset(content, _digest(content), _kind(name))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _kind(name: str) -> str:
    return _KINDS.get(name[name.rfind(".") :], "")
