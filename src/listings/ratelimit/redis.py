"""Exact sliding-window log in Redis or Valkey, shared by all processes and machines that use it.

Each key has a list of the times of its accepted requests, oldest first, in microseconds of Redis's clock. A list is
the smallest exact structure of Redis: 10 kB for 1000 requests, compared with 104 kB for a sorted set and up to 16 kB
for a ring in a string. The script is about as fast on a list as on a ring, and twice as fast as on a sorted set.

One atomic script in one round trip removes expired times, counts the rest and appends the new one. Redis replicates
the effects of a script, not the script itself, so it may read the clock.

If Redis's clock goes back, the script moves all times of a log back by the same amount, so that the newest is now. They
then expire later, by at most the time since the newest request. If the clock jumps forward, times expire earlier, as if
that time had passed.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha1
from typing import Any

from listings.domain.errors import Unavailable
from listings.domain.rate_limiter import RateLimitDecision
from listings.ratelimit.redis_connection import (
    NOT_REDIS,
    Connection,
    Endpoint,
    ErrorReply,
    Reply,
    connect,
    describe_error,
)

_MICROSECONDS_PER_SECOND = 1_000_000
MIN_CONNECT_TIMEOUT_SECONDS = 1.0  # a longer timeout for replies also applies to connecting
_RETRY_SECONDS = 1.0
_PROBE_LIMIT = 1_000_000  # so that no probe is rejected
_PROBE_WINDOW_MICROSECONDS = 1_000_000
_OLD_SCRIPT_ERROR = re.compile(r"^ERR Error running script .*@user_script: ?\d+: -?")  # prefix before Redis 7
_SCRIPT_ERROR = re.compile(r",? script: (?:[0-9a-f]{40}, )?on @user_script:\d+\.$")  # suffix since Redis 7

_SCRIPT = """
local key, limit, window, increment = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == '1'
local now = tonumber(ARGV[4])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local function expire()
  if not ARGV[4] then redis.call('PEXPIRE', key, window / 1000 + 1000) end
end

local newest = tonumber(redis.call('LINDEX', key, -1))
if newest and newest > now then
  local times = redis.call('LRANGE', key, 0, -1)
  redis.call('DEL', key)
  for i = 1, #times do redis.call('RPUSH', key, times[i] - newest + now) end
  expire()
end

-- Remove expired times by exponential search: double the step after each trim, otherwise halve it.
local start, count, oldest, step = now - window, redis.call('LLEN', key), now, 1
while count > 0 do
  local moment = step <= count and tonumber(redis.call('LINDEX', key, step - 1))
  if moment and moment <= start then
    redis.call('LTRIM', key, step, -1)
    count, step = count - step, step * 2
  elseif step > 1 then
    step = math.floor(step / 2)
  else
    oldest = moment
    break
  end
end

if count >= limit then
  if count > limit then oldest = tonumber(redis.call('LINDEX', key, count - limit)) end
  return {0, 0, oldest - start}
elseif increment then
  redis.call('RPUSH', key, now)
  expire()
  return {1, limit - count - 1, oldest - start}
end
return {1, limit - count, count > 0 and oldest - start or 0}
"""
_IMPORT_SCRIPT = """
local key, window = KEYS[1], tonumber(ARGV[1])
local now = tonumber(ARGV[2])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local here = 0
for _, moment in ipairs(redis.call('LRANGE', key, 0, -1)) do
  if tonumber(moment) > now - window then here = here + 1 end
end
if here >= #ARGV - 2 then return {1, here, 0} end
redis.call('DEL', key)
for i = 3, #ARGV do redis.call('RPUSH', key, string.format('%d', now - tonumber(ARGV[i]))) end
redis.call('PEXPIRE', key, window / 1000 + 1000)
return {1, #ARGV - 2, 0}
"""
_DIGEST = sha1(_SCRIPT.encode(), usedforsecurity=False).hexdigest()


class RedisLimiter:
    """A `RateLimiter` shared by all users of one Redis. For one event loop.

    It connects at the first call, and reconnects at most once a second. The first calls wait for the first attempt to
    connect. After that, calls without a connection raise Unavailable immediately. A hit without a reply may have been
    counted.
    """

    is_distributed = True
    scope = "all machines that use this Redis"

    def __init__(
        self, endpoint: Endpoint, database_id: str, limit: int, window: int, clock: Callable[[], float] | None = None
    ) -> None:
        """`database_id` identifies the database whose keys are counted. `clock` replaces Redis's clock in tests."""
        self.limit = limit
        self.window = window
        self.error: str | None = "not connected yet"  # None while connected
        self.on_change: Callable[[str | None], None] = lambda _: None  # called with the error, or None once connected
        self._endpoint = endpoint
        self._window_microseconds = window * _MICROSECONDS_PER_SECOND
        self._prefix = f"listings:{database_id}:limit:"
        self._clock = clock
        self._connection: Connection | None = None
        self._connect_task: asyncio.Task[None] | None = None
        self._attempted = asyncio.Event()
        self._disconnected = asyncio.Event()

    async def hit(self, key_id: int) -> RateLimitDecision:
        return await self._decide(key_id, increment=1)

    async def peek(self, key_id: int) -> RateLimitDecision:
        return await self._decide(key_id, increment=0)

    async def import_history(self, key_id: int, ages: Sequence[float]) -> None:
        """Replace the key's log with another limiter's requests if there are more of those.

        `ages` are the seconds since each request, oldest first. Raises Unavailable.
        """
        connection = self._connection or await self._wait_for_connection()
        recent = [round(age * _MICROSECONDS_PER_SECOND) for age in ages if age < self.window][-self.limit :]
        now = "" if self._clock is None else round(self._clock() * _MICROSECONDS_PER_SECOND)
        arguments = (1, f"{self._prefix}{key_id}", self._window_microseconds, now, *recent)
        _parse_reply(connection, await connection.call("EVAL", _IMPORT_SCRIPT, *arguments))

    async def run_maintenance(self) -> None:
        """Do nothing: from the first request on, a task keeps the connection open."""

    async def check(self) -> None:
        connection = self._connection or await self._wait_for_connection()
        _parse_reply(connection, await self._probe(connection))

    async def close(self) -> None:
        if self._connect_task is not None:
            self._connect_task.cancel()
            with suppress(asyncio.CancelledError):
                await self._connect_task
        if self._connection is not None:
            self.on_change = lambda _: None
            self._connection.close("the limiter was closed")

    async def _decide(self, key_id: int, increment: int) -> RateLimitDecision:
        connection = self._connection or await self._wait_for_connection()
        keys = 1, f"{self._prefix}{key_id}"  # their number, and the key itself
        arguments: tuple[str | int, ...] = (*keys, self.limit, self._window_microseconds, increment)
        if self._clock is not None:
            arguments = (*arguments, round(self._clock() * _MICROSECONDS_PER_SECOND))
        reply = await connection.call("EVALSHA", _DIGEST, *arguments)
        if isinstance(reply, ErrorReply) and str(reply).startswith("NOSCRIPT"):
            reply = await connection.call("EVAL", _SCRIPT, *arguments)
        accepted, remaining, reset = _parse_reply(connection, reply)
        return RateLimitDecision(accepted == 1, remaining, reset / _MICROSECONDS_PER_SECOND)

    # Connection

    async def _wait_for_connection(self) -> Connection:
        if self._connect_task is None:
            self._connect_task = asyncio.create_task(self._keep_connected())
        await self._attempted.wait()
        if self._connection is None:
            raise Unavailable(self.error or "the connection was lost")
        return self._connection

    async def _keep_connected(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            self._disconnected.clear()
            error = await self._connect()
            if error is None:
                await self._disconnected.wait()
            else:
                self._set_error(error)
            await asyncio.sleep(started + _RETRY_SECONDS - loop.time())

    async def _connect(self) -> str | None:  # the error
        timeout = max(MIN_CONNECT_TIMEOUT_SECONDS, self._endpoint.timeout_seconds)
        try:
            async with asyncio.timeout(timeout):
                connection = await connect(self._endpoint, self._on_close)
                try:
                    _parse_reply(connection, await self._probe(connection))
                except BaseException:
                    connection.close("the connection was never used")
                    raise
        except TimeoutError:
            return f"no response within {timeout:.0f} s"
        except ErrorReply as error:
            return _format_error(error)
        except Exception as error:  # noqa: BLE001 - the next attempt may succeed
            return describe_error(error)
        if connection.close_reason:  # right after the probe
            return connection.close_reason
        self._connection = connection
        self._set_error(None)
        return None

    def _probe(self, connection: Connection) -> asyncio.Future[Any]:
        # Count a request of a separate key, because a Redis that responds may still reject all writes.
        arguments = (1, f"{self._prefix}probe", _PROBE_LIMIT, _PROBE_WINDOW_MICROSECONDS, 1)
        return connection.call("EVAL", _SCRIPT, *arguments)

    def _on_close(self, reason: str) -> None:
        if self._connection is None:  # still connecting: `_connect` handles the error
            return
        self._connection = None
        self._set_error(reason)
        self._disconnected.set()

    def _set_error(self, error: str | None) -> None:
        changed = not self._attempted.is_set() or (error is None) != (self.error is None)
        self.error = error
        self._attempted.set()
        if changed:
            self.on_change(error)


def _parse_reply(connection: Connection, reply: Reply) -> list[int]:
    if isinstance(reply, ErrorReply):
        connection.close(_format_error(reply))
        raise Unavailable(_format_error(reply))
    if not isinstance(reply, list):
        connection.close(NOT_REDIS)
        raise Unavailable(NOT_REDIS)
    return reply


def _format_error(error: ErrorReply) -> str:
    return _SCRIPT_ERROR.sub("", _OLD_SCRIPT_ERROR.sub("", str(error)))
