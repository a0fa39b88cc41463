"""Forms that need no session. Their token belongs to the browser, even if the visitor is signed in."""

import asyncio
import re
from functools import wraps
from typing import Any

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response

from listings.domain.errors import Problem
from listings.site import cookies, security
from listings.site.console.guards import Page, console_page, read_form
from listings.site.context import site_of

MAX_WAITING_FORMS, MAX_ALL_WAITING_FORMS = 32, 64
"""For each network, and in all: with up to 64 KiB each, 2 MiB and 4 MiB."""

_QUOTED = re.compile(r"(['\"]).*\1")  # a part of the form
_FIELD = re.compile(r"\b(name|email|password|message)\b")
INTERVAL_SECONDS = 0.002  # more than a form takes, so that a flood of them leaves time for API requests


async def read_visitor_form(request: Request) -> FormData:
    """Return the submitted form. At most one form with a valid token is returned every 2 ms.

    Raises Problem: malformed_request, or insecure_connection if others could read the form on the network. Raises
    Unavailable if too many forms of the visitor's network wait.
    """
    cookies.require_secure_connection(request)
    form = await read_form(request)
    if security.has_form_token(cookies.form_secret(request), form.get("token")):  # others are rejected by each page
        async with site_of(request).visitor_forms.acquire(cookies.find_owner(request)):
            await asyncio.sleep(INTERVAL_SECONDS)
    return form


def visitor_page(request: Request, template: str, problem: Problem | None = None, **context: object) -> Response:
    """Render a page with a form. Raises Problem("insecure_connection") if others could read the form on the network."""
    cookies.require_secure_connection(request)
    secret = cookies.form_secret(request)
    wrong_field = ""
    if problem is not None and problem.code in {"invalid_request", "email_taken"}:
        named = _FIELD.search(_QUOTED.sub("", problem.message))  # the message names the field
        wrong_field = named[1] if named is not None else ""
    shown: dict[str, Any] = {"token": security.form_token(secret), "wrong_field": wrong_field, **context}
    return cookies.set_form_secret(request, console_page(request, template, problem=problem, **shown), secret)


def preserve_form(page: Page) -> Page:
    """Let a signed-out seller send a form again after signing in in another tab, so that no text is lost.

    The form must have no passwords, because its values are part of the response; files are lost. Its page must show
    the values again if the token is of an earlier session: see `require_current_session`. Too large a form leads to the
    sign-in page.
    """

    @wraps(page)
    async def run(request: Request) -> Response:
        if await cookies.member_of(request) is not None:
            return await page(request)
        try:
            form = await read_visitor_form(request)
        except Problem:
            return await page(request)
        finally:
            await request.close()  # uploaded files
        values = [(name, value) for name, value in form.multi_items() if name != "token" and isinstance(value, str)]
        return visitor_page(request, "preserved_form.html", values=values)

    return run
