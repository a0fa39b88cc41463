"""The core that both clients drive: generators that yield steps, and receive their results.

A generator does no input or output itself, so `Client` and `AsyncClient` share every rule about retries.
"""

import random
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from listings_client.errors import ApiError, ListingsError, NoResponseError, build_error

__version__ = "0.1.0"

T = TypeVar("T")

_OK = range(200, 300)
_NOT_MODIFIED = 304
_NOTHING_DONE = 429  # a request that the rate limit rejects is not processed
_RETRIED = {408, 429, 500, 502, 503, 504}
_FIRST_DELAY, _MAX_DELAY = 0.5, 20.0  # seconds
_MIN_READ_SECONDS = 1.0
_MAX_CACHED, _MAX_CACHED_BYTES = 128, 256 * 1024  # responses, and bytes of each
_LIMIT = re.compile(r"q=(\d+);w=(\d+)")
_REMAINING = re.compile(r"r=(\d+);t=(\d+)")
_PACED_SHARE = 0.5  # of the limit: above it, requests are not delayed


class Call(NamedTuple):
    """A request of the API. `repeatable`: whether a second attempt has no second effect."""

    method: str
    path: str
    query: Sequence[tuple[str, str]] = ()
    content: bytes = b""
    headers: Mapping[str, str] = {}
    repeatable: bool = True
    patient: bool = False  # whether to repeat it for ever
    wait: float = 0.0  # seconds that the service may wait before it responds
    is_stream: bool = False


class Reply(NamedTuple):
    """A response. `stream` is the open response of a call with `is_stream`, until the driver has closed it."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    stream: Any = None
    was_lost: bool = False  # whether an earlier attempt may have been processed


class Lost(NamedTuple):
    """There was no response. `is_unsent`: the connection could not be opened."""

    reason: str
    is_unsent: bool


class Send(NamedTuple):
    """Step: send a call once. Its result is a Reply or Lost."""

    call: Call
    read_timeout: float


class Pause(NamedTuple):
    """Step: sleep."""

    seconds: float
    reason: str


class Read(NamedTuple):
    """Step: read the next bytes of a stream. Its result is b"" at the end, or Lost."""

    reply: Reply


class Emit(NamedTuple, Generic[T]):
    """Step: yield items to the caller."""

    items: Sequence[T]


Steps: TypeAlias = Generator[Send | Pause | Read, Any, T]
Emits: TypeAlias = Generator[Send | Pause | Read | Emit[T], Any, Any]


@dataclass(slots=True)
class Options:
    """How a client sends requests. `timeout` is the total of a call with its retries, in seconds."""

    key: str
    base_url: str
    timeout: float = 60.0
    read_timeout: float = 30.0
    pace: bool = False
    change_group: str | None = None
    on_wait: Callable[[float, str], None] = lambda _seconds, _reason: None
    headers: Mapping[str, str] = field(default_factory=dict)
    account: str = ""  # when it is known
    cache: "OrderedDict[str, tuple[str, Reply]]" = field(default_factory=OrderedDict)


def send(options: Options, call: Call) -> Steps[Reply]:
    """Send a call, with retries, until there is a response or the deadline has passed. Raises ListingsError."""
    end = float("inf") if call.patient else time.monotonic() + options.timeout
    attempt, was_lost = 0, False
    own = {"User-Agent": f"listings-client/{__version__}", "X-API-Key": options.key, "Prefer": "errors=detailed"}
    call = call._replace(headers={**own, **options.headers, **call.headers})
    while True:
        left = max(_MIN_READ_SECONDS, end - time.monotonic())
        outcome = yield Send(call, call.wait + min(options.read_timeout, left))
        if isinstance(outcome, Reply) and (outcome.status in _OK or outcome.status == _NOT_MODIFIED):
            yield from _pace(options, outcome)
            return outcome._replace(was_lost=was_lost)
        error, may_repeat = _explain(call, outcome)
        if isinstance(error, ApiError):
            error.may_have_applied = was_lost
        if not may_repeat:
            raise error
        was_lost |= not _is_untouched(outcome)
        delay = choose_delay(error, attempt)
        if time.monotonic() + delay > end:
            raise error
        options.on_wait(delay, str(error))
        yield Pause(delay, str(error))
        attempt += 1


def _explain(call: Call, outcome: Reply | Lost) -> tuple[ListingsError, bool]:
    """Return the error of an attempt, and whether to repeat it."""
    is_safe = call.repeatable or _is_untouched(outcome)
    if isinstance(outcome, Lost):
        return NoResponseError(f"No response to {call.method} {call.path}: {outcome.reason}"), is_safe
    error = build_error(outcome.status, outcome.headers, outcome.content)
    return error, outcome.status in _RETRIED and is_safe


def _is_untouched(outcome: Reply | Lost) -> bool:
    """Return whether the service has certainly not processed the request."""
    return outcome.is_unsent if isinstance(outcome, Lost) else outcome.status == _NOTHING_DONE


def choose_delay(error: ListingsError, attempt: int) -> float:
    """Return the seconds until the next attempt: Retry-After, and a random part that doubles (full jitter)."""
    jitter = random.uniform(0, min(_MAX_DELAY, _FIRST_DELAY * 2.0 ** min(attempt, 10)))  # noqa: S311 - no secret
    return (getattr(error, "retry_after", None) or 0.0) + jitter


def _pace(options: Options, reply: Reply) -> Steps[None]:
    """If asked to, delay the next request so that a limit of half its requests is never exceeded."""
    limit = _LIMIT.search(reply.headers.get("ratelimit-policy", ""))
    state = _REMAINING.search(reply.headers.get("ratelimit", ""))
    if not options.pace or limit is None or state is None:
        return
    size, window, remaining, reset = int(limit[1]), int(limit[2]), int(state[1]), int(state[2])
    if remaining < size * _PACED_SHARE:
        delay = float(reset) if remaining == 0 else window / size
        options.on_wait(delay, "the rate limit is near")
        yield Pause(delay, "the rate limit is near")


def read(options: Options, call: Call) -> Steps[Reply]:
    """Send a GET with the tag of an earlier response, which is returned if it is still current."""
    name = f"{call.path}?{call.query}"
    cached = options.cache.get(name)
    if cached is not None:
        call = call._replace(headers={**call.headers, "If-None-Match": cached[0]})
    reply = yield from send(options, call)
    if reply.status == _NOT_MODIFIED and cached is not None:
        options.cache.move_to_end(name)
        return cached[1]
    tag = reply.headers.get("etag")
    if tag and len(reply.content) <= _MAX_CACHED_BYTES:
        options.cache[name] = tag, reply
        if len(options.cache) > _MAX_CACHED:
            options.cache.popitem(last=False)
    return reply
