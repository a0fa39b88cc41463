"""Validate passwords, and hash and verify them with argon2id in separate threads."""

import asyncio
import secrets
import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from listings.domain.errors import Problem, Unavailable

if TYPE_CHECKING:  # imported on first use, because few commands need it
    from argon2 import PasswordHasher

T = TypeVar("T")

MIN_LENGTH = 10  # characters
MAX_BYTES = 1024  # of UTF-8
_THREADS = 2
_MAX_PENDING = 32
_MIN_DISTINCT_CHARACTERS = 4
_COMMON_PASSWORDS = """
1029384756 0123456789 1111111111 11111111111 1122334455 1123581321 123123123123 1234512345 123456789a 12345678910
1234567890 1234567891 12345678900 123456789123 1234567890a 123456789q 123456789abc 1234qwerasdf 123qweasdzxc
147258369a 1q2w3e4r5t 1q2w3e4r5t6y 1qaz2wsx3edc 1qazxsw23edc 3rjs1la7qe 9876543210 987654321a a123456789 aa12345678
abc123456789 abcd123456 abcd1234567 abcdefghij abcdefghijkl administrator administrator1 asdf123456 asdfasdfasdf
asdfghjkl1 asdfghjkl123 asdfghjkl; azertyuiop basketball baseball123 blink182182 butterfly1 changeme123 changemenow
chocolate1 christopher computer123 correcthorsebatterystaple dragon1234 football123 footballer hello12345 helloworld
helloworld1 iloveyou12 iloveyou123 iloveyou1234 iloveyouso internet123 letmein123 letmein1234 letmeinnow liverpool1
liverpoolfc manchester metallica1 michelle12 minecraft1 minecraft123 mypassword mypassword1 newpassword newpassword1
p@ssw0rd12 p@ssw0rd123 p@ssword123 pass123456 passpasspass passw0rd12 passw0rd123 password00 password01 password10
password11 password12 password123 password1234 password12345 password2024 password2025 password2026 password123!
password!! passwordpassword princess12 princess123 q1w2e3r4t5 q1w2e3r4t5y6 qazwsxedc1 qazwsxedcrfv qwaszx1234
qwer123456 qwerty1234 qwerty12345 qwerty123456 qwertyqwerty qwertyuiop qwertyuiop1 qwertyuiop123 qwertyuiop[]
qwertyuiopasdfghjkl secret1234 september1 spiderman1 starwars123 sunshine123 superman123 testtest12 testtest123
trustno1234 verysecret welcome123 welcome1234 welcome2024 welcome2025 welcome2026 zaq12wsxcde3 zxcvbnm123 zxcvbnm,./
"""
_COMMON = frozenset(_COMMON_PASSWORDS.split())


class Cost(NamedTuple):
    """The cost of a hash. The defaults are from OWASP's Password Storage Cheat Sheet."""

    kibibytes: int = 19 * 1024
    passes: int = 2
    lanes: int = 1


class PasswordCheck(NamedTuple):
    """Whether a password is correct, and its new hash if the stored one has an outdated cost."""

    is_correct: bool
    new_hash: str | None = None


def validate_password(password: str, *others: str) -> None:
    """Raise Problem("invalid_request") for a password that is too short, too long or easy to guess.

    `others` are known about its owner, such as the email.
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
        plain in _COMMON
        or len(set(plain)) < _MIN_DISTINCT_CHARACTERS
        or plain in {other.casefold().strip() for other in others}
    ):
        raise Problem("invalid_request", "That password is too easy to guess: choose another one")


class Passwords:
    """Hashes and verifies passwords, two at a time, so that a flood of sign-ins can't exhaust memory or CPUs."""

    def __init__(self, cost: Cost = Cost()) -> None:  # noqa: B008 - it is immutable
        """Hashes of another cost are replaced when their password is next verified."""
        self._cost = cost
        self._threads: ThreadPoolExecutor | None = None
        self._pending = 0
        self._hasher: PasswordHasher | None = None
        self._decoy = ""

    async def hash(self, password: str) -> str:
        """Return the hash of a password. Raises Unavailable if too many passwords are pending."""
        return await self._run(lambda: self._get_hasher().hash(_encode(password)))

    async def verify(self, stored: str | None, password: str) -> PasswordCheck:
        """Return whether the password matches the stored hash. Takes as long if there is none. Raises Unavailable."""
        return await self._run(lambda: self._verify(stored, password))

    def require_capacity(self) -> None:
        """Raise Unavailable if too many passwords are pending."""
        if self._pending >= _MAX_PENDING:
            raise Unavailable("Too many people are signing in: try again in a moment")

    async def _run(self, work: Callable[[], T]) -> T:
        self.require_capacity()
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="listings-passwords")
        self._pending += 1
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        future.add_done_callback(self._record_end)
        return await asyncio.shield(future)  # a cancelled caller does not stop the thread, so it stays counted

    def _record_end(self, future: "asyncio.Future[T]") -> None:
        self._pending -= 1
        if not future.cancelled():
            future.exception()  # otherwise asyncio logs an error that no caller awaits

    # In the threads

    def _get_hasher(self) -> "PasswordHasher":
        if self._hasher is None:
            from argon2 import PasswordHasher  # noqa: PLC0415 - imported on first use

            kibibytes, passes, lanes = self._cost
            hasher = PasswordHasher(time_cost=passes, memory_cost=kibibytes, parallelism=lanes)
            self._decoy = hasher.hash(secrets.token_bytes(16))
            self._hasher = hasher
        return self._hasher

    def _verify(self, stored: str | None, password: str) -> PasswordCheck:
        from argon2.exceptions import InvalidHashError, VerificationError  # noqa: PLC0415 - imported on first use

        hasher = self._get_hasher()
        encoded = _encode(password)
        try:
            hasher.verify(stored or self._decoy, encoded)
        except (InvalidHashError, VerificationError):
            return PasswordCheck(is_correct=False)
        if stored is None:
            return PasswordCheck(is_correct=False)
        return PasswordCheck(
            is_correct=True, new_hash=hasher.hash(encoded) if hasher.check_needs_rehash(stored) else None
        )


def _encode(password: str) -> bytes:
    """Normalise a password, because keyboards compose the same characters differently."""
    return unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")
