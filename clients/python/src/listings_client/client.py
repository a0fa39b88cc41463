"""`Client` and `AsyncClient`: they drive the generators of `operations`, and are otherwise alike."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast, overload

import httpx2

from listings_client import credentials, operations
from listings_client.core import Emit, Emits, Lost, Options, Pause, Read, Reply, Send, Steps
from listings_client.credentials import Mode

P = ParamSpec("P")
A = TypeVar("A")
S = TypeVar("S")
T = TypeVar("T")

_CONNECT_SECONDS = 10.0
_FAILURES = (httpx2.TransportError, httpx2.DecodingError)
_OK = 200


def _build(options: Options, step: Send) -> dict[str, Any]:
    """Return the arguments of a request."""
    call = step.call
    return {
        "method": call.method,
        "url": options.base_url + call.path,
        "params": list(call.query),
        "content": call.content or None,
        "headers": call.headers,
        "timeout": httpx2.Timeout(step.read_timeout, connect=min(_CONNECT_SECONDS, step.read_timeout)),
    }


def _lose(error: Exception) -> Lost:
    is_unsent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
    return Lost(f"{type(error).__name__}: {error}".rstrip(": "), is_unsent)


class Method(Generic[P, S, A]):
    """A method of both clients that drives an operation: `S` is what Client returns, `A` what AsyncClient does."""

    def __init__(self, steps: Callable[Concatenate[Options, P], Any], drive: str) -> None:
        self._steps = steps
        self._drive = drive
        self.__doc__ = steps.__doc__

    @overload
    def __get__(self, client: "Client", owner: object) -> Callable[P, S]: ...
    @overload
    def __get__(self, client: "AsyncClient", owner: object) -> Callable[P, A]: ...
    def __get__(self, client: Any, owner: object) -> Any:
        if client is None:
            return self
        return lambda *given, **named: getattr(client, self._drive)(self._steps(client.options, *given, **named))


def _method(steps: Callable[Concatenate[Options, P], Steps[T]]) -> Method[P, T, Awaitable[T]]:
    return Method(steps, "run")


def _items(steps: Callable[Concatenate[Options, P], Emits[T]]) -> Method[P, Iterator[T], AsyncIterator[T]]:
    return Method(steps, "iterate")


class _Base:
    """The constructor and the methods of both clients."""

    get = _method(operations.read_listing)
    list = _items(operations.list_listings)
    stream = _items(operations.stream_listings)
    create = _method(operations.create_listing)
    update = _method(operations.update_listing)
    delete = _method(operations.delete_listing)
    restore = _method(operations.restore_listing)
    put = _method(operations.put_listing)
    batch = _method(operations.run_batch)
    changes = _items(operations.list_changes)
    last_change = _method(operations.read_last_change)
    history = _items(operations.list_history)
    groups = _items(operations.list_groups)
    revert = _method(operations.revert_changes)
    upload_image = _method(operations.upload_image)
    key = _method(operations.read_key)
    account = _method(operations.read_account)
    limit = _method(operations.read_rate_limit)

    def __init__(  # noqa: PLR0913 - all but the first two are options
        self,
        key: str | None = None,
        base_url: str | None = None,
        *,
        mode: Mode | None = None,
        timeout: float = 60.0,
        pace: bool = False,
        change_group: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Find the key: the argument, LISTINGS_API_KEY, or the one that `lst login` has saved.

        `mode` is "test" or "live", if a key of the other mode is an error. `timeout` is in seconds, for a call with its
        retries. `pace` delays requests before the rate limit is reached. `change_group` names all writes, so that
        `revert(group=…)` undoes them. `headers` are added to each request. Raises ConfigurationError.
        """
        found = credentials.find(key, base_url, mode)
        self.mode: Mode = found.mode
        self.options = Options(
            found.key, found.base_url, timeout, pace=pace, change_group=change_group, headers=headers or {}
        )


class Client(_Base):
    """Calls the API, in one thread at a time. A `with` block closes its connections. Methods raise ListingsError."""

    _http = cached_property(lambda _: httpx2.Client())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def _perform(self, step: Send | Pause | Read) -> object:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        try:
            if isinstance(step, Read):
                return next(step.reply.stream, b"")
            response = self._http.send(self._http.build_request(**_build(self.options, step)), stream=True)
            if step.call.is_stream and response.status_code == _OK:
                return Reply(_OK, response.headers, b"", response.iter_bytes())
            return Reply(response.status_code, response.headers, response.read())
        except _FAILURES as error:
            return _lose(error)

    def run(self, steps: Steps[T]) -> T:
        """Drive a generator of `operations` to its end, and return its result."""
        result: object = None
        while True:
            try:
                step = steps.send(result)
            except StopIteration as end:
                return cast("T", end.value)
            result = self._perform(step)

    def iterate(self, steps: Emits[T]) -> Iterator[T]:
        """Drive a generator of `operations`, and yield the items that it emits."""
        result: object = None
        while True:
            try:
                step = steps.send(result)
            except StopIteration:
                return
            if isinstance(step, Emit):
                yield from step.items
            result = None if isinstance(step, Emit) else self._perform(step)


class AsyncClient(_Base):
    """Calls the API with asyncio. Its methods are those of `Client`; many tasks may use it at the same time."""

    _http = cached_property(lambda _: httpx2.AsyncClient())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def _perform(self, step: Send | Pause | Read) -> object:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        try:
            if isinstance(step, Read):
                return await anext(step.reply.stream, b"")
            response = await self._http.send(self._http.build_request(**_build(self.options, step)), stream=True)
            if step.call.is_stream and response.status_code == _OK:
                return Reply(_OK, response.headers, b"", response.aiter_bytes())
            return Reply(response.status_code, response.headers, await response.aread())
        except _FAILURES as error:
            return _lose(error)

    async def run(self, steps: Steps[T]) -> T:
        """Drive a generator of `operations` to its end, and return its result."""
        result: object = None
        while True:
            try:
                step = steps.send(result)
            except StopIteration as end:
                return cast("T", end.value)
            result = await self._perform(step)

    async def iterate(self, steps: Emits[T]) -> AsyncIterator[T]:
        """Drive a generator of `operations`, and yield the items that it emits."""
        result: object = None
        while True:
            try:
                step = steps.send(result)
            except StopIteration:
                return
            for item in step.items if isinstance(step, Emit) else ():
                yield item
            result = None if isinstance(step, Emit) else await self._perform(step)
