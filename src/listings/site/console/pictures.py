"""Uploads of pictures by scripts of the console, one per request."""

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from listings.domain.errors import Problem
from listings.domain.pictures import build_path
from listings.service.members.sessions import Member
from listings.site.console.costly import costly
from listings.site.console.form_pictures import add_picture
from listings.site.console.guards import for_member, read_form
from listings.site.context import site_of


@for_member
async def upload_picture(request: Request, member: Member) -> Response:
    """Store the file `picture` of a form. Return its path and its size as JSON."""
    file = (await read_form(request)).get("picture")
    if not isinstance(file, UploadFile):
        raise Problem("invalid_request", "Choose a picture")
    picture, is_new = await add_picture(request, member, file, file.filename or "")
    body = {"url": build_path(picture.name), "width": picture.width, "height": picture.height}
    return JSONResponse(body, 201 if is_new else 200)


@costly("exports")
async def download_pictures(request: Request, member: Member) -> Response:
    """Send all pictures of the account as a ZIP archive."""
    content = site_of(request).services.pictures.read_archive(member.account.id)
    headers = {"Content-Disposition": 'attachment; filename="pictures.zip"', "Cache-Control": "no-store"}
    return StreamingResponse(content, 200, headers, "application/zip")


ROUTES = [
    Route("/console/pictures", upload_picture, methods=["POST"]),
    Route("/console/pictures.zip", download_pictures),
]
