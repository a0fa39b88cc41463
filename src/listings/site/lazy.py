"""The pages before they are loaded: a service whose callers are programs need never do that."""

import asyncio
from collections.abc import Callable

from listings.http.asgi import Pages, Receive, Scope, Send


class LazyPages:
    """Loads the pages when the first one is asked for, in a thread, so that no other request waits for that."""

    def __init__(self, load: Callable[[], Pages]) -> None:
        """`load` imports and makes them."""
        self._load = load
        self._loading: asyncio.Future[Pages] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """As the pages; see `listings.site.app.Pages`. Raises what `load` does; the next visitor has it tried again."""
        pages = await asyncio.shield(self._loaded())
        return await pages(scope, receive, send)

    def _loaded(self) -> asyncio.Future[Pages]:
        loading = self._loading
        if loading is None or (loading.done() and loading.exception() is not None):
            loading = self._loading = asyncio.ensure_future(asyncio.to_thread(self._load))
        return loading
