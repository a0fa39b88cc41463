"""Import pages, which apply the rules of `listings import`, and the export as a download."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from time import thread_time
from typing import Any

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from listings.domain import timestamps
from listings.domain.errors import Problem
from listings.domain.history import CONSOLE
from listings.domain.imports import ImportProgress
from listings.domain.model import Account, Listing
from listings.service import Services
from listings.service.members.sessions import Member
from listings.service.transfer import importer
from listings.service.transfer.file_formats import Format, begin_export, detect_format
from listings.service.transfer.scan import IdChoiceRequired
from listings.service.transfer.xlsx import WorkbookWriter
from listings.site import pages, security
from listings.site.console.costly import Work, costly, run_in_thread
from listings.site.console.guards import body_of, console_page, for_member, get_text, read_form, require_plan
from listings.site.console.import_choices import COLUMN_LABELS, Choices, describe_columns, read_choices
from listings.site.console.import_report import ImportReport
from listings.site.console.pictures import add_pictures
from listings.site.console.upload import Upload, pack, pack_rows, unpack
from listings.site.context import CostlyPages, site_of
from listings.site.visitor import require_room

FORMATS = {
    "csv": ("listings.csv", "text/csv; charset=utf-8"),
    "jsonl": ("listings.jsonl", "application/jsonl"),
    "xlsx": ("listings.xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
}
_PATH = "/console/import"
_MAX_ROWS = 20_000  # as many as values of a JSON body
_MAX_IMPORTS = 20  # that are listed
_PROGRESS_MARK = "<!--progress-->"
_UNBUFFERED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # proxies must pass on progress immediately


async def _show_import(request: Request, member: Member, problem: Problem | None = None, *, added: int = 0) -> Response:
    security.allow_previews(request)
    options, imports = site_of(request).options, list[ImportProgress]()
    with suppress(Problem):
        imports = await site_of(request).services.transfer.list_imports(member.account, _MAX_IMPORTS)
    context: dict[str, Any] = {"max_bytes": options.max_body_bytes, "max_rows": _MAX_ROWS, "imports": imports}
    return console_page(request, "import.html", problem=problem, added=added, **context)


@costly("imports")
async def _preview_import(request: Request, member: Member) -> Response:
    form = await read_form(request)
    choices = read_choices(form)
    try:
        require_plan(request, member)
        is_repeated = bool(form.get("packed"))
        upload = await (_unpack(request, form, "packed", choices) if is_repeated else _read_upload(form, choices))
        packed = await run_in_thread(pack, upload, site_of(request).options.max_body_bytes)
    except Problem as problem:
        return await _show_import(request, member, problem)
    context: dict[str, Any] = {"name": upload.name, "packed": packed, "choices": choices, "labels": COLUMN_LABELS}
    context["rejected"] = ""
    try:
        await run_in_thread(lambda: upload.text)  # converts the file
        table = upload.table
        context |= {"columns": describe_columns(upload), "shop": table.header.shop if table is not None else None}
        context["encoding"] = table.encoding if table is not None else ""
        report, result, imported_at = await _dry_run(request, member.account, upload, choices)
        context["rejected"] = await _pack_rejected(request, member.account, upload, report, choices)
    except IdChoiceRequired as question:
        return console_page(request, "import_choice.html", question=question, **context)
    except Problem as problem:
        if not context.get("columns"):
            return await _show_import(request, member, problem)
        return console_page(request, "import_choice.html", problem=problem, question=None, **context)
    require_room(request, len(packed) + len(context["rejected"]))
    return console_page(
        request, "import_preview.html", report=report, result=result, imported_at=imported_at, **context
    )


@costly("imports")
async def _download_rejected(request: Request, member: Member) -> Response:  # noqa: ARG001 - the form has the rows
    form = await read_form(request)
    require_room(request, site_of(request).options.max_body_bytes)
    upload = await _unpack(request, form, "rejected", Choices())
    headers = {"Content-Disposition": f'attachment; filename="rejected.{upload.format}"', "Cache-Control": "no-store"}
    return Response(upload.content, 200, headers, FORMATS[upload.format][1])


@costly("imports")
async def _run_import(request: Request, member: Member) -> Response:
    form = await read_form(request)
    services = site_of(request).services
    choices = read_choices(form)
    try:
        require_plan(request, member)
        upload = await _unpack(request, form, "packed", choices)
        await run_in_thread(lambda: upload.text)
        options = _build_options(request, choices, upload)
        again = await _may_repeat(services, member.account, upload, get_text(form, "again"), options)
    except Problem as problem:
        return await _show_import(request, member, problem)
    options = options._replace(again=again)
    content = _stream_import(request, services, member.account, upload, choices, options)
    return StreamingResponse(content, 200, _UNBUFFERED, "text/html; charset=utf-8")


@costly("exports")
async def _export(request: Request, member: Member) -> Response:
    name, media_type = FORMATS.get(request.query_params.get("format", ""), FORMATS["csv"])
    services = site_of(request).services
    day = timestamps.to_local(int(services.clock())).date().isoformat()
    stem, _, extension = name.partition(".")
    headers = {"Content-Disposition": f'attachment; filename="{stem}-{day}.{extension}"', "Cache-Control": "no-store"}
    file_format = begin_export(detect_format(Path(name)), await services.transfer.get_origin())
    content = encode(services.transfer.read_pages(member.account), file_format, site_of(request).costly_pages)
    return StreamingResponse(content, 200, headers, media_type)


async def encode(
    pages: AsyncIterator[list[Listing]], file_format: Format, costly_pages: CostlyPages
) -> AsyncIterator[bytes]:
    """Yield the pieces of a file."""
    if file_format.header:
        yield file_format.header
    started = thread_time()
    async for page in pages:
        await costly_pages.rest(thread_time() - started)
        started = thread_time()
        piece = file_format.encode(page)
        await costly_pages.rest(thread_time() - started)
        yield piece
        started = thread_time()
    if end := file_format.finish():
        yield end


@for_member
async def _download_template(request: Request, member: Member) -> Response:  # noqa: ARG001 - the same for all members
    writer = WorkbookWriter()
    columns = ("title", "description", "type", "category", "images", "price", "price type", "region", "your own ID")
    row = (
        *("Road bike", "Alloy frame, 56 cm, ridden twice.", "product", "Bicycles", "https://images.example/bike.jpg"),
        *("450", "fixed", "Wellington", "BIKE-1"),
    )
    content = writer.write([columns, row]) + writer.finish()
    name, media_type = FORMATS["xlsx"]
    headers = {"Content-Disposition": f'attachment; filename="template-{name}"', "Cache-Control": "no-store"}
    return Response(content, 200, headers, media_type)


@for_member
async def _upload_pictures(request: Request, member: Member) -> Response:
    form = await read_form(request)
    try:
        require_plan(request, member)
        paths, problem = await add_pictures(request, member, form)
    except Problem as without_plan:
        paths, problem = [], without_plan
    return await _show_import(request, member, problem, added=len(paths))


ROUTES = [
    Route(_PATH, for_member(_show_import)),
    Route(f"{_PATH}/pictures", _upload_pictures, methods=["POST"]),
    Route(_PATH, _preview_import, methods=["POST"]),
    Route(f"{_PATH}/template", _download_template),
    Route(f"{_PATH}/run", _run_import, methods=["POST"]),
    Route(f"{_PATH}/rejected", _download_rejected, methods=["POST"]),
    Route("/console/export", _export),
]


async def _read_upload(form: FormData, choices: Choices) -> Upload:
    file = form.get("file")
    if not isinstance(file, UploadFile) or not file.filename:
        raise Problem("invalid_request", "Choose a file first")
    return Upload(file.filename, await file.read(), choices.read_options)


async def _unpack(request: Request, form: FormData, field: str, choices: Choices) -> Upload:
    max_bytes, body = site_of(request).options.max_body_bytes, body_of(request)
    body.reserve(max_bytes)  # a few kilobytes can become a file of this size, which takes a second
    packed = str(form.get(field, ""))
    upload = await run_in_thread(unpack, get_text(form, "name"), packed, max_bytes, choices.read_options)
    body.reserve(len(upload.content) - max_bytes)
    return upload


def _build_options(request: Request, choices: Choices, upload: Upload) -> importer.ImportOptions:
    return importer.ImportOptions(
        ids=choices.ids,
        overwrite=choices.overwrite,
        actor=CONSOLE,
        max_rows=_MAX_ROWS,
        name=upload.name,
        pause=site_of(request).costly_pages.rest,
    )


async def _may_repeat(
    services: Services, account: Account, upload: Upload, again: str, options: importer.ImportOptions
) -> bool:
    # `again` is the Unix time at which the last import ended. If the page of its repetition is reloaded, a later import
    # was the last one.
    earlier = await services.transfer.find_import(account, upload, options) if again else None
    return earlier is not None and str(earlier.finished_at) == again


async def _dry_run(
    request: Request, account: Account, upload: Upload, choices: Choices
) -> tuple[ImportReport, ImportProgress, int | None]:
    # Returns the report, the totals, and when the same file was imported before.
    services = site_of(request).services
    options = _build_options(request, choices, upload)._replace(dry_run=True)
    report, earlier = ImportReport(), None
    try:
        result = await services.transfer.run_import(account, upload, report, options)
    except Problem as problem:
        if problem.code != "already_imported":
            raise
        earlier = await services.transfer.find_import(account, upload, options)
        result = await services.transfer.run_import(account, upload, report, options._replace(again=True))
    if not (report.count or report.resumed_after_line):
        raise Problem("invalid_request", f"{upload.name} has no rows")
    return report, result, earlier.finished_at if earlier is not None else None


async def _pack_rejected(
    request: Request, account: Account, upload: Upload, report: ImportReport, choices: Choices
) -> str:
    # The rows before an interruption are validated again, because only the number of the rejected ones is stored. If
    # the account is full by now, imported ones may be among them.
    spans = report.rejected_spans
    if report.rejected_before:
        options = _build_options(request, choices, upload)._replace(dry_run=True, again=True)
        whole = ImportReport()
        await site_of(request).services.transfer.run_import(account, upload, whole, options)
        spans = spans | {span: one for span, one in whole.rejected_spans.items() if span[0] < report.resumed_at}
    return await run_in_thread(pack_rows, upload, spans, site_of(request).options.max_body_bytes)


async def _stream_import(
    request: Request,
    services: Services,
    account: Account,
    upload: Upload,
    choices: Choices,
    options: importer.ImportOptions,
) -> AsyncIterator[str]:
    page = pages.render(request, "console/import_run.html", name=upload.name)
    start, _, rest = page.partition(_PROGRESS_MARK)
    yield start
    offsets: asyncio.Queue[int | None] = asyncio.Queue()
    report = ImportReport(offsets.put_nowait)
    work: Work = request.state.work
    task = asyncio.create_task(work.run(services.transfer.run_import(account, upload, report, options)))
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
            rejected = await _pack_rejected(request, account, upload, report, choices)
    outcome = {"result": result, "problem": problem, "report": report, "name": upload.name, "rejected": rejected}
    yield pages.render(request, "console/parts/import_result.html", **outcome)
    yield rest


async def _find_stored(
    services: Services, account: Account, upload: Upload, options: importer.ImportOptions, problem: Problem
) -> ImportProgress | None:
    # The import that the problem stopped, or the complete one if the file was imported before.
    with suppress(Problem):
        found = await services.transfer.find_import(account, upload, options)
        is_meant = found is not None and (found.finished_at is None or problem.code == "already_imported")
        return found if is_meant else None
    return None
