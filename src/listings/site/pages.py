"""Page responses: rendered templates, and errors as HTML or JSON."""

import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any

import jinja2
import msgspec
from jinja2.ext import Extension
from jinja2.runtime import Context, Macro
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Match
from starlette.types import Scope

from listings.domain.errors import STATUS, Code, Problem, Unavailable
from listings.domain.fields import FIELDS
from listings.domain.market.regions import REGIONS
from listings.domain.number_text import format_count
from listings.domain.timestamps import format_date
from listings.service.market import MAX_SELLER_COUNT
from listings.service.members import passwords
from listings.site import assets, cookies, presentation, search, security
from listings.site.context import Brand, site_of
from listings.site.pictures import sources
from listings.site.pictures.drawings import choose_art
from listings.site.visitor import base_url_of

_STATUS: Mapping[Code, int] = {
    **STATUS,
    "not_owner": 404,  # the API's 403, which the specification requires, reveals that the listing exists
    "idempotency_key_reused": 409,  # the API's 422 is about a header that a form does not send
}
_HEADINGS = {
    400: "Invalid request",
    403: "Not allowed",
    404: "Page not found",
    405: "That action isn't available here",
    410: "This listing is no longer available",
    413: "Upload too large",
    409: "That isn't possible right now",
    412: "This was changed in the meantime",
    415: "Unsupported format",
    429: "Too many attempts",
    500: "Something went wrong",
    503: "Back in a moment",
}
_CODE_HEADINGS: Mapping[Code, str] = {
    "cross_site": "Your form was not accepted",
    "invitation_invalid": "This link no longer works",
}
_NOT_A_PAGE = "This page is the result of a form, so it can't be opened directly. Go back and send the form again"
_NOT_SHOWN = "We can't show this page right now. Try again in a minute"
_NOT_SAVED = "We can't do this right now, and your changes may not have been saved. Try again in a minute"
_METHOD_NOT_ALLOWED = 405
_INTERNAL_SERVER_ERROR = 500
_MISSING = {404, 410}
_SAFE_METHODS = {"GET", "HEAD"}
_MAX_DEPTH = 8  # slashes in a path; no route has more
_CONSOLE = "/console"
_OWN_LINK = re.compile(r'(?:href|action|hx-get)="(?=/)')


_GLOBALS = {
    "art": choose_art,
    "category_options": presentation.CATEGORIES,
    "fields": FIELDS,
    "format_place": presentation.format_place,
    "groups": presentation.GROUPS,
    "key_access": presentation.KEY_ACCESS,
    "map_url": presentation.map_url,
    "min_password_length": passwords.MIN_LENGTH,
    "new_form_id": partial(secrets.token_urlsafe, 16),
    "price_parts": presentation.price_parts,
    "region_options": REGIONS,
    "sorts": search.SORTS,
    "types": FIELDS["type"].options,
}
_FILTERS = {
    "age": presentation.format_age,
    "browser": presentation.describe_browser,
    "contact_url": presentation.contact_url,
    "counted": format_count,
    "date": format_date,
    "day": presentation.format_day,
    "has_hidden": sources.has_hidden,
    "iso_moment": presentation.moment_to_iso,
    "iso_time": presentation.timestamp_to_iso,
    "key_name": presentation.describe_key,
    "month": presentation.format_month,
    "moment": presentation.format_moment,
    "paragraphs": presentation.split_paragraphs,
    "price": presentation.format_price,
    "short_age": presentation.format_short_age,
    "seller_count": partial(presentation.format_bounded_count, unit="listing", maximum=MAX_SELLER_COUNT),
    "size": presentation.format_size,
    "suburb": presentation.extract_suburb,
    "summary": presentation.summarize,
}


class _Context(Context):
    def __init__(
        self, environment: jinja2.Environment, parent: dict[str, Any], *rest: object, **options: object
    ) -> None:
        super().__init__(environment, parent, *rest, **options)  # type: ignore[arg-type]
        parent["contexts"].append(self)  # those of a template and of all that it imports

    def clear(self) -> None:  # macros are in reference cycles, with all variables, until a full garbage collection
        for value in self.vars.values():
            if isinstance(value, Macro):
                value._func = None  # type: ignore[assignment]  # noqa: SLF001 - it refers to other macros
        for mapping in (self.vars, self.parent, self.blocks):
            mapping.clear()


class _PrefixedLinks(Extension):
    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:  # noqa: ARG002 - Jinja2's
        return _OWN_LINK.sub(rf"\g<0>{self.environment.globals['path_prefix']}", source)


def environment(path_prefix: str, brand: Brand, media_url: str = "") -> jinja2.Environment:
    """Return the templates. They escape every value, and an undefined name is an error.

    `path_prefix` is added to links that are literal. Computed ones begin with `{{ path_prefix }}`. `media_url`: where
    uploaded pictures are, if it is another host.
    """
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("listings.site"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        extensions=[_PrefixedLinks],
    )
    templates.context_class = _Context
    asset = partial(assets.asset_url, path_prefix)
    templates.globals |= _GLOBALS | {"asset": asset, "brand": brand, "path_prefix": path_prefix}
    templates.filters |= _FILTERS | {
        "picture": partial(sources.find_source, prefix=path_prefix, media_url=media_url),
        "pictures": partial(sources.list_sources, prefix=path_prefix, media_url=media_url),
    }
    return templates


def page(
    request: Request, template: str, *, status: int = 200, headers: Mapping[str, str] | None = None, **context: object
) -> Response:
    """Render a template as a response. By default, browsers may cache it but must revalidate it."""
    content = render(request, template, **context)
    return HTMLResponse(content, status, {"Cache-Control": "private, no-cache", **(headers or {})})


def render(request: Request, template: str, **context: object) -> str:
    """Render a template: a page, or a part of a page that is streamed."""
    site = site_of(request)
    member = getattr(request.state, "member", None)
    plan_end = member.account.plan_expires_at if member is not None else None
    shared = {
        "base_url": base_url_of(request),
        "contact": site.services.about.contact,
        "origin": base_url_of(request).removesuffix(site.path_prefix),
        "is_open": site.services.sessions.sign_up_open,
        "member": member,
        "plan": site.services.plan,
        "plan_notice": presentation.describe_plan_end(plan_end, site.services.clock()),
        "path": request.scope["path"],
        "request_id": request_id_of(request),
        "token": security.form_token(member.csrf_secret) if member is not None else "",
    }
    contexts: list[_Context] = []
    try:
        return site.templates.get_template(template).render(shared | context | {"contexts": contexts})
    finally:
        for one in contexts:
            one.clear()


async def error_response(
    request: Request, problem: Problem, headers: Mapping[str, str] | None = None, **more: object
) -> Response:
    """Return the response to an error: a page if the client accepts HTML, otherwise JSON as in the API.

    `more` are further values for the template.
    """
    status, path = status_of(problem), request.scope["path"]
    headers = {"Cache-Control": "no-store", **retry_header(problem), **(headers or {})}
    if not accepts_html(request.scope):
        body = msgspec.json.encode({"error": problem.message})
        return Response(body, status, {**headers, "X-Error-Code": problem.code}, "application/json; charset=utf-8")
    if status < _INTERNAL_SERVER_ERROR:
        with suppress(Unavailable):
            await cookies.member_of(request)
    if request.method not in _SAFE_METHODS:
        message = replace_message(problem).message
    else:
        message = _NOT_A_PAGE if status == _METHOD_NOT_ALLOWED else replace_message(problem, _NOT_SHOWN).message
    retry_url = ""  # where to send the form again, or to request a new link
    if problem.code == "invitation_invalid":
        retry_url = "/console/account" if path.startswith("/confirm-email/") else "/reset-password"
    elif problem.code == "cross_site":
        retry_url = find_console_page(request) or (path if _has_page(request, path) else "")
    return page(
        request,
        "problem.html",
        status=status,
        headers=headers,
        heading=_CODE_HEADINGS.get(problem.code) or _HEADINGS.get(status, HTTPStatus(status).phrase),
        message=message,
        code=problem.code,
        retry_url=retry_url,
        is_console=bool(find_console_page(request)),
        back=_back_link(request, status),
        **{"similar": [], **more},
    )


def replace_message(problem: Problem, message: str = _NOT_SAVED) -> Problem:
    """Return the error with this message if its own is for operators."""
    if not isinstance(problem, Unavailable) or problem.for_visitors:
        return problem
    return Unavailable(message, retry_after=problem.retry_after)


def retry_header(problem: Problem | None) -> Mapping[str, str]:
    """Return the Retry-After header of an error that ends by itself."""
    return {"Retry-After": str(problem.retry_after)} if problem is not None and problem.retry_after else {}


def accepts_html(scope: Scope) -> bool:
    """Return whether the Accept header names HTML, as that of a browser does."""
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])


def find_console_page(request: Request) -> str:
    """Return the path of the console page at or above the request's path, or "" if it is outside of the console."""
    path: str = request.scope["path"]
    if path.count("/") > _MAX_DEPTH:
        return ""
    while path.startswith(_CONSOLE):
        if _has_page(request, path):
            return path
        path = path.rpartition("/")[0]
    return ""


def _has_page(request: Request, path: str) -> bool:
    scope = {**request.scope, "method": "GET", "path": path}
    return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)


def status_of(problem: Problem) -> int:
    """Return the HTTP status of a page with this error."""
    return _STATUS.get(problem.code, _INTERNAL_SERVER_ERROR)


def request_id_of(request: Request) -> str:
    """Return the request ID, as logged."""
    return str(request.scope.get("listings.request_id", ""))


def _back_link(request: Request, status: int) -> str:
    page = find_console_page(request)
    is_itself = page == request.scope["path"] and (request.method in _SAFE_METHODS or status in _MISSING)
    if is_itself and page != _CONSOLE:
        page = page.rpartition("/")[0]
    return page or (_CONSOLE if getattr(request.state, "member", None) is not None else "")
