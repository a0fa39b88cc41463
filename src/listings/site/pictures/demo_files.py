"""The pictures of the demo's listings, which `tests/site/demo_pictures` draws, at addresses that stay the same."""

from functools import cache
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from listings.domain.errors import Problem
from listings.site.assets import send_shared

_CACHE_ONE_DAY = {"Cache-Control": "public, max-age=86400"}


async def get_picture(request: Request) -> Response:
    """Send a picture."""
    content = _read_all().get(request.path_params["name"])
    if content is None:
        raise Problem("path_not_found", "We can't find that file")
    response = Response(content, media_type="image/webp", headers=_CACHE_ONE_DAY)
    return send_shared(request, response)


ROUTES = [Route("/static/demo/{name}", get_picture)]


@cache
def _read_all() -> dict[str, bytes]:
    folder = resources.files("listings.site.pictures").joinpath("demo")
    return {file.name: file.read_bytes() for file in folder.iterdir()}
