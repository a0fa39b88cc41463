"""The exact sliding log in Redis or Valkey: one count for all processes and machines that use it.

Each key has a list of the microseconds, by Redis's own clock, at which its requests were accepted, the oldest first.
A list is the smallest of Redis's structures that is exact: 10 kB for 1000 requests, where a sorted set takes 104 and
a ring in a string up to 16. The script takes about as long on a list as on a ring, and half as long as on a sorted set.

One script in one round trip takes off what counts no more, counts what is left, and appends. A script is alone in
Redis while it runs. Its effects are what is replicated, so that it may read the clock.

Where that clock has gone back, the log is moved back with it, by as much as its newest time lies ahead: the requests
keep their distances, and count longer by no more than the time since the newest of them. Where it leaps forward, the
requests count for so much less; nobody can tell that from time that has passed.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha1
from typing import Any

from listings.contract.rate_limiter import RateLimitDecision
from listings.domain.errors import Unavailable
from listings.ratelimit.redis_connection import NOT_REDIS, Connection, Endpoint, ErrorReply, connect, reason_of

_MICROSECONDS = 1_000_000
_CONNECT_SECONDS = 1.0  # at least: whoever waits longer for an answer waits so long for a connection, too
_RETRY_SECONDS = 1.0
_OLD_SCRIPT_ERROR = re.compile(r"^ERR Error running script .*@user_script: ?\d+: -?")
_SCRIPT_ERROR = re.compile(r",? script: (?:[0-9a-f]{40}, )?on @user_script:\d+\.$")

_SCRIPT = """
local key, limit, window, taken = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == '1'
local now = tonumber(ARGV[4])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local function keep()
  if not ARGV[4] then redis.call('PEXPIRE', key, window / 1000 + 1000) end
end

local newest = tonumber(redis.call('LINDEX', key, -1))
if newest and newest > now then
  local times = redis.call('LRANGE', key, 0, -1)
  redis.call('DEL', key)
  for i = 1, #times do redis.call('RPUSH', key, times[i] - newest + now) end
  keep()
end

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
elseif taken then
  redis.call('RPUSH', key, now)
  keep()
  return {1, limit - count - 1, oldest - start}
end
return {1, limit - count, count > 0 and oldest - start or 0}
"""
_TAKE_OVER = """
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
    """`listings.contract.rate_limiter.RateLimiter` over all that use one Redis. For one event loop.

    It connects when it is first asked, and again, at most once a second, whenever the connection is lost. While
    there is none, `hit` and `peek` raise Unavailable at once. A hit whose answer was lost may have been counted.
    """

    is_shared = True
    scope = "all machines that use this Redis"

    def __init__(
        self,
        endpoint: Endpoint,
        database_id: str,
        limit: int,
        window: int,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`database_id` tells whose keys are counted. `clock` is for tests, in the place of Redis's own."""
        self.limit = limit
        self.window = window
        self.trouble: str | None = "it was not asked yet"  # why nothing can be counted now
        self.on_change: Callable[[str | None], None] = lambda _: None  # is told the trouble; None: it counts
        self._endpoint = endpoint
        self._microseconds = window * _MICROSECONDS
        self._prefix = f"listings:{database_id}:limit:"
        self._clock = clock
        self._connection: Connection | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()
        self._lost = asyncio.Event()

    async def hit(self, key_id: int) -> RateLimitDecision:
        """Count one request of the key. Raises Unavailable."""
        return await self._ask(key_id, taken=1)

    async def peek(self, key_id: int) -> RateLimitDecision:
        """Count nothing. Raises Unavailable."""
        return await self._ask(key_id, taken=0)

    async def import_history(self, key_id: int, ages: Sequence[float]) -> None:
        """Count the requests that another limiter has accepted, unless as many count here.

        `ages` are the seconds since each of them, the oldest first. Raises Unavailable.
        """
        connection = self._connection or await self._first_connection()
        kept = [round(age * _MICROSECONDS) for age in ages if age < self.window][-self.limit :]
        now = "" if self._clock is None else round(self._clock() * _MICROSECONDS)
        words = (1, f"{self._prefix}{key_id}", self._microseconds, now, *kept)
        _numbers(connection, await connection.call("EVAL", _TAKE_OVER, *words))

    async def run_maintenance(self) -> None:
        """Nothing is to be done: the connection is kept up from the first request on."""

    async def check(self) -> None:
        """Raises Unavailable unless Redis counts."""
        connection = self._connection or await self._first_connection()
        _numbers(connection, await self._probe(connection))

    async def close(self) -> None:
        """Disconnect."""
        if self._keeper is not None:
            self._keeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeper
        if self._connection is not None:
            self.on_change = lambda _: None
            self._connection.lose("the limiter was closed")

    async def _ask(self, key_id: int, taken: int) -> RateLimitDecision:
        connection = self._connection or await self._first_connection()
        words = self._words(key_id, taken)
        reply = await connection.call("EVALSHA", _DIGEST, *words)
        if isinstance(reply, ErrorReply) and str(reply).startswith("NOSCRIPT"):
            reply = await connection.call("EVAL", _SCRIPT, *words)
        accepted, left, reset = _numbers(connection, reply)
        return RateLimitDecision(accepted == 1, left, reset / _MICROSECONDS)

    def _words(self, key_id: int, taken: int) -> tuple[str | int, ...]:
        """The keys of the script, how many first, and its arguments."""
        words = (1, f"{self._prefix}{key_id}", self.limit, self._microseconds, taken)
        return words if self._clock is None else (*words, round(self._clock() * _MICROSECONDS))

    # The connection

    async def _first_connection(self) -> Connection:
        """The connection, once it was tried to make one. Raises Unavailable where there is none."""
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep_connected())
        await self._tried.wait()
        if self._connection is None:
            raise Unavailable(self.trouble or "the connection was lost")
        return self._connection

    async def _keep_connected(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            self._lost.clear()
            trouble = await self._connect()
            if trouble is None:
                await self._lost.wait()
            else:
                self._note(trouble)
            await asyncio.sleep(began + _RETRY_SECONDS - loop.time())

    async def _connect(self) -> str | None:
        """Returns what went wrong, if anything."""
        allowed = max(_CONNECT_SECONDS, self._endpoint.answer_seconds)
        try:
            async with asyncio.timeout(allowed):
                connection = await connect(self._endpoint, self._on_lost)
                try:
                    _numbers(connection, await self._probe(connection))
                except BaseException:
                    connection.lose("it was never used")
                    raise
        except TimeoutError:
            return f"no answer within {allowed:.0f} s"
        except ErrorReply as error:
            return _told(error)
        except Exception as error:  # noqa: BLE001 - whatever it was, the next attempt may succeed
            return reason_of(error)
        if connection.lost:  # in the moment after the probe
            return connection.lost
        self._connection = connection
        self._note(None)
        return None

    def _probe(self, connection: Connection) -> asyncio.Future[Any]:
        """Count something, on a key of its own: a Redis that answers may still refuse every write."""
        return connection.call("EVAL", _SCRIPT, 1, f"{self._prefix}probe", _MICROSECONDS, _MICROSECONDS, 1)

    def _on_lost(self, reason: str) -> None:
        if self._connection is None:  # it was just being made, and who makes it hears of it
            return
        self._connection = None
        self._note(reason)
        self._lost.set()

    def _note(self, trouble: str | None) -> None:
        changed = not self._tried.is_set() or (trouble is None) != (self.trouble is None)
        self.trouble = trouble
        self._tried.set()
        if changed:
            self.on_change(trouble)


def _numbers(connection: Connection, reply: Any) -> list[int]:  # noqa: ANN401 - whatever Redis answers
    """What the script returns. Raises Unavailable where Redis is here, but not as one that can count."""
    if isinstance(reply, ErrorReply):
        connection.lose(_told(reply))
        raise Unavailable(_told(reply))
    if not isinstance(reply, list):
        connection.lose(NOT_REDIS)
        raise Unavailable(NOT_REDIS)
    return reply


def _told(error: ErrorReply) -> str:
    """Redis's words, without those about the script."""
    return _SCRIPT_ERROR.sub("", _OLD_SCRIPT_ERROR.sub("", str(error)))
