"""Authorization: every endpoint that needs a key, asked by everybody, in every way, of every kind of listing.

What each cell must answer is worked out here from the decisions, each check in its place (G21); the product is asked
for nothing but which endpoints there are.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeAlias

from listings.api.routes import ROUTES
from listings.domain import api_keys
from listings.domain.model import Caller, Listing, NewListing
from listings.service import Service
from listings.service import listings as rules
from tests.harness import MONTH, Harness, Person, Reply, fetch
from tests.postgres_server import PostgresServer
from tests.torture.instrument import Instrument, Outcome, Scale

CELLS = 600
_MISSING_ID, _OVERFLOW_ID = 10**12 * 1024 + 1, 2**63
_TOGETHER = 100  # listings that are made in one write
_SOON = 10  # seconds

Header: TypeAlias = tuple[bytes, bytes]
Answer: TypeAlias = tuple[int, str]
"""Status and X-Error-Code, which is empty for what succeeds."""

# Decisions. G22, G23: what is no key at all, and what is no good one; G26: what a good one of such an account opens.
NO_KEY, WRONG_KEY = (401, "api_key_required"), (401, "invalid_api_key")
CALLERS: dict[str, Answer | None] = {
    "none": NO_KEY,
    "blank": NO_KEY,
    "unknown": WRONG_KEY,
    "mistyped": WRONG_KEY,
    "malformed": WRONG_KEY,
    "revoked": WRONG_KEY,
    "expired": WRONG_KEY,
    "expired plan": (403, "plan_expired"),
    "disabled account": (403, "account_disabled"),
    "owner": None,
    "stranger": None,
}
# G22: by which headers a key K is sent, beside a good one G; who counts then, or an answer whoever asks.
WAYS: dict[str, str | Answer] = {
    "X-API-Key: K": "K",
    "Authorization: Bearer K": "K",
    "authorization: bEARER  K": "K",
    "X-API-Key: K; Authorization: Bearer K": "K",
    "X-API-Key: K; Authorization: Bearer G": "K",
    "X-API-Key: G; Authorization: Bearer K": "K behind G",
    "X-API-Key: K; X-API-Key: K": "K",
    "Authorization: Basic G": NO_KEY,
    "Cookie: key=G": NO_KEY,
    "X-API-Key: G; X-API-Key: other": WRONG_KEY,
    "Authorization: Bearer G; Authorization: Bearer other": WRONG_KEY,
}
_BLANK_FALLS_BACK = "X-API-Key: K; Authorization: Bearer G"  # G22: white space alone counts as not sent
# G11, G12, G19, G21: what the owner of "own" gets of a listing by reading, changing, deleting it, and by restoring it.
TARGETS: dict[str, tuple[Answer, Answer]] = {
    "own": ((200, ""), (200, "")),
    "foreign": ((403, "not_owner"), (403, "not_owner")),
    "own deleted": ((404, "listing_not_found"), (200, "")),
    "foreign deleted": ((403, "not_owner"), (403, "not_owner")),
    "missing": ((404, "listing_not_found"), (404, "listing_not_found")),
    "overflow": ((404, "listing_not_found"), (404, "listing_not_found")),
    "no id": ((404, "listing_not_found"), (404, "listing_not_found")),
}
_OTHER_SIDE = {"own": "foreign", "foreign": "own", "own deleted": "foreign deleted", "foreign deleted": "own deleted"}
# G14: what a good request to an endpoint gets, and the bodies that it is sent: a good one, and one that is no JSON.
_LISTING, _CHANGE = b'{"title": "Lamp", "content": "Bright."}', b'{"price": 5}'
_BATCH = b'{"operations": [{"op": "create", "listing": {"title": "Lamp", "content": "Bright."}}]}'
_NO_JSON = b'{"price": '
ENDPOINTS: dict[tuple[str, str], tuple[int, Sequence[bytes]]] = {
    ("GET", "/api/v1/listings"): (200, (b"",)),
    ("POST", "/api/v1/listings"): (201, (_LISTING, _NO_JSON)),
    ("POST", "/api/v1/listings/batch"): (200, (_BATCH, _NO_JSON)),
    ("GET", "/api/v1/listings/{id}"): (200, (b"",)),
    ("PUT", "/api/v1/listings/{id}"): (200, (_CHANGE, _NO_JSON)),
    ("PATCH", "/api/v1/listings/{id}"): (200, (_CHANGE, _NO_JSON)),
    ("DELETE", "/api/v1/listings/{id}"): (200, (b"", _NO_JSON)),
    ("POST", "/api/v1/listings/{id}/restore"): (200, (b"", _NO_JSON)),
    ("GET", "/api/v1/rate_limit"): (200, (b"",)),
}
_READS_NO_BODY = {"DELETE", "GET", "HEAD"}  # G20
_CHALLENGES = {  # G23
    "api_key_required": 'Bearer realm="listings"',
    "invalid_api_key": 'Bearer realm="listings", error="invalid_token"',
}


class Cell(NamedTuple):
    """One request of the matrix."""

    method: str
    path: str
    caller: str
    way: str
    target: str  # empty: the endpoint has none
    body: bytes

    @property
    def expected(self) -> Answer:
        """By the decisions, in the order of G21."""
        who = WAYS[self.way]
        if isinstance(who, tuple):
            return who
        caller = self.caller if who == "K" else "owner"
        if caller in {"none", "blank"} and self.way == _BLANK_FALLS_BACK:
            caller = "owner"
        refusal = CALLERS[caller]
        if refusal is not None:
            return refusal
        done = ENDPOINTS["GET" if self.method == "HEAD" else self.method, self.path][0], ""
        if self.target:
            side = self.target if caller == "owner" else _OTHER_SIDE.get(self.target, self.target)
            done = TARGETS[side][self.path.endswith("/restore")]
        if done[1] == "" and self.body == _NO_JSON and not self.reads_no_body:
            return 400, "malformed_json"
        return done

    @property
    def reads_no_body(self) -> bool:
        """Whether a body means nothing."""
        return self.method in _READS_NO_BODY or self.path.endswith("/restore")


class People(NamedTuple):
    """The owner, the stranger, and the secret of each caller."""

    owner: Person
    stranger: Person
    secrets: dict[str, str]


def cells() -> list[Cell]:
    """All; raises KeyError for an endpoint that no decision here is about."""
    return [
        Cell(method, path, caller, way, target, body)
        for path, methods in ROUTES.items()
        for name, endpoint in methods.items()
        if endpoint.needs_key
        for method in (("GET", "HEAD") if name == "GET" else (name,))
        for target in (TARGETS if "{id}" in path else ("",))
        for body in ENDPOINTS[name, path][1]
        for way, who in WAYS.items()
        for caller in (CALLERS if isinstance(who, str) else ("owner",))
    ]


def some(part: float) -> list[Cell]:
    """A part of all cells, by chance, and always the same ones."""
    found = cells()
    return Random(1).sample(found, min(len(found), max(CELLS, round(len(found) * part))))


class Matrix:
    """The cells, asked of a house."""

    def __init__(self, harness: Harness, asked: Sequence[Cell]) -> None:
        self.asked = asked
        self.wrong: dict[Cell, str] = {}
        self._refusals: dict[bytes, Cell] = {}
        self._house = harness
        self._people = harness.run(_people(harness))
        self._targets = {
            name: self._made(name, sum(cell.target == name for cell in asked))
            for name in ("own", "foreign", "own deleted", "foreign deleted")
        }

    def fetch(self) -> None:
        """Each cell once; one that changes something has a listing of its own."""
        for number, cell in enumerate(self.asked):
            target = self._target(cell)
            path = cell.path.replace("{id}", target) + ("/" if number % 3 == 0 else "")
            reply = self._send(cell, path)
            fault = _judge(cell, reply)
            if not fault and cell.expected[1] and cell.target in _OTHER_SIDE:
                fault = self._look(int(target), is_deleted="deleted" in cell.target)
            if fault:
                self.wrong[cell] = fault
            elif cell.expected[1] == "not_owner" and cell.method != "HEAD":
                self._refusals.setdefault(reply.body, cell)
        for cell in list(self._refusals.values())[1:]:
            self.wrong[cell] = "the answer tells more of a foreign listing than that it is one"

    def _send(self, cell: Cell, path: str) -> Reply:
        sent = list(self._headers(cell))
        if cell.body:
            sent.append((b"content-length", b"%d" % len(cell.body)))
        if cell.way.startswith("Cookie"):
            path += f"?api_key={self._people.owner.key}"  # G22: never read
        return self._house.run(fetch(self._house.application, cell.method, path, sent, [cell.body]))

    def _headers(self, cell: Cell) -> Iterator[Header]:
        secret = self._people.secrets[cell.caller]
        for line in cell.way.split("; "):
            name, _, value = line.partition(": ")
            if cell.caller == "none" and "K" in value.split():
                continue
            words = [{"K": secret, "G": self._people.owner.key}.get(word, word) for word in value.split(" ")]
            yield name.lower().encode(), " ".join(words).replace("key=G", f"key={self._people.owner.key}").encode()

    def _target(self, cell: Cell) -> str:
        fixed = {"": "", "missing": str(_MISSING_ID), "overflow": str(_OVERFLOW_ID), "no id": "abc"}
        return fixed[cell.target] if cell.target in fixed else str(self._targets[cell.target].pop())

    def _look(self, listing_id: int, *, is_deleted: bool) -> str:
        """Whether one that was not to be touched is as it was made."""
        listing = self._house.run(self._house.service.find_listing(listing_id))
        untouched = listing.version == (2 if is_deleted else 1) and (listing.deleted_at is not None) == is_deleted
        return "" if untouched else "the listing was changed"

    def _made(self, name: str, count: int) -> list[int]:
        person = self._people.owner if name.startswith("own") else self._people.stranger
        made: list[int] = []
        while len(made) < count:
            made += self._house.run(_make(self._house.service, person, is_deleted="deleted" in name))
        return made


def _judge(cell: Cell, reply: Reply) -> str:
    status, code = cell.expected
    found = reply.status, reply.headers.get("x-error-code", "")
    if found != (status, code):
        return f"{status} {code} expected, got {found[0]} {found[1]}"
    if reply.headers.get("www-authenticate") != _CHALLENGES.get(code):
        return f"the challenge is {reply.headers.get('www-authenticate')}"
    if code and cell.method != "HEAD" and list(reply.json()) != ["error"]:
        return f"the body of an error is {reply.body[:100]!r}"
    return ""


async def _people(harness: Harness) -> People:
    service = harness.service
    owner, stranger, planless, disabled = [
        await _person(harness, name) for name in ("alice", "bob", "charlie", "mallory")
    ]
    revoked = await service.issue_key(str(owner.account.id), "revoked")
    await service.revoke_key(revoked.key.id)
    expired = await service.issue_key(str(owner.account.id), "expired", int(service.clock() + _SOON))
    await service.expire_plan(str(planless.account.id))
    await service.disable_account(str(disabled.account.id))
    harness.clock.advance(_SOON)
    secrets = {
        "none": "",
        "blank": "   ",
        "unknown": api_keys.generate(),
        "mistyped": owner.key[:10] + ("a" if owner.key[10] != "a" else "b") + owner.key[11:],
        "malformed": "short",
        "revoked": revoked.secret,
        "expired": expired.secret,
        "expired plan": planless.key,
        "disabled account": disabled.key,
        "owner": owner.key,
        "stranger": stranger.key,
    }
    return People(owner, stranger, secrets)


async def _person(harness: Harness, name: str) -> Person:
    account = await harness.service.add_account(name, f"{name}@example.com", int(harness.clock() + 12 * MONTH))
    issued = await harness.service.issue_key(str(account.id), "first")
    return Person(account, issued.secret, issued.key.id)


async def _make(service: Service, person: Person, *, is_deleted: bool) -> list[int]:
    caller: Caller = await service.authenticate(person.key)
    new = NewListing(title="Lamp", content="Bright.")
    made: list[int] = []

    def keep(results: Sequence[object]) -> str:
        made.extend(int(str(result)) for result in results)
        return ""

    steps = [service.build_create_step(new) for _ in range(_TOGETHER)]
    await service.run_batch(caller, steps, keep, rules.DEFAULT_WRITE_OPTIONS, atomic=True)
    if is_deleted:
        ends = [service.build_delete_step(caller, listing_id) for listing_id in made]
        await service.run_batch(caller, ends, lambda _: "", rules.DEFAULT_WRITE_OPTIONS, atomic=True)
    return made


def fill(folder: Path, asked: Sequence[Cell], database: str | None = None) -> Matrix:
    """Ask these cells; `database` is an address."""
    folder.mkdir()
    flags = {"database": database} if database is not None else {}
    with quiet(), Harness(folder, rate_limit="0", **flags) as harness:
        matrix = Matrix(harness, asked)
        matrix.fetch()
        return matrix


@contextmanager
def quiet() -> Iterator[None]:
    """Warnings of keys that have ended, by the thousand, are of no interest here."""
    log = logging.getLogger("listings")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def without_owner_check(use: Callable[[], Matrix]) -> Matrix:
    """Fill a matrix while nobody looks whose a listing is."""
    owned = rules._require_owner

    def anybodys(listing: Listing | None, caller: Caller) -> Listing:
        return listing if listing is not None else owned(listing, caller)

    rules._require_owner = anybodys
    try:
        return use()
    finally:
        rules._require_owner = owned


def run(scale: Scale) -> Outcome:
    """All cells on both engines; in a short run some."""
    asked = some(scale.part)
    on_sqlite = fill(scale.folder / "sqlite", asked)
    with ExitStack() as stack:
        url = stack.enter_context(stack.enter_context(PostgresServer()).bare_database())
        on_postgres = fill(scale.folder / "postgres", asked, url)
    faults = [
        f"{name}: {cell}: {fault}"
        for name, matrix in (("SQLite", on_sqlite), ("PostgreSQL", on_postgres))
        for cell, fault in matrix.wrong.items()
    ]
    told = f"{len(on_sqlite.asked):,} combinations on SQLite, {len(on_postgres.asked):,} on PostgreSQL"
    return Outcome(told, faults, len(on_postgres.asked) >= CELLS)


def control(scale: Scale) -> Outcome:
    """Without the owner check just those cells fail that must be 403 for the owner."""
    matrix = without_owner_check(lambda: fill(scale.folder / "control", some(scale.part)))
    wanted = {cell for cell in matrix.asked if cell.expected[1] == "not_owner"}
    if set(matrix.wrong) != wanted:
        return Outcome(f"{len(set(matrix.wrong) ^ wanted)} cells are not as without the owner check")
    faults = [f"{cell}: {fault}" for cell, fault in matrix.wrong.items()]
    return Outcome(f"no owner check: just the {len(wanted):,} cells that need it fail", faults)


INSTRUMENT = Instrument(
    11,
    "authorization: every endpoint, caller, header and listing",
    "600 combinations on each engine, each as specified",
    1,
    run,
    control,
    short=0.2,
)
