"""The data of the table of routes: accounts whose pages, lists and files are as large as they can be."""

import base64
import json
import random
import string
import zlib
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import apsw
from pyotp import TOTP

from listings import maintenance, wiring
from listings.domain import api_keys
from listings.domain.model import Account, bucket_of
from listings.service import Services
from listings.service.tokens import create_token
from listings.site import security
from listings.site.assets import asset_url
from tests.harness import cheap_passwords, index_market, load_test_settings
from tests.http.raw import PATH, AsyncConnection
from tests.torture.instruments.expensive_requests import fill
from tests.torture.routes import Route
from tests.torture.services import RestartableService

_PASSWORD = "wide rivers run 7"
_TEXT = "A lamp of brass. " * 300  # 5 kB
_LONG_TEXT = "💡" * 100_000  # 400 kB
_QUOTED_TEXT = "'" * 100_000  # 500 kB in HTML
_TITLE = "'" * 240
_LISTINGS, _LISTINGS_OF_FIRST = 25, 120
_LONG_LISTINGS = 20  # of the first owner
_CHANGES = 6  # of a listing of 400 kB
_BATCHES = 50  # a page of the activity
_REJECTED = 60  # requests
_KEYS, _SESSIONS, _NAME_LENGTH, _AGENT_LENGTH = 19, 40, 90, 200
_FILE_BYTES, _ROW_LENGTH = 1_900_000, 98
_UNPACKED_BYTES = 2 * 1024 * 1024
_VARIANTS = 40  # of a file to import, because the same one again would be a conflict
_NETWORKS = 1_000
_HEADER = "title,content,price\n"
_LISTING, _QUOTED, _DELETED = 1, 2, 3  # serials


class Owner(NamedTuple):
    """An account with a key and a session, and its values of the table of routes."""

    account: Account
    key: str
    values: dict[str, str]


class Data(NamedTuple):
    """Several owners of the same data, one who has everything, and a neighbour who has as much as the several."""

    owners: Sequence[Owner]
    attacker: Owner
    neighbour: Owner

    def list_values(self, route: Route, *, many: bool) -> list[Mapping[str, str]]:
        """Return the values of the requests of one owner, or of many owners in as many networks."""
        values = self.attacker.values
        if not many:
            return [values | {"rows": rows} for rows in _pack_variants()] if "$rows" in route.body else [values]
        if route.caller == "visitor":
            return [values | {"network": f"2001:db8:{number:x}::1"} for number in range(_NETWORKS)]
        return [values | owner.values for owner in self.owners]


async def prepare(folder: Path, owners: int, sitemap: int) -> Data:
    """Create the database in a folder, with `owners` accounts, and one with `sitemap` listings."""
    with RestartableService(folder) as service, cheap_passwords():
        url = service.environment["LISTINGS_DATABASE_URL"]
        settings = load_test_settings(folder, database=url)
        maintenance.migrate_database(settings)
        async with wiring.open_services(settings) as services:
            created = [await _create_owner(services, number) for number in range(owners + 3)]
            attacker, neighbour, seller, *others = created
            await fill(url, seller.account, sitemap, "Small.")
            for owner in (attacker, neighbour, *others):
                await _store_listings(url, owner, _LISTINGS_OF_FIRST if owner is attacker else _LISTINGS)
            with closing(apsw.Connection(url.removeprefix("sqlite:///"))) as connection:
                connection.execute("UPDATE listings SET market_version = 0")
            await index_market(services, settings)
            values = attacker.values | await _fill_account(services, attacker)
        service.start()
        await service.wait_until_ready()
        with closing(AsyncConnection(service.port, attacker.key)) as connection:
            values |= await _act(connection, attacker)
        service.stop()
    values |= _build_files() | {"rows": ""}
    return Data(others, attacker._replace(values=values), neighbour)


async def _create_owner(services: Services, number: int) -> Owner:
    email = f"alice{number}@example.com"
    session = await services.sessions.sign_up(f"Alice {number}", email, _PASSWORD, f"10.0.{number}.1")
    await services.accounts.extend_plan(email, 12)
    member = await services.sessions.find_member(session)
    assert member is not None
    await services.operators.sign_in(member, TOTP((await services.operators.add(email)).secret).now())
    issued = await services.keys.add(member.account, "test", api_keys.generate())
    secret, bucket = create_token(), bucket_of(member.account.id)
    values = {
        "key": issued.secret,
        "key_id": str(issued.key.id),
        "session": session,
        "token": security.form_token(member.csrf_secret),
        "account": str(member.account.id),
        "secret": secret,
        "form": security.form_token(secret),
        "network": "198.51.100.7",
        "script": asset_url("", "htmx.min.js"),
        "style": asset_url("", "console.css"),
        "font": asset_url("", "inter.woff2"),
    }
    serials = {"listing": _LISTING, "quoted": _QUOTED, "deleted": _DELETED}
    values |= {name: str(serial * 1024 + bucket) for name, serial in serials.items()}
    return Owner(member.account, issued.secret, values)


async def _store_listings(url: str, owner: Owner, count: int) -> None:
    """Store the listings of an owner, of whom the first has more long ones."""
    await fill(url, owner.account, count, _TEXT)
    long = _LONG_LISTINGS if count == _LISTINGS_OF_FIRST else _LISTING
    account, bucket = owner.account.id, bucket_of(owner.account.id)
    with closing(apsw.Connection(url.removeprefix("sqlite:///"))) as connection:
        connection.execute("UPDATE listings SET title = title || ? WHERE account_id = ?", (_TITLE, account))
        of_last = "UPDATE listings SET content = ? WHERE account_id = ? AND id < ?"
        connection.execute(of_last, (_LONG_TEXT, account, (long + 1) * 1024 + bucket)).fetchall()
        connection.execute("UPDATE listings SET content = ? WHERE id = ?", (_QUOTED_TEXT, int(owner.values["quoted"])))


async def _fill_account(services: Services, owner: Owner) -> dict[str, str]:
    """Add keys, sessions and an invitation."""
    for number in range(_KEYS):
        await services.keys.add(owner.account, f"{number} {'n' * _NAME_LENGTH}", api_keys.generate())
    for number in range(_SESSIONS):
        await services.sessions.sign_in(owner.account.email, _PASSWORD, f"10.1.{number}.1", "'" * _AGENT_LENGTH)
    await services.accounts.add("Bob", "bob@example.com", None)
    return {"invitation": await services.invitations.create("bob@example.com")}


async def _act(connection: AsyncConnection, owner: Owner) -> dict[str, str]:
    """Change listings many times, so that the histories are long. Return the ids of change sets and a revert."""
    ids = [serial * 1024 + bucket_of(owner.account.id) for serial in range(_LISTING, 1 + _LISTINGS_OF_FIRST)]
    listing = f"{PATH}/{owner.values['listing']}"

    async def send(method: str, path: str, data: object = None) -> dict[str, Any]:
        response = await connection.fetch(method, path, data)
        assert response.status < HTTPStatus.INTERNAL_SERVER_ERROR, response
        answer: dict[str, Any] = response.json()
        return answer

    await send("DELETE", f"{PATH}/{owner.values['deleted']}")
    for number in range(_CHANGES):
        await send("PATCH", listing, {"content": f"{number}{_LONG_TEXT[1:]}"})
    for number in range(_BATCHES):
        changes = {"title": f"{number} {_TITLE}", "price": number, "location": f"{number} {_TITLE}"}
        updates = [{"op": "update", "id": one, "changes": changes} for one in ids[-100:]]
        await send("POST", f"{PATH}/batch", {"operations": updates})
    for number in range(_REJECTED):
        await send("GET", f"{PATH}/{number}{'n' * 200}")
    batch = (await send("GET", f"{PATH}/{ids[-1]}/changes?limit=1"))["last"]
    change = (await send("GET", f"{listing}/changes?limit=1"))["last"]
    revert = (await send("POST", "/api/v1/changes/revert", {"change": change}))["id"]
    updates = [{"op": "update", "id": one, "changes": {"content": "x"}} for one in ids[_LONG_LISTINGS // 2 : 40]]
    return {
        "batch": str(batch),
        "change": str(change - 1),  # the last one is reverted
        "revert": str(revert),
        "updates": ", ".join(map(json.dumps, updates)),
    }


def _build_files() -> dict[str, str]:
    """Return texts for bodies: of JSON, and of files to import."""
    letters = random.Random(1).choices(string.ascii_letters + string.digits, k=_FILE_BYTES)
    rows = ("".join(letters[start : start + _ROW_LENGTH]) for start in range(0, len(letters), _ROW_LENGTH))
    return {
        "long": _LONG_TEXT.encode().decode("latin-1"),
        "file": _HEADER + "".join(f"{row},b,z\n" for row in rows),
        "packed": _pack("a" * _UNPACKED_BYTES),
    }


@cache
def _pack_variants() -> list[str]:
    row = f"{'a' * _ROW_LENGTH},b,z\n"
    rows = row * (_UNPACKED_BYTES // len(row) - 1)
    return [_pack(f"{_HEADER}{number},b,z\n{rows}") for number in range(_VARIANTS)]


def _pack(text: str) -> str:
    return quote(base64.b64encode(zlib.compress(text.encode())).decode())
