"""Authorization: every endpoint that needs a key, with every caller, access, header and kind of listing.

The expected response of each cell follows from the decisions, in the order of checks of G21. Only the list of endpoints
comes from the product.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from pathlib import Path
from random import Random
from types import ModuleType
from typing import NamedTuple, TypeAlias, get_args

from listings.api import app
from listings.api.routes import ROUTES
from listings.domain import api_keys
from listings.domain.model import Caller, KeyAccess, NewListing
from listings.service import Services
from listings.service.listings import steps as rules
from tests.harness import MONTH, Harness, Person, Reply, fetch
from tests.postgres_server import PostgresServer
from tests.torture.instrument import Instrument, Outcome, Scale

CELLS = 600
_MISSING_ID, _OVERFLOW_ID = 10**12 * 1024 + 1, 2**63
_BATCH_SIZE = 100  # listings created in one write
_KEY_LIFETIME_SECONDS = 10

Header: TypeAlias = tuple[bytes, bytes]
ExpectedResponse: TypeAlias = tuple[int, str]
"""Status and X-Error-Code, which is empty for a success."""

# Decisions G22 and G23: missing and invalid keys; G26: valid keys of accounts that may not use the API.
NO_KEY, WRONG_KEY = (401, "api_key_required"), (401, "invalid_api_key")
CALLERS: dict[str, ExpectedResponse | None] = {
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
# G44: the access of a caller's key; only the keys of these callers are stored.
ACCESSES: tuple[KeyAccess, ...] = get_args(KeyAccess)
_STORED = {"revoked", "expired", "expired plan", "disabled account", "owner", "stranger"}
_READ_ONLY = (403, "key_not_allowed")
# G22: the headers that carry a key K, next to a valid key G; and which key is used, or the response for any caller.
HEADERS: dict[str, str | ExpectedResponse] = {
    "X-API-Key: K": "K",
    "Authorization: Bearer K": "K",
    "authorization: bEARER  K": "K",
    "X-API-Key: K; Authorization: Bearer K": "K",
    "X-API-Key: K; Authorization: Bearer G": "K",
    "X-API-Key: G; Authorization: Bearer K": "G",
    "X-API-Key: K; X-API-Key: K": "K",
    "Authorization: Basic G": NO_KEY,
    "Cookie: key=G": NO_KEY,
    "X-API-Key: G; X-API-Key: other": WRONG_KEY,
    "Authorization: Bearer G; Authorization: Bearer other": WRONG_KEY,
}
_BLANK_FALLS_BACK = "X-API-Key: K; Authorization: Bearer G"  # G22: a blank header counts as missing
# G11, G12, G19, G21, G45: the responses to the owner of "own": for reading, updating or deleting a listing, and for
# restoring it or reading its changes.
TARGETS: dict[str, tuple[ExpectedResponse, ExpectedResponse]] = {
    "own": ((200, ""), (200, "")),
    "foreign": ((403, "not_owner"), (403, "not_owner")),
    "own deleted": ((404, "listing_not_found"), (200, "")),
    "foreign deleted": ((403, "not_owner"), (403, "not_owner")),
    "missing": ((404, "listing_not_found"), (404, "listing_not_found")),
    "overflow": ((404, "listing_not_found"), (404, "listing_not_found")),
    "no id": ((404, "listing_not_found"), (404, "listing_not_found")),
}
_SEEN_BY_STRANGER = {
    "own": "foreign",
    "foreign": "own",
    "own deleted": "foreign deleted",
    "foreign deleted": "own deleted",
}
# G14: the status of a valid request to an endpoint, and the bodies to send: a valid one, and invalid JSON.
_LISTING, _UPDATE = b'{"title": "Lamp", "content": "Bright."}', b'{"price": 5}'
_BATCH = b'{"operations": [{"op": "create", "listing": {"title": "Lamp", "content": "Bright."}}]}'
_REVERT, _NO_REVERT = b'{"revert": 9000000000}', "change_not_found"
_INVALID_JSON = b'{"price": '
ENDPOINTS: dict[tuple[str, str], tuple[int, Sequence[bytes]]] = {
    ("GET", "/api/v1/listings"): (200, (b"",)),
    ("POST", "/api/v1/listings"): (201, (_LISTING, _INVALID_JSON)),
    ("POST", "/api/v1/listings/batch"): (200, (_BATCH, _INVALID_JSON)),
    ("GET", "/api/v1/listings/{id}"): (200, (b"",)),
    ("PUT", "/api/v1/listings/{id}"): (200, (_UPDATE, _INVALID_JSON)),
    ("PATCH", "/api/v1/listings/{id}"): (200, (_UPDATE, _INVALID_JSON)),
    ("DELETE", "/api/v1/listings/{id}"): (200, (b"", _INVALID_JSON)),
    ("POST", "/api/v1/listings/{id}/restore"): (200, (b"", _INVALID_JSON)),
    ("GET", "/api/v1/listings/{id}/changes"): (200, (b"",)),
    ("GET", "/api/v1/changes"): (200, (b"",)),
    ("POST", "/api/v1/changes/revert"): (404, (_REVERT, _INVALID_JSON)),
    ("GET", "/api/v1/changes/reverts/{id}"): (404, (b"",)),
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
    access: KeyAccess
    headers: str
    target: str  # empty if the endpoint has none
    body: bytes

    @property
    def expected(self) -> ExpectedResponse:
        """Apply the decisions in the order of G21."""
        key_used = HEADERS[self.headers]
        if isinstance(key_used, tuple):
            return key_used
        caller = self.caller if key_used == "K" else "owner"
        if caller in {"none", "blank"} and self.headers == _BLANK_FALLS_BACK:
            caller = "owner"
        rejection = CALLERS[caller]
        if rejection is not None:
            return rejection
        if key_used == "K" and caller == self.caller and self.access == "read" and self.method not in {"GET", "HEAD"}:
            return _READ_ONLY
        status = ENDPOINTS["GET" if self.method == "HEAD" else self.method, self.path][0]
        expected = status, _NO_REVERT if status == HTTPStatus.NOT_FOUND else ""
        if self.target:
            target = self.target if caller == "owner" else _SEEN_BY_STRANGER.get(self.target, self.target)
            expected = TARGETS[target][self.path.endswith(("/restore", "/changes"))]
        if expected[1] in {"", _NO_REVERT} and self.body == _INVALID_JSON and not self.reads_no_body:
            return 400, "malformed_json"
        return expected

    @property
    def reads_no_body(self) -> bool:
        """Return whether the endpoint ignores the body."""
        return self.method in _READS_NO_BODY or self.path.endswith("/restore")


class Callers(NamedTuple):
    """The owner, the stranger, and the secret of each caller and access."""

    owner: Person
    stranger: Person
    secrets: dict[tuple[str, KeyAccess], str]


def build_cells() -> list[Cell]:
    """Build all cells. Raise KeyError for an endpoint that no decision covers."""
    return [
        Cell(method, path, caller, access, headers, target, body)
        for path, methods in ROUTES.items()
        for name, endpoint in methods.items()
        if endpoint.needs_key
        for method in (("GET", "HEAD") if name == "GET" else (name,))
        for target in (TARGETS if "/listings/{id}" in path else ("",))
        for body in ENDPOINTS[name, path][1]
        for headers, key_used in HEADERS.items()
        for caller in (CALLERS if isinstance(key_used, str) else ("owner",))
        for access in (ACCESSES if isinstance(key_used, str) and caller in _STORED else ("write",))
    ]


def sample_cells(fraction: float) -> list[Cell]:
    """Return a random sample of the cells, the same one each time."""
    found = build_cells()
    return Random(1).sample(found, min(len(found), max(CELLS, round(len(found) * fraction))))


class Matrix:
    """The cells and the failures of the application under test."""

    def __init__(self, harness: Harness, cells: Sequence[Cell]) -> None:
        self.cells = cells
        self.failures: dict[Cell, str] = {}
        self._rejections: dict[bytes, Cell] = {}
        self._harness = harness
        self._callers = harness.run(_create_callers(harness))
        self._targets = {
            name: self._create_listings(name, sum(cell.target == name for cell in cells))
            for name in ("own", "foreign", "own deleted", "foreign deleted")
        }

    def fetch(self) -> None:
        """Send each cell once; a cell that may change something has a listing of its own."""
        for number, cell in enumerate(self.cells):
            target = self._get_target_id(cell)
            path = cell.path.replace("{id}", target) + ("/" if number % 3 == 0 else "")
            reply = self._send(cell, path)
            failure = _find_failure(cell, reply)
            if not failure and cell.expected[1] and cell.target in _SEEN_BY_STRANGER:
                failure = self._check_unchanged(int(target), is_deleted="deleted" in cell.target)
            if failure:
                self.failures[cell] = failure
            elif cell.expected[1] == "not_owner" and cell.method != "HEAD":
                self._rejections.setdefault(reply.body, cell)
        for cell in list(self._rejections.values())[1:]:
            self.failures[cell] = "the response reveals more about a foreign listing than that it is foreign"

    def _send(self, cell: Cell, path: str) -> Reply:
        sent = list(self._headers(cell))
        if cell.body:
            sent.append((b"content-length", b"%d" % len(cell.body)))
        if cell.headers.startswith("Cookie"):
            path += f"?api_key={self._callers.owner.key}"  # G22: never read
        return self._harness.run(fetch(self._harness.application, cell.method, path, sent, [cell.body]))

    def _headers(self, cell: Cell) -> Iterator[Header]:
        secret = self._callers.secrets[cell.caller, cell.access]
        for line in cell.headers.split("; "):
            name, _, value = line.partition(": ")
            if cell.caller == "none" and "K" in value.split():
                continue
            parts = [{"K": secret, "G": self._callers.owner.key}.get(part, part) for part in value.split(" ")]
            yield name.lower().encode(), " ".join(parts).replace("key=G", f"key={self._callers.owner.key}").encode()

    def _get_target_id(self, cell: Cell) -> str:
        fixed = {"": "1", "missing": str(_MISSING_ID), "overflow": str(_OVERFLOW_ID), "no id": "abc"}
        return fixed[cell.target] if cell.target in fixed else str(self._targets[cell.target].pop())

    def _check_unchanged(self, listing_id: int, *, is_deleted: bool) -> str:
        """Return a failure if a rejected request changed the listing."""
        listing = self._harness.run(self._harness.services.moderation.get(listing_id))
        unchanged = listing.version == (2 if is_deleted else 1) and (listing.deleted_at is not None) == is_deleted
        return "" if unchanged else "the listing was changed"

    def _create_listings(self, name: str, count: int) -> list[int]:
        person = self._callers.owner if name.startswith("own") else self._callers.stranger
        created: list[int] = []
        while len(created) < count:
            created += self._harness.run(_create_batch(self._harness.services, person, is_deleted="deleted" in name))
        return created


def _find_failure(cell: Cell, reply: Reply) -> str:
    status, code = cell.expected
    found = reply.status, reply.headers.get("x-error-code", "")
    if found != (status, code):
        return f"expected {status} {code}, got {found[0]} {found[1]}"
    if reply.headers.get("www-authenticate") != _CHALLENGES.get(code):
        return f"WWW-Authenticate is {reply.headers.get('www-authenticate')}"
    if code and cell.method != "HEAD" and list(reply.json()) != ["error"]:
        return f"the body of the error is {reply.body[:100]!r}"
    return ""


async def _create_callers(harness: Harness) -> Callers:
    services = harness.services
    owner, stranger, planless, disabled = [
        await _create_person(harness, name) for name in ("alice", "bob", "charlie", "mallory")
    ]
    secrets: dict[tuple[str, KeyAccess], str] = {
        ("none", "write"): "",
        ("blank", "write"): "   ",
        ("unknown", "write"): api_keys.generate(),
        ("mistyped", "write"): owner.key[:10] + ("a" if owner.key[10] != "a" else "b") + owner.key[11:],
        ("malformed", "write"): "short",
    }
    expiry = int(services.clock() + _KEY_LIFETIME_SECONDS)
    for access in ACCESSES:
        for name, person, expires_at in (
            ("revoked", owner, None),
            ("expired", owner, expiry),
            ("expired plan", planless, None),
            ("disabled account", disabled, None),
            ("owner", owner, None),
            ("stranger", stranger, None),
        ):
            issued = await services.keys.create(str(person.account.id), name, expires_at, access=access)
            secrets[name, access] = issued.secret
            if name == "revoked":
                await services.keys.revoke(issued.key.id)
    await services.accounts.expire_plan(str(planless.account.id))
    await services.accounts.disable(str(disabled.account.id))
    harness.clock.advance(_KEY_LIFETIME_SECONDS)
    return Callers(owner, stranger, secrets)


async def _create_person(harness: Harness, name: str) -> Person:
    account = await harness.services.accounts.add(name, f"{name}@example.com", int(harness.clock() + 12 * MONTH))
    issued = await harness.services.keys.create(str(account.id), "first")
    return Person(account, issued.secret, issued.key.id)


async def _create_batch(services: Services, person: Person, *, is_deleted: bool) -> list[int]:
    caller: Caller = await services.access.authenticate(person.key)
    new = NewListing(title="Lamp", content="Bright.")
    steps = [services.listings.steps.create(new) for _ in range(_BATCH_SIZE)]
    outcome = await services.listings.run_batch(caller, steps, str, rules.DEFAULT_WRITE_OPTIONS, atomic=True)
    results = () if isinstance(outcome, str) else outcome.results
    created = [result for result in results if isinstance(result, int)]
    if is_deleted:
        ends = [services.listings.steps.delete(caller, listing_id) for listing_id in created]
        await services.listings.run_batch(caller, ends, str, rules.DEFAULT_WRITE_OPTIONS, atomic=True)
    return created


def run_matrix(folder: Path, cells: Sequence[Cell], database: str | None = None) -> Matrix:
    """Send these cells; `database` is a URL."""
    folder.mkdir()
    flags = {"database": database} if database is not None else {}
    with silence_warnings(), Harness(folder, rate_limit="0", **flags) as harness:
        matrix = Matrix(harness, cells)
        matrix.fetch()
        return matrix


@contextmanager
def silence_warnings() -> Iterator[None]:
    """Suppress thousands of warnings about rejected requests."""
    log = logging.getLogger("listings")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def without_check(module: ModuleType, name: str, run_matrix_once: Callable[[], Matrix]) -> Matrix:
    """Run a matrix while a check of the service, a function of a module, always passes."""
    original = getattr(module, name)

    def skip_check(*checked: object) -> object:
        return checked[0] if checked[0] is not None else original(*checked)

    setattr(module, name, skip_check)
    try:
        return run_matrix_once()
    finally:
        setattr(module, name, original)


def run(scale: Scale) -> Outcome:
    """Run all cells on both engines, or a sample in the short form."""
    cells = sample_cells(scale.fraction)
    on_sqlite = run_matrix(scale.folder / "sqlite", cells)
    with ExitStack() as stack:
        url = stack.enter_context(stack.enter_context(PostgresServer()).database())
        on_postgres = run_matrix(scale.folder / "postgres", cells, url)
    failures = [
        f"{name}: {cell}: {failure}"
        for name, matrix in (("SQLite", on_sqlite), ("PostgreSQL", on_postgres))
        for cell, failure in matrix.failures.items()
    ]
    summary = f"{len(on_sqlite.cells):,} combinations on SQLite, {len(on_postgres.cells):,} on PostgreSQL"
    return Outcome(summary, failures, len(on_postgres.cells) >= CELLS)


def control(scale: Scale) -> Outcome:
    """Skip the check of the owner, then that of the access: only the cells that expect its error must fail."""
    cells, failures = sample_cells(scale.fraction), list[str]()
    for module, name, code in ((rules, "require_own", "not_owner"), (app, "require_write_access", _READ_ONLY[1])):
        folder = scale.folder / code
        matrix = without_check(module, name, lambda folder=folder: run_matrix(folder, cells))  # type: ignore[misc]
        expected_failures = {cell for cell in cells if cell.expected[1] == code}
        if set(matrix.failures) != expected_failures:
            different = len(set(matrix.failures) ^ expected_failures)
            return Outcome(f"without {name}, {different} cells differ from the expected failures")
        failures += [f"{cell}: {failure}" for cell, failure in matrix.failures.items()]
    return Outcome(f"no check of owner or access: only the {len(failures):,} cells that need it fail", failures)


INSTRUMENT = Instrument(
    11,
    "authorization: every endpoint, caller, access, header and listing",
    "600 combinations on each engine, each as specified",
    0.5,
    run,
    control,
    short_fraction=0.2,
)
