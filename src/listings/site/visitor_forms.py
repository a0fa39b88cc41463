"""Forms of visitors, who have no session. Their token belongs to the browser."""

from typing import Any

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response

from listings.domain.errors import Problem
from listings.site import security, session
from listings.site.console.guards import console_page, read_form


async def read_visitor_form(request: Request) -> FormData:
    """Return the submitted form. Raises Problem("insecure_connection") if others could read it."""
    session.require_secure_connection(request)
    form = await read_form(request)
    await request.close()  # closes files; these forms have none
    return form


def visitor_page(request: Request, template: str, problem: Problem | None = None, **context: object) -> Response:
    """Render a page with a form. Raises Problem("insecure_connection") if others could read the form on the network."""
    session.require_secure_connection(request)
    secret = session.form_secret(request)
    shown: dict[str, Any] = {**context, "token": security.form_token(secret)}
    return session.set_form_secret(request, console_page(request, template, problem=problem, **shown), secret)
