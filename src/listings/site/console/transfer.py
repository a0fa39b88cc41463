"""Listings in from a file and out to one, by the rules of the command line's import and export."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from listings.contract.history import CONSOLE
from listings.contract.imports import ImportProgress
from listings.domain import timestamps
from listings.domain.errors import Problem
from listings.domain.model import Account
from listings.service import Member, Service
from listings.service.transfer import exporter, importer
from listings.service.transfer.file_formats import Format
from listings.site import pages
from listings.site.console.guards import console_page, for_member, read_form, require_plan, text_of
from listings.site.console.upload import Report, Upload, named, packed, unpacked
from listings.site.context import site_of

_HERE = "/console/import"
_FORMATS = {"csv": ("listings.csv", "text/csv; charset=utf-8"), "jsonl": ("listings.jsonl", "application/jsonl")}
_MARK = "<!--steps-->"
_UNBUFFERED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # a proxy is to hand on each step at once


@for_member
async def show_import(request: Request, member: Member) -> Response:  # noqa: ARG001 - it is the same for all
    """The form for a file."""
    return _page(request)


@for_member
async def rehearse_import(request: Request, member: Member) -> Response:
    """What a file would do, row by row; nothing is written."""
    form = await read_form(request)
    service, new_ids = site_of(request).service, text_of(form, "new_ids") == "on"
    try:
        require_plan(request, member)
        upload = await _uploaded(form)
        kept = packed(upload, site_of(request).options.most_body)
        report, done, earlier = await _rehearse(service, member.account, upload, new_ids=new_ids)
    except Problem as problem:
        return _page(request, problem, new_ids=new_ids)
    context: dict[str, Any] = {"report": report, "done": done, "earlier": earlier, "kept": kept, "new_ids": new_ids}
    return console_page(request, "import_rehearsed.html", name=upload.name, **context)


@for_member
async def run_import(request: Request, member: Member) -> Response:
    """Import the file that was rehearsed; the page grows as rows are done."""
    form = await read_form(request)
    service = site_of(request).service
    flags = {name: text_of(form, name) == "on" for name in ("new_ids", "again")}
    try:
        require_plan(request, member)
        upload = unpacked(text_of(form, "name"), text_of(form, "kept"), site_of(request).options.most_body)
    except Problem as problem:
        return _page(request, problem, new_ids=flags["new_ids"])
    options = importer.ImportOptions(actor=CONSOLE, **flags)
    steps = _steps(request, service, member.account, upload, options)
    return StreamingResponse(steps, 200, _UNBUFFERED, "text/html; charset=utf-8")


@for_member
async def export(request: Request, member: Member) -> Response:
    """All listings of the account as a file, sent while they are read."""
    name, kind = _FORMATS.get(request.query_params.get("format", ""), _FORMATS["csv"])
    service = site_of(request).service
    day = timestamps.format_timestamp(service.clock())[:10]
    stem, _, ending = name.partition(".")
    headers = {"Content-Disposition": f'attachment; filename="{stem}-{day}.{ending}"', "Cache-Control": "no-store"}
    return StreamingResponse(_exported(service, member.account, named(name)), 200, headers, kind)


ROUTES = [
    Route(_HERE, show_import),
    Route(_HERE, rehearse_import, methods=["POST"]),
    Route(f"{_HERE}/run", run_import, methods=["POST"]),
    Route("/console/export", export),
]


def _page(request: Request, problem: Problem | None = None, *, new_ids: bool = False) -> Response:
    most = site_of(request).options.most_body
    return console_page(request, "import.html", problem=problem, new_ids=new_ids, most=most)


async def _uploaded(form: FormData) -> Upload:
    sent = form.get("file")
    if not isinstance(sent, UploadFile) or not sent.filename:
        raise Problem("invalid_request", "Choose a file, then look at what it would do")
    return Upload(sent.filename, await sent.read())


async def _rehearse(
    service: Service, account: Account, upload: Upload, *, new_ids: bool
) -> tuple[Report, ImportProgress, str]:
    """What it comes to, and what is told where the file was imported before. Raises Problem for one without rows."""
    options = importer.ImportOptions(new_ids=new_ids, dry_run=True, actor=CONSOLE)
    report, earlier = Report(), ""
    try:
        done = await importer.Import(service, account, upload, report, options).run()
    except Problem as problem:
        if problem.code != "already_imported":
            raise
        earlier = "This very file was imported before: importing it once more does all of this again"
        done = await importer.Import(service, account, upload, report, options._replace(again=True)).run()
    if not (report.count or report.resumed_behind):
        raise Problem("invalid_request", f"{upload.name} has no rows")
    return report, done, earlier


async def _steps(
    request: Request, service: Service, account: Account, upload: Upload, options: importer.ImportOptions
) -> AsyncIterator[str]:
    """The page up to where steps come, one for each batch of rows, the end of it all, and the page's rest."""
    shell = pages.text(request, "console/import_run.html", name=upload.name)
    before, _, behind = shell.partition(_MARK)
    yield before
    told: asyncio.Queue[int | None] = asyncio.Queue()
    report = Report(told.put_nowait)
    running = asyncio.create_task(importer.Import(service, account, upload, report, options).run())
    running.add_done_callback(lambda _: told.put_nowait(None))
    try:
        while (place := await told.get()) is not None:
            share = 100 * place // max(1, upload.size)
            yield pages.text(request, "console/parts/step.html", rows=report.count, share=share)
    finally:
        running.cancel()
    yield await _end(request, running, report)
    yield behind


async def _end(request: Request, running: asyncio.Task[ImportProgress], report: Report) -> str:
    try:
        done, problem = await running, None
    except Problem as caught:
        done, problem = None, caught
    return pages.text(request, "console/parts/imported.html", done=done, problem=problem, report=report)


async def _exported(service: Service, account: Account, form: Format) -> AsyncIterator[bytes]:
    yield form.header
    async for page in exporter.read_pages(service, account):
        yield form.encode(page)
