"""Response cache, invalidated by account revision."""

from collections import OrderedDict

from msgspec.structs import replace

from listings.api.codec import Response
from listings.domain.model import Caller
from listings.service import Services

MAX_BYTES = 16 * 1024 * 1024
_OVERHEAD_BYTES = 1024  # per response in addition to its body, rounded up
WHOLE_LIST = ""


class _Account:
    __slots__ = ("bytes", "responses")

    def __init__(self) -> None:
        self.responses: dict[str, tuple[int, Response]] = {}  # with the revision at which the content was read
        self.bytes = 0


class ResponseCache:
    """Caches responses that show an account's own listings, and compressed documentation (as account 0).

    Every edit raises the account's revision in its own transaction (`Store.get_revisions`). A cached response is
    current if it was read at or after the last revision that changed its content. The least recently used account is
    evicted first.
    """

    def __init__(self, services: Services, max_bytes: int = MAX_BYTES) -> None:
        """`services` shows which responses are current. `max_bytes` limits all together; 0 disables the cache."""
        self._revisions = services.revisions
        self._max_bytes = max_bytes
        self._accounts: OrderedDict[int, _Account] = OrderedDict()
        self.bytes = 0

    async def find_listing(self, caller: Caller, name: str) -> Response | None:
        """Return the response with a listing (`name`: its id) unless a listing of the account has changed since."""
        account_id = caller.account_id
        last_change = self._revisions.get_cached_last_change_revision(caller.bucket, account_id)
        account = self._accounts.get(account_id)
        if last_change is None and account is not None and name in account.responses:
            last_change = await self._revisions.get_last_change_revision(caller.bucket, account_id)
        return self.find(account_id, last_change, name) if last_change is not None else None

    def find(self, account_id: int, since: int, name: str) -> Response | None:
        """Return the response of this name if it was read at revision `since` or later."""
        account = self._accounts.get(account_id)
        if account is None:
            return None
        self._accounts.move_to_end(account_id)
        revision, response = account.responses.get(name, (-1, None))
        return response if revision >= since else None

    def store(self, account_id: int, revision: int, name: str, response: Response) -> Response:
        """Cache a response whose content was read at `revision` or later. Return it with its key."""
        response = replace(response, cache_key=(account_id, revision, name))
        size = _size_of(response)
        account = self._accounts.get(account_id) or _Account()
        self._remove(account, name)
        if account.bytes + size > self._max_bytes // 4:
            self._evict(account_id)  # one account must not evict all others
            account = _Account()
        if size > self._max_bytes // 4:
            return response
        account.responses[name] = (revision, response)
        account.bytes += size
        self.bytes += size
        self._accounts[account_id] = account
        self._accounts.move_to_end(account_id)
        while self.bytes > self._max_bytes:
            self._evict(next(iter(self._accounts)))
        return response

    def close(self) -> None:
        """Remove all responses and stop caching."""
        self._accounts.clear()
        self.bytes = self._max_bytes = 0

    def _remove(self, account: _Account, name: str) -> None:
        _, response = account.responses.pop(name, (0, None))
        if response is not None:
            account.bytes -= _size_of(response)
            self.bytes -= _size_of(response)

    def _evict(self, account_id: int) -> None:
        account = self._accounts.pop(account_id, None)
        if account is not None:
            self.bytes -= account.bytes


def _size_of(response: Response) -> int:
    return len(response.body) + _OVERHEAD_BYTES
