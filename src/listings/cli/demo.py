"""`serve --demo`: three accounts with keys, passwords and listings, curl commands to paste, and other sellers."""

import asyncio
import re
import secrets
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from listings.cli import demo_history, seed
from listings.cli.seed import SeedAccount
from listings.domain import api_keys, fields
from listings.domain.errors import Problem
from listings.domain.history import OPERATOR
from listings.domain.model import Account, Caller, ListingQuery, Status, bucket_of
from listings.domain.timestamps import DAY_SECONDS
from listings.files import replace_file
from listings.service import Services
from listings.service.keys import is_revoked_or_expired
from listings.service.listings import Listings

SETTINGS = {"market_name": "Tāone", "contact": "help@demo.example"}
"""The demo's settings, unless the environment has others."""

_LISTINGS = "/api/v1/listings"
_PASSWORD = "CONSOLE_PASSWORD"  # noqa: S105 - the variable in demo.env
_FUTURE, _PAST = "2099-12-31", "2020-01-01"
_PASSWORD_FORMAT = re.compile(r"[A-Za-z0-9_-]{16}")


class _Role(NamedTuple):
    variable: str  # in demo.env, of the key
    description: str
    plan_end: str


_ROLES = (
    _Role("API_KEY", "yours", _FUTURE),
    _Role("OTHER_API_KEY", "another account's", _FUTURE),
    _Role("EXPIRED_API_KEY", "with an expired plan", _PAST),
)


class DemoSeller(msgspec.Struct, frozen=True):
    """A seller with listings as in the body of a create."""

    name: str
    email: str
    listings: tuple[dict[str, Any], ...]
    contact: str = ""


class Demo(NamedTuple):
    """The demo's keys by variable, the console's password, and the email address and a listing of the first seller."""

    keys: dict[str, str]
    password: str
    email: str
    listing_id: int | None  # None if all of them are deleted
    rehearses: bool = False  # whether requests may ask for faults


def read_sellers() -> tuple[DemoSeller, ...]:
    """Return the sellers. The first three are Alice, Bob and Charlie, who get a key and a password."""
    content = files("listings.cli").joinpath("demo_market.json").read_bytes()
    return msgspec.json.decode(content, type=tuple[DemoSeller, ...])


async def prepare(services: Services, folder: Path) -> Demo:
    """Create missing accounts, keys and listings. Keys and password of an earlier run are read from demo.env."""
    saved = _read_environment(folder / "demo.env")
    keys: dict[str, str] = {}
    saved_password = saved.get(_PASSWORD, "")
    password = saved_password if _PASSWORD_FORMAT.fullmatch(saved_password) else secrets.token_urlsafe(12)
    sellers = read_sellers()
    first: list[int | None] = []
    start = services.clock() - (demo_history.USAGE_DAYS + 1) * DAY_SECONDS  # before the first request and listing
    with closing(Services(services.revisions, None, _stop_clock(start))) as earlier:
        for seller, role in zip(sellers, _ROLES, strict=False):
            then, account = await _ensure_account(services, earlier, seller, role.plan_end)
            await _ensure_password(then, account, password)
            keys[role.variable], caller = await _ensure_key(then, account, saved.get(role.variable))
            first.append(await _ensure_listings(services, caller, seller.listings))
        await asyncio.gather(*(_ensure_seller(services, earlier, seller) for seller in sellers[len(_ROLES) :]))
    await services.market.stamp()  # so that the first visitor of the market sees them
    return Demo(keys, password, sellers[0].email, first[0])


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
        f"Console: sign in at {base_url}/sign-in as {demo.email}",
        f"{_PASSWORD:<16} {demo.password}  (for all three accounts)",
        *(f"{role.variable:<16} {demo.keys[role.variable]}  ({role.description})" for role in _ROLES),
        "",
        "# list your listings: 200",
        f"{curl} '{url}' -H 'X-API-Key: {key}'",
        "# create one: 201",
        f"{curl} '{url}' -H 'X-API-Key: {key}' -H 'Content-Type: application/json' -d '{body}'",
    ]
    if demo.listing_id is not None:
        lines += ["# read one: 200", f"{curl} '{url}/{demo.listing_id}' -H 'Authorization: Bearer {key}'"]
    if demo.rehearses:
        lines += [
            "# a simulated fault: 503, then 200 if you repeat it",
            f"{curl} '{url}?limit=1' -H 'X-API-Key: {key}' -H 'X-Rehearse: 503;first'",
        ]
    lines += [
        "",
        f"Database: {database}",
        f"Load keys and password into your shell: . {environment.absolute()}",
        "Log every request: start the demo with --verbose, or with make run ARGS=--verbose",
        f"Stop: Ctrl+C. Start over: stop the demo, and delete {environment.absolute()} and "
        + (f"the database {database}" if "://" in str(database) else f"the files {database}*"),
    ]
    return "\n".join(lines)


async def _ensure_account(
    services: Services, earlier: Services, seller: DemoSeller, plan_end: str
) -> tuple[Services, Account]:
    # Returns the service for its keys, too: for a new account, the one whose clock is some weeks behind.
    then = earlier
    with suppress(Problem):
        await services.accounts.find(seller.email)
        then = services
    account = await seed.ensure_account(then, SeedAccount(seller.name, seller.email, plan_end))
    if seller.contact and not account.public_contact:
        await then.accounts.set_public_contact(account, seller.contact)
    return then, account


async def _ensure_password(services: Services, account: Account, password: str) -> None:
    if account.disabled_at is not None:
        return
    if not await services.sessions.is_password_correct(account, password):
        token = await services.invitations.accept(await services.invitations.create(str(account.id)), password)
        await services.sessions.sign_out(token)


async def _ensure_key(services: Services, account: Account, saved: str | None) -> tuple[str, Caller]:
    if saved is not None and api_keys.is_well_formed(saved):
        caller = await services.keys.find(saved)
        if caller is None:
            await services.keys.add(account, "demo", saved)
            caller = await services.keys.find(saved)
        if (
            caller is not None
            and caller.account_id == account.id
            and not is_revoked_or_expired(caller.key_revoked_at, caller.key_expires_at, services.clock())
        ):
            return saved, caller
    issued = await services.keys.add(account, "demo", api_keys.generate())
    return await _ensure_key(services, account, issued.secret)


async def _ensure_seller(services: Services, earlier: Services, seller: DemoSeller) -> None:
    _, account = await _ensure_account(services, earlier, seller, _FUTURE)
    caller = Caller(OPERATOR, account.id, bucket_of(account.id), account.plan_expires_at, None, None, None, "write")
    await _ensure_listings(services, caller, seller.listings)


async def _ensure_listings(services: Services, caller: Caller, listings: Sequence[dict[str, Any]]) -> int | None:
    # Returns the id of the oldest active listing, or else of the oldest paused one, or None if all are deleted.
    statuses: tuple[Status, ...] = ("active", "inactive", "deleted")
    for status in statuses:
        query = ListingQuery(status=status, descending=False, limit=1)
        if found := (await services.listings.find_page_of_any_size(caller, query)).listings:
            return found[0].id if status != "deleted" else None
    ids, now = [], services.clock()
    for number, listing in enumerate(listings):
        age = demo_history.DAYS * DAY_SECONDS * (1 - (number + 1) / (len(listings) + 1)) ** 2
        earlier = Listings(services.revisions, _stop_clock(now - age))
        new, _ = fields.parse_new_listing(listing, strict=False)  # pictures without a host
        ids.append((await earlier.create(caller, new)).listing_id)
    if caller.key_id != OPERATOR:
        await demo_history.add(services, caller, ids)
    return ids[0]


def _stop_clock(moment: float) -> Callable[[], float]:
    return lambda: moment


def _read_environment(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    lines = (line.removeprefix("export ").partition("=") for line in path.read_text("utf-8", "replace").splitlines())
    return {name: value for name, _, value in lines}
