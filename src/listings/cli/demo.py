"""`serve --demo`: three accounts with a key, a password and listings each, and curl lines to paste."""

import os
import re
import secrets
from pathlib import Path
from typing import Any, NamedTuple

from listings.cli import seed
from listings.cli.demo_listings import ALICE, BOB, CHARLIE
from listings.cli.seed import SeedAccount
from listings.domain import api_keys, fields
from listings.domain.model import Account, Caller, is_plan_active
from listings.service import Service

_LISTINGS = "/api/v1/listings"
_PASSWORD = "CONSOLE_PASSWORD"  # noqa: S105 - in demo.env
_OURS = re.compile(r"[A-Za-z0-9_-]{16}")


class _Person(NamedTuple):
    variable: str  # in demo.env
    role: str
    account: SeedAccount
    listings: tuple[dict[str, Any], ...]


_PEOPLE = (
    _Person("API_KEY", "yours", SeedAccount("Alice's Attic", "alice@demo.example", "2099-12-31"), ALICE),
    _Person(
        "OTHER_API_KEY",
        "another account's",
        SeedAccount("Bob's Tools", "bob@demo.example", "2099-12-31"),
        BOB,
    ),
    _Person(
        "EXPIRED_API_KEY",
        "with an expired plan",
        SeedAccount("Charlie", "charlie@demo.example", "2020-01-01"),
        CHARLIE,
    ),
)


class Demo(NamedTuple):
    """What a demo consists of: the keys by their variables, the console's password, two listings' ids."""

    keys: dict[str, str]
    password: str
    own_listing: int
    other_listing: int


async def prepare(service: Service, folder: Path) -> Demo:
    """Make sure of the demo's accounts, keys and listings; keys and password of an earlier run are kept."""
    known = _read_environment(folder / "demo.env")
    issued: dict[str, str] = {}
    kept = known.get(_PASSWORD, "")
    password = kept if _OURS.fullmatch(kept) else secrets.token_urlsafe(12)
    first: list[int] = []
    for person in _PEOPLE:
        account = await seed.ensure_account(service, person.account)
        await _let_in(service, account, password)
        issued[person.variable], caller = await _key(service, account, known.get(person.variable))
        first.append(await _first_listing(service, caller, person))
    return Demo(issued, password, first[0], first[1])


def write_environment(demo: Demo, base_url: str, folder: Path) -> Path:
    """Write `demo.env`, for its owner alone, whole or not at all."""
    path = folder / "demo.env"
    values = {"BASE_URL": base_url, **demo.keys, _PASSWORD: demo.password}
    text = "".join(f"export {name}={value}\n" for name, value in values.items())
    draft = folder / "demo.env.new"
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:  # noqa: PTH123 - a descriptor with its mode
        file.write(text)
    draft.replace(path)
    return path


def banner(demo: Demo, base_url: str, database: str, environment: Path) -> str:
    """Return what the demo prints once the service accepts requests; the curl lines work as pasted."""
    key = demo.keys["API_KEY"]
    url = base_url + _LISTINGS
    curl = "curl -sw '\\n%{http_code}\\n'"
    body = '{"title": "Road bike", "content": "Alloy frame, 56 cm, ridden twice.", "price": 450}'
    lines = [
        f"Listings answers at {base_url}",
        f"Console: sign in at {base_url}/sign-in as {_PEOPLE[0].account.email}",
        f"{_PASSWORD:<16} {demo.password}  (for all three accounts)",
        *(f"{person.variable:<16} {demo.keys[person.variable]}  ({person.role})" for person in _PEOPLE),
        "",
        "# list your listings: 200",
        f"{curl} '{url}' -H 'X-API-Key: {key}'",
        "# create one: 201",
        f"{curl} '{url}' -H 'X-API-Key: {key}' -H 'Content-Type: application/json' -d '{body}'",
        "# read one: 200",
        f"{curl} '{url}/{demo.own_listing}' -H 'Authorization: Bearer {key}'",
        "",
        f"Data: {database}",
        f"Keys and password: . {environment.absolute()}",
        "Stop: Ctrl+C. Start over: make clean-data. Log every request: serve --demo --verbose.",
    ]
    return "\n".join(lines)


async def _let_in(service: Service, account: Account, password: str) -> None:
    """Make sure that the account's owner gets into the console with this password."""
    if account.disabled_at is not None:
        return
    stored = await service.store.get_password(account.id)
    if not (await service.passwords.verify(stored, password)).is_correct:
        token = await service.accept_invitation(await service.invite(str(account.id)), password)
        await service.sign_out(token)


async def _key(service: Service, account: Account, known: str | None) -> tuple[str, Caller]:
    """The account's key: the known one while it is good, a new one otherwise."""
    if known is not None and api_keys.is_well_formed(known):
        caller = await service.find_key(known)
        if caller is None:
            await service.add_key(account, "demo", known)
            caller = await service.find_key(known)
        if caller is not None and caller.account_id == account.id and _is_good(service, caller):
            return known, caller
    issued = await service.add_key(account, "demo", api_keys.generate())
    return await _key(service, account, issued.secret)


def _is_good(service: Service, caller: Caller) -> bool:
    return caller.key_revoked_at is None and (
        caller.key_expires_at is None or is_plan_active(caller.key_expires_at, service.clock())
    )


async def _first_listing(service: Service, caller: Caller, person: _Person) -> int:
    """The id of the account's oldest listing; an account without any gets all of the demo's."""
    found = await service.list_listings(caller)
    if found:
        return found[-1].id
    ids = []
    for listing in person.listings:
        new, _ = fields.parse_new_listing(listing, strict=True)
        ids.append((await service.create_listing(caller, new)).listing_id)
    return ids[0]


def _read_environment(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    lines = (line.removeprefix("export ").partition("=") for line in path.read_text("utf-8", "replace").splitlines())
    return {name: value for name, _, value in lines}
