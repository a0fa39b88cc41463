"""The console in this process, as a browser without scripts uses it."""

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Self
from urllib.parse import urlencode

from listings.service.passwords import Cost, Passwords
from tests.harness import Harness, Reply
from tests.site.market import PAGE, Reading

PASSWORD = "wide rivers run 7"
FORM = {"content-type": "application/x-www-form-urlencoded", "sec-fetch-site": "same-origin"}


class Tab:
    """A browser's tab: it keeps cookies, and sends forms with what the last page has hidden in them."""

    def __init__(self, harness: Harness, host: str = "localhost:8000") -> None:
        self.harness = harness
        self.host = host
        self.cookies: dict[str, str] = {}
        self.token = ""
        self.reply = Reply(0, {}, b"")

    @property
    def page(self) -> Reading:
        """What was answered last, taken apart."""
        return Reading(self.reply.body.decode())

    @property
    def text(self) -> str:
        """What stands on it."""
        return self.page.text

    def get(self, path: str, /, **headers: str) -> Self:
        """Open a page."""
        return self._ask("GET", path, b"", {name.replace("_", "-"): value for name, value in headers.items()})

    def post(self, path: str, headers: dict[str, str] | None = None, /, **fields: str | list[str]) -> Self:
        """Send a form; its token is the last page's, unless it is given."""
        body = urlencode({"token": self.token, **fields}, doseq=True).encode()
        return self._ask("POST", path, body, FORM if headers is None else headers)

    def upload(self, path: str, name: str, content: bytes, /, **fields: str) -> Self:
        """Send a form with a file."""
        mark = secrets.token_hex(8)
        parts = [
            f'--{mark}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode()
            for key, value in {"token": self.token, **fields}.items()
        ]
        if name:
            head = f'Content-Disposition: form-data; name="file"; filename="{name}"\r\nContent-Type: text/csv\r\n\r\n'
            parts.append(f"--{mark}\r\n{head}".encode() + content + b"\r\n")
        kind = {"content-type": f"multipart/form-data; boundary={mark}", "sec-fetch-site": "same-origin"}
        return self._ask("POST", path, b"".join([*parts, f"--{mark}--\r\n".encode()]), kind)

    def follow(self) -> Self:
        """To where the last answer leads."""
        assert self.reply.status == 303
        return self.get(self.reply.headers["location"])

    def sign_in(self, email: str, password: str = PASSWORD) -> Self:
        """Through the door."""
        self.get("/sign-in")
        return self.post("/sign-in", email=email, password=password)

    def _ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Self:
        cookie = (
            {"cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())} if self.cookies else {}
        )
        self.reply = self.harness.fetch(method, path, body=body, headers=PAGE | {"Host": self.host} | cookie | headers)
        for name, morsel in (item for text in self.reply.cookies for item in SimpleCookie(text).items()):
            if morsel["max-age"] == "0":
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = morsel.value
        found = re.search(rb'name="token" value="([^"]+)"', self.reply.body)
        self.token = found[1].decode() if found is not None else self.token
        return self


@contextmanager
def open_house(folder: Path, **flags: str) -> Iterator[Harness]:
    """A house where everybody may sign up, and hashes cost next to nothing."""
    with Harness(folder, **{"sign_up": "on", **flags}) as harness:
        harness.service.passwords = Passwords(Cost(kibibytes=8, passes=1))
        yield harness


def member(harness: Harness, email: str = "alice@example.com", months: int = 12) -> Tab:
    """Somebody who has signed up, with a plan for so many months."""
    harness.run(harness.service.sign_up("Alice", email, PASSWORD, "192.0.2.1"))
    if months:
        harness.run(harness.service.extend_plan(email, months))
    tab = Tab(harness)
    tab.cookies["listings_session"] = harness.run(harness.service.sign_in(email, PASSWORD, "192.0.2.1"))
    return tab.get("/console/account")
