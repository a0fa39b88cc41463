"""Load the HTML pages lazily, so that a service which only gets API requests never imports them."""

import asyncio
from collections.abc import Callable

from listings.http.asgi import Pages, Receive, Scope, Send


class LazyPages:
    """Pages that are loaded on first use, in a thread, so that other requests do not wait."""

    def __init__(self, load: Callable[[], Pages]) -> None:
        """`load` imports and builds the pages."""
        self._load = load
        self._loading: asyncio.Future[Pages] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Respond like `listings.site.app.Pages`. If loading fails, raise its error; the next request tries again."""
        loading = self._loading
        if loading is None or (loading.done() and loading.exception() is not None):
            loading = self._loading = asyncio.ensure_future(asyncio.to_thread(self._load))
        pages = await asyncio.shield(loading)
        return await pages(scope, receive, send)
