"""Passwords: which are good enough, and their argon2id hashes, which are made and checked in threads of their own."""

import asyncio
import secrets
import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from listings.domain.errors import Problem, Unavailable

if TYPE_CHECKING:  # loaded where a password is met: few commands meet one
    from argon2 import PasswordHasher

T = TypeVar("T")

SHORTEST = 10  # characters
LONGEST = 1024  # bytes of UTF-8
_AT_ONCE = 2
_MOST_WAITING = 32
_FEWEST_LETTERS = 4  # that differ
_COMMON_ONES = """
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
_COMMON = frozenset(_COMMON_ONES.split())


class Cost(NamedTuple):
    """What a hash costs who makes it, and who guesses; the defaults are of OWASP's Password Storage Cheat Sheet."""

    kibibytes: int = 19 * 1024
    passes: int = 2
    lanes: int = 1


class Checked(NamedTuple):
    """Whether a password is the right one, and its new hash where the old one is not as hashes are made now."""

    is_right: bool
    better: str | None = None


def require_good(password: str, *others: str) -> None:
    """Raises Problem("invalid_request") for a password that is too short, too long, very common, or one of the others.

    `others` are what anybody knows of its owner, such as the e-mail address.
    """
    if len(password) < SHORTEST:
        raise Problem("invalid_request", f"A password has at least {SHORTEST} characters, got {len(password)}")
    size = len(password.encode("utf-8", "surrogatepass"))
    if size > LONGEST:
        raise Problem("invalid_request", f"A password has at most {LONGEST} bytes, got {size}")
    if any("\ud800" <= letter <= "\udfff" for letter in password):
        raise Problem("invalid_request", "A password must not contain half a surrogate pair")
    plain = password.casefold().strip()
    if plain in _COMMON or len(set(plain)) < _FEWEST_LETTERS or plain in {one.casefold().strip() for one in others}:
        raise Problem("invalid_request", "This password is easily guessed: choose another one")


class Passwords:
    """Makes and checks hashes, few at a time, so that a flood of sign-ins takes neither memory nor processors."""

    def __init__(self, cost: Cost = Cost()) -> None:  # noqa: B008 - it can't be changed
        """A hash of another cost is made anew when its password is next checked."""
        self._cost = cost
        self._threads: ThreadPoolExecutor | None = None
        self._under_way = 0
        self._hasher: PasswordHasher | None = None
        self._decoy = ""

    async def hash(self, password: str) -> str:
        """What is stored of a password. Raises Unavailable when too many wait already."""
        return await self._work(lambda: self._make().hash(_bytes_of(password)))

    async def check(self, stored: str | None, password: str) -> Checked:
        """Whether this is the password of a hash; where there is none it takes as long. Raises Unavailable."""
        return await self._work(lambda: self._check(stored, password))

    def require_room(self) -> None:
        """Raises Unavailable when too many wait already."""
        if self._under_way >= _MOST_WAITING:
            raise Unavailable("Too many people are signing in at once: try again in a moment")

    async def _work(self, work: Callable[[], T]) -> T:
        self.require_room()
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="listings-passwords")
        self._under_way += 1
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        future.add_done_callback(self._note_end)
        return await asyncio.shield(future)  # a thread goes on when nobody waits for it any more, so it counts on

    def _note_end(self, future: "asyncio.Future[T]") -> None:
        self._under_way -= 1
        if not future.cancelled():
            future.exception()

    # In a thread

    def _make(self) -> "PasswordHasher":
        if self._hasher is None:
            from argon2 import PasswordHasher  # noqa: PLC0415 - see above

            kibibytes, passes, lanes = self._cost
            hasher = PasswordHasher(time_cost=passes, memory_cost=kibibytes, parallelism=lanes)
            self._decoy = hasher.hash(secrets.token_bytes(16))
            self._hasher = hasher
        return self._hasher

    def _check(self, stored: str | None, password: str) -> Checked:
        from argon2.exceptions import InvalidHashError, VerificationError  # noqa: PLC0415 - see above

        hasher = self._make()
        text = _bytes_of(password)
        try:
            hasher.verify(stored or self._decoy, text)
        except (InvalidHashError, VerificationError):
            return Checked(is_right=False)
        if stored is None:
            return Checked(is_right=False)
        return Checked(is_right=True, better=hasher.hash(text) if hasher.check_needs_rehash(stored) else None)


def _bytes_of(password: str) -> bytes:
    """The same letters are the same bytes, however a keyboard composes them."""
    return unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")
