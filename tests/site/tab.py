"""A browser tab without JavaScript, for tests of the console."""

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

from listings.domain import fields
from listings.domain.model import Listing
from tests.harness import Harness, Reply, cheap_passwords
from tests.site.market import BROWSER_HEADERS, ParsedPage

PASSWORD = "wide rivers run 7"
FORM_HEADERS = {"content-type": "application/x-www-form-urlencoded", "sec-fetch-site": "same-origin"}


class Tab:
    """A browser tab. It stores cookies, and submits forms with the token of the last page."""

    def __init__(self, harness: Harness, host: str = "localhost:8000") -> None:
        self.harness = harness
        self.host = host
        self.cookies: dict[str, str] = {}
        self.token = ""
        self.reply = Reply(0, {}, b"")
        self._parsed: tuple[Reply, ParsedPage] | None = None

    @property
    def page(self) -> ParsedPage:
        if self._parsed is None or self._parsed[0] is not self.reply:
            self._parsed = self.reply, ParsedPage(self.reply.body.decode())
        return self._parsed[1]

    @property
    def text(self) -> str:
        return self.page.text

    def get(self, path: str, /, **headers: str) -> Self:
        return self._fetch("GET", path, b"", {name.replace("_", "-"): value for name, value in headers.items()})

    def post(self, path: str, headers: dict[str, str] | None = None, /, **fields: str | list[str]) -> Self:
        """Submit a form, with the token of the last page unless `fields` has one."""
        body = urlencode({"token": self.token, **fields}, doseq=True).encode()
        return self._fetch("POST", path, body, FORM_HEADERS if headers is None else headers)

    def upload(self, path: str, name: str, content: bytes, /, **fields: str) -> Self:
        return self._upload(path, "file", name, content, fields, {})

    def upload_picture(self, path: str, name: str, content: bytes, /, **fields: str) -> Self:
        """Submit a form with a picture, like a script."""
        return self._upload(path, "picture", name, content, fields, {"Accept": "application/json"})

    def upload_pictures(self, path: str, files: list[tuple[str, bytes]], /, **fields: str) -> Self:
        """Submit a form with several pictures, like a browser without scripts."""
        boundary, disposition = secrets.token_hex(8), "Content-Disposition: form-data; name="
        values = {"token": self.token, **fields}
        parts = [f'{disposition}"{name}"\r\n\r\n{value}'.encode() for name, value in values.items()]
        for name, content in files:
            head = f'{disposition}"pictures"; filename="{name}"\r\nContent-Type: image/jpeg\r\n\r\n'
            parts.append(head.encode() + content)
        body = b"".join(f"--{boundary}\r\n".encode() + part + b"\r\n" for part in parts)
        headers = {"content-type": f"multipart/form-data; boundary={boundary}", "sec-fetch-site": "same-origin"}
        return self._fetch("POST", path, body + f"--{boundary}--\r\n".encode(), headers)

    def _upload(
        self, path: str, field: str, name: str, content: bytes, fields: dict[str, str], accept: dict[str, str]
    ) -> Self:
        boundary = secrets.token_hex(8)
        parts = [
            f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode()
            for key, value in {"token": self.token, **fields}.items()
        ]
        if name:
            head = (
                f'Content-Disposition: form-data; name="{field}"; filename="{name}"\r\nContent-Type: text/csv\r\n\r\n'
            )
            parts.append(f"--{boundary}\r\n{head}".encode() + content + b"\r\n")
        headers = {
            "content-type": f"multipart/form-data; boundary={boundary}",
            "sec-fetch-site": "same-origin",
            **accept,
        }
        return self._fetch("POST", path, b"".join([*parts, f"--{boundary}--\r\n".encode()]), headers)

    def follow(self) -> Self:
        assert self.reply.status == 303
        return self.get(self.reply.headers["location"])

    def sign_in(self, email: str, password: str = PASSWORD) -> Self:
        self.get("/sign-in")
        return self.post("/sign-in", email=email, password=password)

    def _fetch(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Self:
        cookie = (
            {"cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())} if self.cookies else {}
        )
        self.reply = self.harness.fetch(
            method, path, body=body, headers=BROWSER_HEADERS | {"Host": self.host} | cookie | headers
        )
        for name, morsel in (item for text in self.reply.cookies for item in SimpleCookie(text).items()):
            if morsel["max-age"] == "0":
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = morsel.value
        token = re.search(rb'name="token" value="([^"]+)"', self.reply.body)
        self.token = token[1].decode() if token is not None else self.token
        return self


@contextmanager
def open_harness(folder: Path, **flags: str) -> Iterator[Harness]:
    """Open a harness with sign-up open and cheap password hashes."""
    with cheap_passwords(), Harness(folder, **{"sign_up": "on", **flags}) as harness:
        yield harness


def open_console(harness: Harness, email: str = "alice@example.com", months: int = 12) -> Tab:
    """Return the tab of a new member with a plan for `months`."""
    harness.run(harness.services.sessions.sign_up("Alice", email, PASSWORD, "192.0.2.1"))
    if months:
        harness.run(harness.services.accounts.extend_plan(email, months))
    tab = Tab(harness)
    tab.cookies["listings_session"] = harness.run(harness.services.sessions.sign_in(email, PASSWORD, "192.0.2.1"))
    return tab.get("/console/account")


async def _create(harness: Harness, email: str, fields_: dict[str, Any]) -> int:
    account = await harness.services.accounts.find(email)
    key = await harness.services.keys.create(email, "test")
    caller = await harness.services.keys.find(key.secret)
    assert caller is not None
    assert caller.account_id == account.id
    new, _ = fields.parse_new_listing({"title": "Bicycle", "content": "Two wheels.", **fields_})
    return (await harness.services.listings.create(caller, new)).listing_id


def create(harness: Harness, email: str = "alice@example.com", **fields_: Any) -> int:
    return harness.run(_create(harness, email, fields_))


def load_listing(harness: Harness, listing_id: int) -> Listing:
    return harness.run(harness.services.moderation.get(listing_id))


def form_values(tab: Tab) -> dict[str, str]:
    """Return the values of the form's inputs, without checkboxes."""
    return {
        one.attributes["name"] or "": one.attributes.get("value") or ""
        for one in tab.page.all("input")
        if one.attributes.get("name") and one.attributes.get("type") != "checkbox"
    }


def list_titles(tab: Tab) -> list[str]:
    listed = tab.reply.body.decode().split("<tbody>")[-1].split("</tbody>")[0]
    return [part.split("</a>")[0] for part in listed.split('dir="auto">')[1:] if "</a>" in part]
