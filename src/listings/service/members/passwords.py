"""Validate passwords, and hash and verify them with argon2id in a separate thread."""

import asyncio
import os
import secrets
import unicodedata
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from listings.domain.errors import Problem, Unavailable
from listings.queues import FairQueue

if TYPE_CHECKING:  # imported on first use, because few commands need it
    from argon2 import PasswordHasher

T = TypeVar("T")

MIN_LENGTH = 10  # characters
MAX_BYTES = 1024  # of UTF-8
_NICENESS = 10  # a tenth of the event loop's CPU time; with a higher value, sign-ins would stop on a busy machine
_MAX_PENDING = 256  # hashes, each of which takes about 20 ms
_MAX_PENDING_OF_OWNER = 64
_MIN_DISTINCT_CHARACTERS = 4


class Cost(NamedTuple):
    """The cost of a hash. The defaults are from OWASP's Password Storage Cheat Sheet."""

    kibibytes: int = 19 * 1024
    passes: int = 2
    lanes: int = 1


def validate_password(password: str, *others: str) -> None:
    """Raise Problem("invalid_request") for a password that is too short, too long or easy to guess.

    `others` are texts known about the owner, such as the email; the password must not equal one of them.
    """
    if len(password) < MIN_LENGTH:
        raise Problem("invalid_request", f"A password must have at least {MIN_LENGTH} characters, got {len(password)}")
    size = len(password.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        raise Problem("invalid_request", f"A password must have at most {MAX_BYTES} bytes, got {size}")
    if any("\ud800" <= character <= "\udfff" for character in password):
        raise Problem("invalid_request", "A password must not contain an unpaired surrogate")
    plain = password.casefold().strip()
    if (
        plain in _load_common_passwords()
        or len(set(plain)) < _MIN_DISTINCT_CHARACTERS
        or plain in {other.casefold().strip() for other in others}
    ):
        raise Problem("invalid_request", "That password is too easy to guess: choose another one")


@cache
def _load_common_passwords() -> frozenset[str]:
    text = files("listings.service.members").joinpath("common_passwords.txt").read_text("ascii")
    return frozenset(line for line in text.splitlines() if not line.startswith("#"))


class Passwords:
    """Hashes and verifies passwords, one at a time, so that a flood of sign-ins can't exhaust memory or CPUs.

    The thread has a low priority, so that requests run first. Owners, such as networks or accounts, take turns.
    """

    def __init__(self, cost: Cost = Cost()) -> None:  # noqa: B008 - it is immutable
        """`verify` replaces hashes of another cost."""
        self._cost = cost
        self._thread: ThreadPoolExecutor | None = None
        self._queue = FairQueue(max_callers=_MAX_PENDING_OF_OWNER)
        self._pending = 0
        self._admitted = 0
        self._hasher: PasswordHasher | None = None
        self._decoy = ""

    async def hash(self, password: str, owner: Hashable = None) -> str:
        """Return the hash of a password. Raises Unavailable if too many passwords are pending."""
        return await self._run(lambda: self._get_hasher().hash(_encode(password)), owner)

    async def verify(self, stored: str | None, password: str, owner: Hashable = None) -> str | None:
        """Return the hash of a correct password: the stored one, or a new one if its cost is outdated.

        Returns None for a wrong password, and after the same time if there is no stored hash. Raises Unavailable.
        """
        if len(password) > MAX_BYTES:  # normalizing it could stop the process for minutes
            stored, password = None, ""
        return await self._run(lambda: self._verify(stored, password), owner)

    @contextmanager
    def admit(self) -> Iterator[None]:
        """Count a caller that will hash or verify a password. Raises Unavailable if too many callers or hashes wait."""
        _require_capacity(max(self._admitted, self._pending))
        self._admitted += 1
        try:
            yield
        finally:
            self._admitted -= 1

    async def _run(self, work: Callable[[], T], owner: Hashable) -> T:
        _require_capacity(self._pending)
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "listings-passwords", _prepare_thread)
        self._pending += 1
        task = asyncio.create_task(self._run_in_turn(self._thread, work, owner))
        task.add_done_callback(self._record_end)
        return await asyncio.shield(task)  # a cancelled caller does not stop the thread, so it stays counted

    async def _run_in_turn(self, thread: ThreadPoolExecutor, work: Callable[[], T], owner: Hashable) -> T:
        async with self._queue.acquire(owner):
            return await asyncio.get_running_loop().run_in_executor(thread, work)

    def _record_end(self, future: asyncio.Future[T]) -> None:
        self._pending -= 1
        if not future.cancelled():
            future.exception()  # otherwise asyncio logs an error that no caller awaits

    # In the thread

    def _get_hasher(self) -> "PasswordHasher":
        if self._hasher is None:
            from argon2 import PasswordHasher  # noqa: PLC0415 - imported on first use

            kibibytes, passes, lanes = self._cost
            hasher = PasswordHasher(time_cost=passes, memory_cost=kibibytes, parallelism=lanes)
            self._decoy = hasher.hash(secrets.token_bytes(16))
            self._hasher = hasher
        return self._hasher

    def _verify(self, stored: str | None, password: str) -> str | None:
        from argon2.exceptions import InvalidHashError, VerificationError  # noqa: PLC0415 - imported on first use

        hasher = self._get_hasher()
        encoded = _encode(password)
        try:
            hasher.verify(stored or self._decoy, encoded)
        except (InvalidHashError, VerificationError):
            return None
        if stored is None or not hasher.check_needs_rehash(stored):
            return stored
        return hasher.hash(encoded)


def _require_capacity(pending: int) -> None:
    if pending >= _MAX_PENDING:
        raise Unavailable("Too many people are signing in: try again in a moment", for_visitors=True)


def _prepare_thread() -> None:
    import argon2  # noqa: F401, PLC0415 - at full priority, because an import holds the GIL for milliseconds

    with suppress(OSError):  # a sandbox may forbid it
        os.nice(_NICENESS)  # of this thread


def _encode(password: str) -> bytes:
    # Keyboards compose the same characters differently.
    return unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")
