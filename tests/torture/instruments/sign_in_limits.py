"""Limits of sign-ins: attackers on many networks guess passwords, and never keep an owner out (decision G38)."""

from collections.abc import Callable
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path
from random import Random
from typing import NamedTuple

from listings.service.members.sessions import Sessions
from tests.harness import Harness
from tests.postgres_server import PostgresServer
from tests.site.tab import FORM_HEADERS, PASSWORD, Tab, open_harness
from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.instruments.authorization import silence_warnings

ATTEMPTS = 4000  # on each engine
_NETWORKS = 30
_EMAILS = ("alice@example.com", "nobody@example.com")
_QUARTER, _HOUR = 15 * 60, 3600
_MAX_IN_QUARTER, _MAX_OF_NETWORK_IN_QUARTER, _MAX_IN_HOUR = 20, 60, 200
"""Twice the limits of G38, because a period begins with the first attempt in it."""
_MAX_WRONG_IN_BROWSER = 9
_SHARE_OF_OWNER = 0.1
_MAX_PAUSE_SECONDS = 60


class Guess(NamedTuple):
    """A wrong password that the service has checked."""

    at: float
    network: str
    email: str


class SignIns:
    """An owner with a browser, and attackers."""

    def __init__(self, harness: Harness, random: Random) -> None:
        self.failures: list[str] = []
        self.guesses: list[Guess] = []
        self.attempts = self.rejected = 0
        self._harness = harness
        self._random = random
        self._owner = Tab(harness).get("/sign-up")
        self._owner.post("/sign-up", name="Alice", email=_EMAILS[0], password=PASSWORD).follow()
        self._wrong_at: list[float] = []

    def work(self, attempts: int) -> None:
        """Make attempts at random times."""
        for _ in range(attempts):
            if self._random.random() < _SHARE_OF_OWNER:
                self._sign_in_as_owner()
            else:
                self._guess()
            if self._random.random() < _SHARE_OF_OWNER:
                self._harness.clock.advance(self._random.randint(1, _MAX_PAUSE_SECONDS))
        self._check_counts()

    def _sign_in_as_owner(self) -> None:
        """Sign in in the owner's browser, sometimes with a wrong password, from a network that attackers may use."""
        now, network = self._harness.clock(), self._choose_network()
        self._wrong_at = [at for at in self._wrong_at if now - at < 2 * _QUARTER]
        is_wrong = len(self._wrong_at) < _MAX_WRONG_IN_BROWSER and self._random.random() < 1 / 3
        self._owner.get("/console/account").post("/sign-out")
        status = self._submit(self._owner, network, _EMAILS[0], "wrong password" if is_wrong else PASSWORD)
        if is_wrong:
            self._wrong_at.append(now)
        expected = HTTPStatus.FORBIDDEN if is_wrong else HTTPStatus.SEE_OTHER
        if status != expected:
            self.failures.append(f"the owner's browser got {status} instead of {expected.value}")

    def _guess(self) -> None:
        network, email = self._choose_network(), self._random.choice(_EMAILS)
        tab = Tab(self._harness)
        status = self._submit(tab, network, email, "wrong password")
        if status == HTTPStatus.FORBIDDEN:
            self.guesses.append(Guess(self._harness.clock(), network, email))
        elif status == HTTPStatus.TOO_MANY_REQUESTS:
            self.rejected += 1
            seconds = tab.reply.headers.get("retry-after", "")
            if not (seconds.isdecimal() and 1 <= int(seconds) <= _HOUR):
                self.failures.append(f"Retry-After is {seconds!r}")
        else:
            self.failures.append(f"a wrong password got {status}")

    def _submit(self, tab: Tab, network: str, email: str, password: str) -> int:
        self.attempts += 1
        tab.get("/sign-in", X_Forwarded_For=network)
        tab.post("/sign-in", FORM_HEADERS | {"X-Forwarded-For": network}, email=email, password=password)
        return tab.reply.status

    def _choose_network(self) -> str:
        number = self._random.randrange(_NETWORKS)
        if number % 2:
            return f"192.0.2.{number}"
        return f"2001:db8:0:{number:x}::{self._random.randrange(1 << 16):x}"  # addresses of one network

    def _check_counts(self) -> None:
        for name, seconds, most, belongs in (
            ("on an account from a network", _QUARTER, _MAX_IN_QUARTER, lambda it: (_get_network(it), it.email)),
            ("from a network", _QUARTER, _MAX_OF_NETWORK_IN_QUARTER, _get_network),
            ("on an account", _HOUR, _MAX_IN_HOUR, lambda it: it.email),
        ):
            found = _find_most(self.guesses, seconds, belongs)
            if found > most:
                self.failures.append(f"{found} guesses {name} in {seconds // 60} minutes")


def _get_network(guess: Guess) -> str:
    return guess.network.partition("::")[0]


def _find_most(guesses: list[Guess], seconds: float, belongs: Callable[[Guess], object]) -> int:
    """Return the largest number of guesses that belong together in any period of this length."""
    groups: dict[object, list[float]] = {}
    for guess in guesses:
        groups.setdefault(belongs(guess), []).append(guess.at)
    return max(
        (sum(start <= at < start + seconds for at in times) for times in groups.values() for start in set(times)),
        default=0,
    )


def work(folder: Path, attempts: int, database: str | None = None) -> SignIns:
    """Make attempts on one engine; `database` is a URL."""
    folder.mkdir()
    flags = {"database": database} if database is not None else {}
    with silence_warnings(), open_harness(folder, trusted_proxies="127.0.0.1", **flags) as harness:
        sign_ins = SignIns(harness, Random(1))
        sign_ins.work(attempts)
        return sign_ins


def run(scale: Scale) -> Outcome:
    """Make attempts on both engines."""
    attempts = scale.amount(ATTEMPTS)
    on_sqlite = work(scale.folder / "sqlite", attempts)
    with ExitStack() as stack:
        url = stack.enter_context(stack.enter_context(PostgresServer()).database())
        on_postgres = work(scale.folder / "postgres", attempts, url)
    both = (("SQLite", on_sqlite), ("PostgreSQL", on_postgres))
    failures = [f"{name}: {failure}" for name, one in both for failure in one.failures]
    summary = "; ".join(f"{name}: {one.attempts:,} attempts, {one.rejected:,} rejected" for name, one in both)
    return Outcome(summary, failures, attempts >= ATTEMPTS)


def control(scale: Scale) -> Outcome:
    """Count the attempts of the owner's browser like those of others."""
    original = Sessions._choose_limits  # noqa: SLF001 - the injected fault

    async def choose(self: Sessions, email: str, address: str, device: str) -> object:  # noqa: ARG001 - not needed
        return await original(self, email, address, "")

    Sessions._choose_limits = choose  # type: ignore[assignment, method-assign]  # noqa: SLF001 - as above
    try:
        failures = work(scale.folder / "control", scale.amount(ATTEMPTS)).failures
    finally:
        Sessions._choose_limits = original  # type: ignore[method-assign]  # noqa: SLF001 - as above
    return Outcome("no count for the owner's browser", failures)


INSTRUMENT = Instrument(
    19,
    "limits of sign-ins: attackers on 30 networks, and the owner's browser",
    "4,000 attempts on each engine: no more guesses than G38 permits, the owner never kept out, every 429 with"
    " Retry-After",
    0.5,
    run,
    control,
    short_fraction=0.1,
)
