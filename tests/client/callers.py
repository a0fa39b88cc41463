"""One way to call both clients: `AsyncClient` through a loop of its own."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from listings_client import AsyncClient, Client


class AsyncCaller:
    """Calls an AsyncClient from code that does not await."""

    def __init__(self, client: AsyncClient) -> None:
        self._runner = asyncio.Runner()
        self._client = client
        self._runner.run(client.__aenter__())

    def close(self) -> None:
        self._runner.run(self._client.__aexit__(None, None, None))
        self._runner.close()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        return self._adapt(found) if callable(found) else found

    def _adapt(self, method: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            result = method(*arguments, **options)
            return self._iterate(result) if isinstance(result, AsyncIterator) else self._runner.run(result)

        return call

    def _iterate(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        async def advance() -> Any:
            return await anext(items, self)

        while (item := self._runner.run(advance())) is not self:
            yield item


class SyncCaller:
    def __init__(self, client: Client) -> None:
        self._client = client.__enter__()

    def close(self) -> None:
        self._client.__exit__(None, None, None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def open_caller(kind: str, *arguments: Any, **options: Any) -> Any:
    """Return a caller of the kind "sync" or "async"; close it at the end."""
    if kind == "sync":
        return SyncCaller(Client(*arguments, **options))
    return AsyncCaller(AsyncClient(*arguments, **options))
