"""Uploaded pictures: the endpoints of their account, and the files at /media."""

import os

from listings.api import codec, params
from listings.api.codec import Response
from listings.api.request import Request
from listings.domain import timestamps
from listings.domain.errors import Problem
from listings.domain.pictures import CACHE_CONTROL, Picture, build_path, get_media_type, parse_file
from listings.http.body_files import read_at
from listings.http.host import choose_host
from listings.service import Services

IMAGES_PATH = "/api/v1/images"

_DEFAULT_COUNT = 100
_SAFETY = (
    b"x-content-type-options: nosniff\r\ncross-origin-resource-policy: cross-origin\r\n"
    b"content-security-policy: default-src 'none'; sandbox\r\n"
)
_CACHING = b"cache-control: %b\r\netag: %%b\r\n%b" % (CACHE_CONTROL.encode(), _SAFETY)
_REDIRECT = b"location: %%b\r\ncache-control: public, max-age=300\r\n%b" % _SAFETY
_DESCRIBED = b"content-type: %b\r\ncontent-length: %d\r\n"


async def upload(services: Services, request: Request) -> Response:
    """POST /api/v1/images."""
    dry_run = params.parse_dry_run(request.query, strict=request.strict)
    if request.upload is None:
        raise AssertionError("The endpoint takes an upload")
    picture, is_new = await services.pictures.add(request.caller.account_id, request.upload, dry_run=dry_run)
    if dry_run:
        return codec.build_message_response("picture would be stored")
    url = build_url(services, request, picture)
    body = {"url": url, "width": picture.width, "height": picture.height}
    return codec.build_json_response(body, 201 if is_new else 200, f"location: {url}\r\n".encode())


async def list_images(services: Services, request: Request) -> Response:
    """GET /api/v1/images."""
    wanted = params.parse(request.query, params.IMAGE_PARAMETERS, strict=request.strict)
    before, count = wanted.get("cursor"), wanted.get("limit")
    found = await services.pictures.page(request.caller.account_id, before, (count or _DEFAULT_COUNT) + 1)
    page, headers = found[: count or _DEFAULT_COUNT], b""
    if len(found) > len(page):
        cursor = params.format_image_cursor(page[-1])
        limit = f"limit={count}&" if count else ""
        headers = codec.format_next_page(f"{services.about.base_url}{IMAGES_PATH}?{limit}cursor={cursor}", cursor)
    images = [
        {
            "url": build_url(services, request, picture),
            "width": picture.width,
            "height": picture.height,
            "size": picture.size,
            "created_at": timestamps.format_timestamp(picture.created_at),
        }
        for picture in page
    ]
    return codec.build_json_response({"images": images}, headers=headers)


async def delete(services: Services, request: Request) -> Response:
    """DELETE /api/v1/images/{id}."""
    wanted = params.parse(request.query, params.IMAGE_DELETION_PARAMETERS, strict=request.strict)
    force, dry_run = wanted.get("force", False), wanted.get("dry_run", False)
    name = request.segment.removesuffix(".jpg")
    listings = await services.pictures.delete(request.caller.account_id, name, force=force, dry_run=dry_run)
    message = "picture would be deleted" if dry_run else "picture deleted"
    return codec.build_json_response({"message": message, "listings": listings})


async def get_file(services: Services, request: Request) -> Response:
    """GET /media/{file}. Anyone may read it, and link to it."""
    file = request.segment
    name = parse_file(file)
    found = await services.pictures.open(file, name) if name is not None else None
    if found is None:
        raise Problem("image_not_found", "There is no such picture")
    if isinstance(found, str):
        return Response(302, b"", head=_REDIRECT % found.encode())
    source, tag = MediaFile(found), f'"{file}"'
    caching = _CACHING % tag.encode()
    if codec.match_etag(request.header_values(b"if-none-match"), [tag]):
        source.release()
        return Response(304, b"", head=caching)
    described = _DESCRIBED % (get_media_type(file).encode(), source.size)
    return Response(200, b"", head=described + caching, file=source)


class MediaFile:
    """The file of a picture, which a response reads at the client's pace."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor  # closed by `release`
        self.size = os.fstat(descriptor).st_size

    async def read(self, offset: int, count: int) -> bytes:
        return await read_at(self._descriptor, offset, count)

    def release(self) -> None:
        os.close(self._descriptor)


def build_url(services: Services, request: Request, picture: Picture) -> str:
    """Return the absolute URL of a picture: below the operator's URL, or as the client addressed the service."""
    if services.about.base_url:
        return f"{services.about.base_url}{build_path(picture.name)}"
    forwarded = request.header(b"x-forwarded-proto").lower()  # only its own sender sees the URL, so no proxy is needed
    scheme = forwarded if forwarded in {"http", "https"} else "http"
    return f"{scheme}://{choose_host(request.header(b'host'))}{build_path(picture.name)}"
