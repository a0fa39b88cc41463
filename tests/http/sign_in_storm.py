"""Sign-ins with wrong passwords from many addresses at once: `python -m tests.http.sign_in_storm PORT COUNT SECONDS`.

The service must trust the proxy 127.0.0.1. Prints how many responses had each status, as JSON.
"""

import asyncio
import json
import os
import re
import sys
from collections import Counter
from urllib.parse import urlencode

_PAGE = b"GET /sign-in HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\nConnection: close\r\n\r\n"
_UNAVAILABLE = 503
_LONGEST_RESPONSE_SECONDS = 30


class Form:
    def __init__(self, page: str) -> None:
        self._cookie = re.findall(r"set-cookie: (listings_form=[^;]+)", page)[0]
        self._token = re.findall(r'name="token" value="([^"]+)"', page)[0]

    def build_request(self, client: int, attempt: int) -> bytes:
        fields = {"token": self._token, "email": f"{client}-{attempt}@example.com", "password": "not the password"}
        body = urlencode(fields).encode()
        lines = (
            *("POST /sign-in HTTP/1.1", "Host: localhost", "Origin: http://localhost", "Accept: text/html"),
            *(f"Cookie: {self._cookie}", f"X-Forwarded-For: 10.{attempt % 250}.{client // 250}.{client % 250 + 1}"),
            *("Content-Type: application/x-www-form-urlencoded", f"Content-Length: {len(body)}"),
        )
        return "\r\n".join((*lines, "", "")).encode() + body


async def fetch(port: int, request: bytes) -> bytes:
    """Send a request on a new connection, and return the response as far as it arrives in one piece."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    async with asyncio.timeout(_LONGEST_RESPONSE_SECONDS):
        response = await reader.readuntil(b"\r\n\r\n")
        response += await reader.read() if request is _PAGE else b""
    writer.transport.abort()
    return response


async def run_clients(port: int, count: int, seconds: float) -> Counter[str]:
    """Sign in with each client until the time is up. After a 503, wait for a second, as Retry-After says."""
    form, statuses = Form((await fetch(port, _PAGE)).decode()), Counter[str]()
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds

    async def run_client(client: int) -> None:
        attempt = 0
        while loop.time() < end:
            attempt += 1
            status = (await fetch(port, form.build_request(client, attempt))).split(b" ", 2)[1].decode()
            statuses[status] += 1
            await asyncio.sleep(int(status) == _UNAVAILABLE)

    await asyncio.gather(*map(run_client, range(count)))
    return statuses


if __name__ == "__main__":
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # so that the clients take no time from the service
    outcome = asyncio.run(run_clients(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
    sys.stdout.write(json.dumps(outcome))
