"""`serve --demo`: three accounts with keys, passwords and listings, curl commands to paste, and other sellers."""

import asyncio
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from listings.cli import seed
from listings.cli.demo_listings import ALICE, BOB, CHARLIE
from listings.cli.demo_market import SELLERS, DemoSeller
from listings.cli.seed import SeedAccount
from listings.contract.history import OPERATOR
from listings.domain import api_keys, fields
from listings.domain.model import Account, Caller, ListingQuery, bucket_of, is_plan_active
from listings.files import replace_file
from listings.service import Services

MARKET_NAME = "Tāone"

_LISTINGS = "/api/v1/listings"
_PASSWORD = "CONSOLE_PASSWORD"  # noqa: S105 - the variable in demo.env
_FUTURE, _PAST = "2099-12-31", "2020-01-01"
_PASSWORD_FORMAT = re.compile(r"[A-Za-z0-9_-]{16}")


class _DemoAccount(NamedTuple):
    variable: str  # in demo.env
    role: str
    seed: SeedAccount
    listings: tuple[dict[str, Any], ...]


_ACCOUNTS = (
    _DemoAccount("API_KEY", "yours", SeedAccount("Alice's Attic", "alice@demo.example", _FUTURE), ALICE),
    _DemoAccount("OTHER_API_KEY", "another account's", SeedAccount("Bob's Tools", "bob@demo.example", _FUTURE), BOB),
    _DemoAccount(
        "EXPIRED_API_KEY", "with an expired plan", SeedAccount("Charlie", "charlie@demo.example", _PAST), CHARLIE
    ),
)


class Demo(NamedTuple):
    """The demo's keys by variable, the console's password, and the ids of two listings."""

    keys: dict[str, str]
    password: str
    own_listing: int
    other_listing: int


async def prepare(services: Services, folder: Path) -> Demo:
    """Create missing accounts, keys and listings. Keys and password of an earlier run are read from demo.env."""
    saved = _read_environment(folder / "demo.env")
    keys: dict[str, str] = {}
    saved_password = saved.get(_PASSWORD, "")
    password = saved_password if _PASSWORD_FORMAT.fullmatch(saved_password) else secrets.token_urlsafe(12)
    first: list[int] = []
    for demo_account in _ACCOUNTS:
        account = await seed.ensure_account(services, demo_account.seed)
        await _ensure_password(services, account, password)
        keys[demo_account.variable], caller = await _ensure_key(services, account, saved.get(demo_account.variable))
        first.append(await _ensure_listings(services, caller, demo_account.listings))
    await asyncio.gather(*(_ensure_seller(services, seller) for seller in SELLERS))
    return Demo(keys, password, first[0], first[1])


def write_environment(demo: Demo, base_url: str, folder: Path) -> Path:
    """Write `demo.env` atomically and readable only by its owner. Return its path."""
    path = folder / "demo.env"
    values = {"BASE_URL": base_url, **demo.keys, _PASSWORD: demo.password}
    text = "".join(f"export {name}={value}\n" for name, value in values.items())
    with replace_file(path) as file:
        file.write(text.encode())
    return path


def banner(demo: Demo, base_url: str, database: str, environment: Path) -> str:
    """Return the text that the demo prints once the service accepts requests. Its curl commands work as pasted."""
    key = demo.keys["API_KEY"]
    url = base_url + _LISTINGS
    curl = "curl -sw '\\n%{http_code}\\n'"
    body = '{"title": "Road bike", "content": "Alloy frame, 56 cm, ridden twice.", "price": 450}'
    lines = [
        f"Listings is running at {base_url}",
        f"Console: sign in at {base_url}/sign-in as {_ACCOUNTS[0].seed.email}",
        f"{_PASSWORD:<16} {demo.password}  (for all three accounts)",
        *(f"{one.variable:<16} {demo.keys[one.variable]}  ({one.role})" for one in _ACCOUNTS),
        "",
        "# list your listings: 200",
        f"{curl} '{url}' -H 'X-API-Key: {key}'",
        "# create one: 201",
        f"{curl} '{url}' -H 'X-API-Key: {key}' -H 'Content-Type: application/json' -d '{body}'",
        "# read one: 200",
        f"{curl} '{url}/{demo.own_listing}' -H 'Authorization: Bearer {key}'",
        "",
        f"Database: {database}",
        f"Load keys and password into your shell: . {environment.absolute()}",
        "Stop: Ctrl+C. Start over: make clean-data. Log every request: serve --demo --verbose.",
    ]
    return "\n".join(lines)


async def _ensure_password(services: Services, account: Account, password: str) -> None:
    """Set the password of the account's owner, unless it is set already."""
    if account.disabled_at is not None:
        return
    if not await services.sessions.is_password_correct(account, password):
        token = await services.invitations.accept(await services.invitations.create(str(account.id)), password)
        await services.sessions.sign_out(token)


async def _ensure_key(services: Services, account: Account, saved: str | None) -> tuple[str, Caller]:
    """Return the saved key if it is usable, or create a key."""
    if saved is not None and api_keys.is_well_formed(saved):
        caller = await services.keys.find(saved)
        if caller is None:
            await services.keys.add(account, "demo", saved)
            caller = await services.keys.find(saved)
        if caller is not None and caller.account_id == account.id and _is_usable(services, caller):
            return saved, caller
    issued = await services.keys.add(account, "demo", api_keys.generate())
    return await _ensure_key(services, account, issued.secret)


def _is_usable(services: Services, caller: Caller) -> bool:
    return caller.key_revoked_at is None and (
        caller.key_expires_at is None or is_plan_active(caller.key_expires_at, services.clock())
    )


async def _ensure_seller(services: Services, seller: DemoSeller) -> None:
    """Create another seller of the market, with neither a key nor a password."""
    account = await seed.ensure_account(services, SeedAccount(seller.name, seller.email, _FUTURE))
    if account.public_contact != seller.contact:
        await services.accounts.set_public_contact(account, seller.contact)
    caller = Caller(OPERATOR, account.id, bucket_of(account.id), account.plan_expires_at, None, None, None, "write")
    await _ensure_listings(services, caller, seller.listings)


async def _ensure_listings(services: Services, caller: Caller, listings: Sequence[dict[str, Any]]) -> int:
    """Create the demo's listings if the account has none. Return the id of the account's oldest listing."""
    existing = await services.listings.find_summaries(caller, ListingQuery(descending=False, limit=1))
    if existing.listings:
        return existing.listings[0].id
    ids = []
    for listing in listings:
        new, _ = fields.parse_new_listing(listing, strict=False)  # pictures without a host
        ids.append((await services.listings.create(caller, new)).listing_id)
    return ids[0]


def _read_environment(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    lines = (line.removeprefix("export ").partition("=") for line in path.read_text("utf-8", "replace").splitlines())
    return {name: value for name, _, value in lines}
