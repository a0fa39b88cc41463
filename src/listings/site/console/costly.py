"""Costly pages of the console: how many run, and when they end."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from listings.domain.errors import Unavailable
from listings.http.asgi import Exchange
from listings.service.members.sessions import Member
from listings.site.console.guards import MemberPage, Page, for_member
from listings.site.context import Kind, held_of, site_of
from listings.tasks import finish

T = TypeVar("T")
P = ParamSpec("P")

_FINISH_SECONDS = 0.5  # for a page that has almost ended


class Work:
    """The work of one costly page. Its place is held until the response is sent."""

    def __init__(self, request: Request, kind: Kind) -> None:
        self._exchange: Exchange = request.scope["listings.exchange"]
        # An export notices a client that has left when it sends the next piece.
        self._closed = asyncio.ensure_future(self._exchange.wait_for_close(may_half_close=kind == "exports"))
        held_of(request).callback(self._closed.cancel)

    async def run(self, work: Coroutine[Any, Any, T], seconds: float = _FINISH_SECONDS) -> T:
        """Return the result of the work. Cancel it once the client has left or the service stops.

        It then has `seconds` to finish. Raises ClientDisconnect or, if the client may still be reading, Unavailable.
        """
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait([task, self._closed], return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                await asyncio.wait([task], timeout=seconds)
            if not task.done():
                if self._exchange.disconnected:
                    raise ClientDisconnect
                message = "The service is restarting, or your browser has closed the connection. Try again in a moment"
                raise Unavailable(message, for_visitors=True)
            return task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def run_in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function in a thread. A cancelled caller waits for its end: it uses the reserved memory until then."""
    return await finish(asyncio.to_thread(function, *args, **kwargs))


def costly(kind: Kind) -> Callable[[MemberPage], Page]:
    """Like `for_member`, for a page that is costly."""

    def decorate(page: MemberPage) -> Page:
        async def begin(request: Request, member: Member) -> Response:
            await site_of(request).costly_pages.enter(kind, member.account.id, held_of(request))
            return await page(request, member)

        @wraps(page)
        @for_member
        async def respond(request: Request, member: Member) -> Response:
            request.state.work = work = Work(request, kind)
            response = await work.run(begin(request, member))
            return _Stream(response, work) if isinstance(response, StreamingResponse) else response

        return respond

    return decorate


class _Stream(Response):
    def __init__(self, response: Response, work: Work) -> None:
        super().__init__()
        self._response = response
        self._work = work

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - see below
        # Only one task may wait for the disconnect, and that of the work does. An import stops earlier.
        never = asyncio.get_running_loop().create_future
        await self._work.run(self._response(scope, never, send), 2 * _FINISH_SECONDS)
