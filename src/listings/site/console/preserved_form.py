"""Forms of sellers who were signed out while they wrote."""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from listings.domain.errors import Problem
from listings.site import cookies
from listings.site.visitor_forms import read_visitor_form, visitor_page

Page: TypeAlias = Callable[[Request], Awaitable[Response]]


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
