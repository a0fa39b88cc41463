"""What was answered, for as long as nothing in it has changed."""

from collections import OrderedDict

from listings.api.codec import Response

MOST_BYTES = 16 * 1024 * 1024
_OVERHEAD = 1024  # bytes that an answer takes beside its body, and more
WHOLE_LIST = ""


class _Account:
    """The answers of one account, each with the revision as of which it was read."""

    __slots__ = ("answers", "bytes")

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Response]] = {}
        self.bytes = 0


class ResponseCache:
    """Answers that show an account's own listings, with the account's revision.

    Every edit raises the revision in its own transaction (`contract.store.Store`), so whoever has read the revision
    since which nothing in an answer has changed may be given what was kept then, or later. The answers of the account
    that asked least recently go first.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        """`most_bytes`: of all answers together; 0 keeps none."""
        self._most_bytes = most_bytes
        self._accounts: OrderedDict[int, _Account] = OrderedDict()
        self.bytes = 0

    def find(self, account_id: int, since: int, name: str) -> Response | None:
        """The answer of this name, where it was read as of this revision or a later one."""
        kept = self._accounts.get(account_id)
        if kept is None:
            return None
        self._accounts.move_to_end(account_id)
        revision, answer = kept.answers.get(name, (-1, None))
        return answer if revision >= since else None

    def holds(self, account_id: int, name: str) -> bool:
        """Whether there is one of this name, of whatever revision."""
        kept = self._accounts.get(account_id)
        return kept is not None and name in kept.answers

    def keep(self, account_id: int, revision: int, name: str, answer: Response) -> None:
        """Take an answer whose content was read when the revision was, or later, under a name of one's own."""
        size = _size_of(answer)
        kept = self._accounts.get(account_id) or _Account()
        self._remove(kept, name)
        if kept.bytes + size > self._most_bytes // 4:
            self._forget(account_id)  # one account is not to drive out all others
            kept = _Account()
        if size > self._most_bytes // 4:
            return
        kept.answers[name] = (revision, answer)
        kept.bytes += size
        self.bytes += size
        self._accounts[account_id] = kept
        while self.bytes > self._most_bytes:
            self._forget(next(iter(self._accounts)))

    def close(self) -> None:
        """Forget all, and keep nothing any more."""
        self._accounts.clear()
        self.bytes = self._most_bytes = 0

    def _remove(self, kept: _Account, name: str) -> None:
        _, answer = kept.answers.pop(name, (0, None))
        if answer is not None:
            kept.bytes -= _size_of(answer)
            self.bytes -= _size_of(answer)

    def _forget(self, account_id: int) -> None:
        kept = self._accounts.pop(account_id, None)
        if kept is not None:
            self.bytes -= kept.bytes


def _size_of(answer: Response) -> int:
    return len(answer.body) + _OVERHEAD
