"""From templates to answers: pages, and what is said when something is refused."""

from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus

import jinja2
import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Match
from starlette.types import Scope

from listings.domain.errors import Code, Problem, Unavailable
from listings.site import assets, presentation, search, security, session
from listings.site.context import site_of
from listings.site.visitor import base_url_of

_STATUS: Mapping[Code, int] = {
    "invalid_request": 400,
    "malformed_request": 400,
    "payment_refused": 400,
    "account_disabled": 403,
    "confirmation_required": 403,
    "cross_site": 403,
    "insecure_connection": 403,
    "plan_expired": 403,
    "sign_up_closed": 403,
    "wrong_credentials": 403,
    "invitation_invalid": 404,
    "key_not_found": 404,
    "listing_not_found": 404,
    "not_owner": 404,
    "listing_deleted": 410,
    "path_not_found": 404,
    "method_not_allowed": 405,
    "email_taken": 409,
    "idempotency_key_reused": 409,
    "import_conflict": 409,
    "key_ended": 409,
    "already_imported": 409,
    "too_many_keys": 409,
    "precondition_failed": 412,
    "body_too_large": 413,
    "unsupported_encoding": 415,
    "too_many_attempts": 429,
    "internal_error": 500,
    "unavailable": 503,
}
_HEADINGS = {
    400: "That can't be done",
    403: "That is not allowed",
    404: "Page not found",
    405: "That can't be done here",
    410: "This listing is gone",
    413: "That is too large",
    409: "That can't be done now",
    412: "That has changed meanwhile",
    415: "That can't be read",
    429: "Too many attempts",
    500: "Something went wrong",
    503: "Back in a moment",
}
_FAILED = 500
_GONE = {404, 410}
_READING = {"GET", "HEAD"}
_CONSOLE = "/console"


def environment() -> jinja2.Environment:
    """The templates: whatever they show is escaped, and a name that is not there is an error."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("listings.site"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals |= {
        "asset": assets.address_of,
        "groups": presentation.GROUPS,
        "map_of": presentation.map_of,
        "place": presentation.place_of,
        "price_parts": presentation.price_parts,
        "sorts": search.SORTS,
        "types": presentation.TYPES,
    }
    made.filters |= {
        "age": presentation.age_of,
        "browser": presentation.browser_of,
        "code_parts": presentation.code_parts_of,
        "counted": presentation.count_of,
        "date": presentation.date_of,
        "machine_moment": presentation.machine_moment_of,
        "moment": presentation.moment_of,
        "day": presentation.day_of,
        "machine_time": presentation.machine_time_of,
        "paragraphs": presentation.paragraphs_of,
        "picture": presentation.picture_of,
        "price": presentation.price_of,
        "size": presentation.size_of,
        "suburb": presentation.suburb_of,
        "summary": presentation.summary_of,
    }
    return made


def page(
    request: Request,
    template: str,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    **context: object,
) -> Response:
    """The page that a template makes, kept by nobody but for asking whether it still holds."""
    content = text(request, template, **context)
    return HTMLResponse(content, status, {"Cache-Control": "private, no-cache", **(headers or {})})


def text(request: Request, template: str, **context: object) -> str:
    """What a template makes: a page, or a part of one that is sent as it grows."""
    site = site_of(request)
    member = getattr(request.state, "member", None)
    known = {
        "base_url": base_url_of(request),
        "is_open": site.service.sign_up_open,
        "member": member,
        "path": request.scope["path"],
        "request_id": request_id_of(request),
        "token": security.form_token(member.csrf_secret) if member is not None else "",
    }
    return site.templates.get_template(template).render(known | context)


async def refusal(request: Request, problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """What somebody who is refused reads: a page, or the API's one shape of an error where no page is asked for."""
    status = status_of(problem)
    headers = {"Cache-Control": "no-store", **_headers_of(problem), **(headers or {})}
    if not wants_a_page(request.scope):
        told = msgspec.json.encode({"error": problem.message})
        return Response(told, status, {**headers, "X-Error-Code": problem.code}, "application/json; charset=utf-8")
    if status < _FAILED:
        with suppress(Unavailable):
            await session.member_of(request)
    return page(
        request,
        "problem.html",
        status=status,
        headers=headers,
        heading=_HEADINGS.get(status, HTTPStatus(status).phrase),
        message=problem.message,
        back=_way_back(request, status),
    )


def wants_a_page(scope: Scope) -> bool:
    """Whether it is a page that is asked for, as browsers do."""
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])


def console_page_of(request: Request) -> str:
    """The page of the console that an address belongs to: it, or the nearest above; "" for what is not below it."""
    path: str = request.scope["path"]
    while path.startswith(_CONSOLE):
        asked = {**request.scope, "method": "GET", "path": path}
        if any(route.matches(asked)[0] is Match.FULL for route in request.app.routes):
            return path
        path = path.rpartition("/")[0]
    return ""


def status_of(problem: Problem) -> int:
    """The status of a page that tells this problem."""
    return _STATUS.get(problem.code, _FAILED)


def request_id_of(request: Request) -> str:
    """The name of the request, as it is in the log."""
    return str(request.scope.get("listings.request_id", ""))


def _way_back(request: Request, status: int) -> str:
    """The page of the console to go on from; "" where none is near."""
    page = console_page_of(request)
    is_itself = page == request.scope["path"] and (request.method in _READING or status in _GONE)
    if is_itself and page != _CONSOLE:
        page = page.rpartition("/")[0]
    return page or (_CONSOLE if getattr(request.state, "member", None) is not None else "")


def _headers_of(problem: Problem) -> dict[str, str]:
    return {"Retry-After": str(problem.retry_after)} if isinstance(problem, Unavailable) else {}
