"""Forms that need no session. Their token belongs to the browser, even if the visitor is signed in."""

import asyncio
import re
from typing import Any

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response

from listings.domain.errors import Problem
from listings.site import cookies, security
from listings.site.console.guards import console_page, parse_form
from listings.site.context import site_of
from listings.site.presentation import format_size

_MAX_BYTES = 64 * 1024  # enough for the longest message; hundreds of forms may wait for a check of their password
_QUOTED = re.compile(r"(['\"]).*\1")  # what the visitor entered
_FIELD = re.compile(r"\b(name|email|password|message)\b")
_INTERVAL_SECONDS = 0.002  # more than a form takes, so that a flood of them leaves time for API requests


async def read_visitor_form(request: Request) -> FormData:
    """Return the submitted form, which is URL-encoded. At most one form starts to be read every 2 ms.

    Raises Problem: body_too_large, malformed_request (too many fields), or insecure_connection if others could read the
    form on the network.
    """
    cookies.require_secure_connection(request)
    async with site_of(request).visitor_form_lock:
        await asyncio.sleep(_INTERVAL_SECONDS)
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > _MAX_BYTES:
            raise Problem("body_too_large", f"The form is too large. The limit is {format_size(_MAX_BYTES)}")
    return parse_form(body.decode(errors="replace"))


def visitor_page(request: Request, template: str, problem: Problem | None = None, **context: object) -> Response:
    """Render a page with a form. Raises Problem("insecure_connection") if others could read the form on the network."""
    cookies.require_secure_connection(request)
    secret = cookies.form_secret(request)
    shown: dict[str, Any] = {**context, "token": security.form_token(secret), "wrong_field": _find_field(problem)}
    return cookies.set_form_secret(request, console_page(request, template, problem=problem, **shown), secret)


def _find_field(problem: Problem | None) -> str:
    """Return the field that an error is about, which its message names, or "" if it is not about a field."""
    if problem is None or problem.code not in {"invalid_request", "email_taken"}:
        return ""
    named = _FIELD.search(_QUOTED.sub("", problem.message))
    return named[1] if named is not None else ""
