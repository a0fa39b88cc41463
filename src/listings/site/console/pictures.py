"""Uploads of pictures: by forms, and by scripts of the console, one per request."""

from collections.abc import Sequence
from pathlib import PureWindowsPath

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from listings.domain.errors import Problem
from listings.domain.faults import preview
from listings.domain.pictures import Picture, build_path
from listings.service.members.sessions import Member
from listings.site import pages
from listings.site.console.costly import costly
from listings.site.console.guards import for_member, has_plan, read_form
from listings.site.console.listings.form import FormValues
from listings.site.context import site_of

MAX_DRAFT_BYTES = 50 * 1024 * 1024  # of pictures without a plan


@for_member
async def _upload_picture(request: Request, member: Member) -> Response:
    file = (await read_form(request)).get("picture")
    if not isinstance(file, UploadFile):
        raise Problem("invalid_request", "Choose a picture")
    picture, is_new = await _add_picture(request, member, file, file.filename or "")
    body = {"url": build_path(picture.name), "width": picture.width, "height": picture.height}
    return JSONResponse(body, 201 if is_new else 200)


@costly("exports")
async def _download_pictures(request: Request, member: Member) -> Response:
    content = site_of(request).services.pictures.read_archive(member.account.id)
    headers = {"Content-Disposition": 'attachment; filename="pictures.zip"', "Cache-Control": "no-store"}
    return StreamingResponse(content, 200, headers, "application/zip")


ROUTES = [
    Route("/console/pictures", _upload_picture, methods=["POST"]),
    Route("/console/pictures.zip", _download_pictures),
]


async def _add_picture(request: Request, member: Member, file: UploadFile, name: str) -> tuple[Picture, bool]:
    max_bytes = None if has_plan(request, member) else MAX_DRAFT_BYTES
    try:
        return await site_of(request).services.pictures.add(member.account.id, file.file, name, max_bytes=max_bytes)
    except Problem as problem:
        if problem.code == "account_full" and max_bytes is not None:
            message = f"Without a plan, your pictures can have at most {max_bytes // 1024**2} MB"
            raise Problem(problem.code, message) from None
        raise


def has_pictures(form: FormData) -> bool:
    """Return whether a form has pictures."""
    return any(isinstance(file, UploadFile) and file.filename for file in form.getlist("pictures"))


async def add_pictures(request: Request, member: Member, form: FormData) -> tuple[list[str], Problem | None]:
    """Store the files `pictures` of a form. Return the paths of those that were stored, and why others were not."""
    paths, errors = [], list[str]()
    first: Problem | None = None
    for file in form.getlist("pictures"):
        if not isinstance(file, UploadFile) or not file.filename:
            continue
        name = PureWindowsPath(file.filename).name
        try:
            picture, _ = await _add_picture(request, member, file, name)
            paths.append(build_path(picture.name))
        except Problem as problem:
            first = first or pages.replace_message(problem)
            errors.append(f"{preview(name)}: {pages.replace_message(problem).message}")
    if first is None:
        return paths, None
    rest = "The others are below" if paths else "Choose it again" if len(errors) == 1 else "Choose them again"
    return paths, Problem(first.code, f"{'. '.join(errors)}. {rest}")


def append_lines(sent: FormValues, paths: Sequence[str]) -> FormValues:
    """Return the values of a listing's form with further pictures."""
    lines = [line for line in sent["images"].split("\n") if line.strip()]
    return {**sent, "images": "\n".join([*lines, *paths])} if paths else sent
