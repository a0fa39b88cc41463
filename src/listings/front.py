"""The pages before they are loaded: a service whose callers are programs need never do that."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from listings.api.request import Receive, Scope, Send

PagesCall: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[bool]]


class LatePages:
    """Loads the pages when the first one is asked for, in a thread, so that no other request waits for that."""

    def __init__(self, load: Callable[[], PagesCall]) -> None:
        """`load` imports and makes them."""
        self._load = load
        self._loading: asyncio.Future[PagesCall] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """As the pages; see `listings.site.app.Pages`."""
        if self._loading is None:
            self._loading = asyncio.ensure_future(asyncio.to_thread(self._load))
        pages = await asyncio.shield(self._loading)
        return await pages(scope, receive, send)
