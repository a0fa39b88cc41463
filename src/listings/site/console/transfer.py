"""Import pages. They apply the rules of `listings import`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from listings.contract.history import CONSOLE
from listings.contract.imports import ImportProgress
from listings.domain.errors import Problem
from listings.domain.model import Account
from listings.service import Services
from listings.service.members.sessions import Member
from listings.service.transfer import importer
from listings.site import pages
from listings.site.console.export import FORMATS
from listings.site.console.guards import console_page, for_member, get_text, read_form, require_plan
from listings.site.console.upload import ImportReport, Upload, pack, pack_rows, unpack
from listings.site.context import site_of

_PATH = "/console/import"
_PROGRESS_MARK = "<!--progress-->"
_UNBUFFERED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # proxies must pass on progress immediately


@for_member
async def show_import(request: Request, member: Member) -> Response:  # noqa: ARG001 - the same for all members
    """Show the upload form."""
    return _page(request)


@for_member
async def preview_import(request: Request, member: Member) -> Response:
    """Show what an import of the uploaded file would do, row by row. Nothing is written."""
    form = await read_form(request)
    services, new_ids = site_of(request).services, get_text(form, "new_ids") == "on"
    try:
        require_plan(request, member)
        upload = await _read_upload(form)
        packed = await asyncio.to_thread(pack, upload, site_of(request).options.max_body_bytes)
        report, result, imported_at = await _dry_run(services, member.account, upload, new_ids=new_ids)
        rejected = await _pack_rejected(request, member.account, upload, report, new_ids=new_ids)
    except Problem as problem:
        return _page(request, problem, new_ids=new_ids)
    files = {"name": upload.name, "packed": packed, "rejected": rejected}
    context: dict[str, Any] = {"report": report, "result": result, "new_ids": new_ids, **files}
    return console_page(request, "import_preview.html", imported_at=imported_at, **context)


@for_member
async def download_rejected(request: Request, member: Member) -> Response:  # noqa: ARG001 - the form has the rows
    """Send the rejected rows of a file, which the page of its import contains."""
    upload = await _unpack(request, await read_form(request), "rejected")
    headers = {"Content-Disposition": f'attachment; filename="rejected.{upload.format}"', "Cache-Control": "no-store"}
    return Response(upload.content, 200, headers, FORMATS[upload.format][1])


@for_member
async def run_import(request: Request, member: Member) -> Response:
    """Import the previewed file. The page is streamed and grows as batches are imported."""
    form = await read_form(request)
    services = site_of(request).services
    new_ids = get_text(form, "new_ids") == "on"
    try:
        require_plan(request, member)
        upload = await _unpack(request, form, "packed")
        again = await _may_repeat(services, member.account, upload, get_text(form, "again"), new_ids=new_ids)
    except Problem as problem:
        return _page(request, problem, new_ids=new_ids)
    options = importer.ImportOptions(actor=CONSOLE, new_ids=new_ids, again=again)
    content = _stream_import(request, services, member.account, upload, options)
    return StreamingResponse(content, 200, _UNBUFFERED, "text/html; charset=utf-8")


ROUTES = [
    Route(_PATH, show_import),
    Route(_PATH, preview_import, methods=["POST"]),
    Route(f"{_PATH}/run", run_import, methods=["POST"]),
    Route(f"{_PATH}/rejected", download_rejected, methods=["POST"]),
]


def _page(request: Request, problem: Problem | None = None, *, new_ids: bool = False) -> Response:
    max_bytes = site_of(request).options.max_body_bytes
    return console_page(request, "import.html", problem=problem, new_ids=new_ids, max_bytes=max_bytes)


async def _read_upload(form: FormData) -> Upload:
    file = form.get("file")
    if not isinstance(file, UploadFile) or not file.filename:
        raise Problem("invalid_request", "Choose a file first")
    return Upload(file.filename, await file.read())


async def _unpack(request: Request, form: FormData, field: str) -> Upload:
    """Return the file in a field of a form. It is unpacked in a thread, because a large one takes a second."""
    max_bytes = site_of(request).options.max_body_bytes
    return await asyncio.to_thread(unpack, get_text(form, "name"), get_text(form, field), max_bytes)


async def _may_repeat(services: Services, account: Account, upload: Upload, again: str, *, new_ids: bool) -> bool:
    """Return whether the last import of a file ended at the Unix time `again`.

    If the page of its repetition is reloaded, a later import was the last one.
    """
    earlier = await services.transfer.find_import(account, upload, new_ids=new_ids) if again else None
    return earlier is not None and str(earlier.finished_at) == again


async def _dry_run(
    services: Services, account: Account, upload: Upload, *, new_ids: bool
) -> tuple[ImportReport, ImportProgress, int | None]:
    """Return the report, the totals, and when the same file was imported before.

    Raises Problem if the file cannot be imported, or has no rows.
    """
    options = importer.ImportOptions(new_ids=new_ids, dry_run=True, actor=CONSOLE)
    report, earlier = ImportReport(), None
    try:
        result = await services.transfer.run_import(account, upload, report, options)
    except Problem as problem:
        if problem.code != "already_imported":
            raise
        earlier = await services.transfer.find_import(account, upload, new_ids=new_ids)
        result = await services.transfer.run_import(account, upload, report, options._replace(again=True))
    if not (report.count or report.resumed_after_line):
        raise Problem("invalid_request", f"{upload.name} has no rows")
    return report, result, earlier.finished_at if earlier is not None else None


async def _pack_rejected(
    request: Request, account: Account, upload: Upload, report: ImportReport, *, new_ids: bool
) -> str:
    """Return a file of the rejected rows as text for a form field, or "" if there are none.

    The rows before an interruption are validated again, because only the number of the rejected ones is stored. If the
    account is full by now, imported ones may be among them.
    """
    lines = report.rejected_lines
    if report.rejected_before:
        options = importer.ImportOptions(new_ids=new_ids, dry_run=True, again=True, actor=CONSOLE)
        whole = ImportReport()
        await site_of(request).services.transfer.run_import(account, upload, whole, options)
        lines = lines | {line for line in whole.rejected_lines if line <= report.resumed_after_line}
    return await asyncio.to_thread(pack_rows, upload, lines, site_of(request).options.max_body_bytes)


async def _stream_import(
    request: Request, services: Services, account: Account, upload: Upload, options: importer.ImportOptions
) -> AsyncIterator[str]:
    """Run the import and yield the page: its start, the progress after each batch, the result, and the rest."""
    page = pages.render(request, "console/import_run.html", name=upload.name)
    start, _, rest = page.partition(_PROGRESS_MARK)
    yield start
    offsets: asyncio.Queue[int | None] = asyncio.Queue()
    report = ImportReport(offsets.put_nowait)
    task = asyncio.create_task(services.transfer.run_import(account, upload, report, options))
    task.add_done_callback(lambda _: offsets.put_nowait(None))
    try:
        while (offset := await offsets.get()) is not None:
            percent = 100 * offset // max(1, upload.size)
            yield pages.render(request, "console/parts/import_progress.html", rows=report.count, percent=percent)
    finally:
        task.cancel()
    result, problem, rejected = None, None, ""
    try:
        result = await task
    except Problem as caught:
        result = await _find_stored(services, account, upload, options, caught)
        problem = pages.replace_message(caught)
    else:
        with suppress(Problem):
            rejected = await _pack_rejected(request, account, upload, report, new_ids=options.new_ids)
    outcome = {"result": result, "problem": problem, "report": report, "name": upload.name, "rejected": rejected}
    yield pages.render(request, "console/parts/import_result.html", **outcome)
    yield rest


async def _find_stored(
    services: Services, account: Account, upload: Upload, options: importer.ImportOptions, problem: Problem
) -> ImportProgress | None:
    """Return the import that the problem stopped, or the complete one if the file was imported before.

    Return None if there is none, or the store still fails.
    """
    with suppress(Problem):
        found = await services.transfer.find_import(account, upload, new_ids=options.new_ids)
        is_meant = found is not None and (found.finished_at is None or problem.code == "already_imported")
        return found if is_meant else None
    return None
