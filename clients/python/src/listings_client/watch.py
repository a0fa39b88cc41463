"""Forward changes to a URL, signed by Standard Webhooks, from the seller's own machine."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import httpx2

from listings_client import credentials, operations
from listings_client.core import choose_delay
from listings_client.errors import ConfigurationError, NoResponseError
from listings_client.records import ChangeSet

SECRET_PREFIX = "whsec_"  # noqa: S105 - not a secret
_TIMEOUT_SECONDS = 20.0
_SUCCESS = range(200, 300)


def parse_secret(text: str) -> bytes:
    """Return the bytes of a secret such as whsec_MfKQ9r8G…. Raises ConfigurationError."""
    try:
        secret = base64.b64decode(text.removeprefix(SECRET_PREFIX), validate=True)
    except ValueError:
        secret = b""
    if not secret:
        raise ConfigurationError("The secret must be whsec_ and base64")
    return secret


def sign(secret: bytes, message_id: str, timestamp: int, body: bytes) -> str:
    """Return the signature of a message (Standard Webhooks, version 1)."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(secret, signed, hashlib.sha256)).decode()


def read_place(path: Path, account: str) -> int | None:
    """Return the id of the last change set that was handled, or None at the first start. Raises ConfigurationError."""
    if not path.exists():
        return None
    try:
        saved = json.loads(path.read_bytes())
        owner, last = saved["account"], int(saved["last"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigurationError(f"{path} is not a file of lst watch: use another one") from None
    if owner != account:
        raise ConfigurationError(f"{path} is the place in the changes of {owner}")
    return last


def write_place(path: Path, account: str, last: int) -> None:
    """Store the id of the last change set that was handled, durably."""
    credentials.write_privately(path, json.dumps({"account": account, "last": last}))


def forward(
    http: httpx2.Client, url: str, secret: bytes, change_set: ChangeSet, on_wait: Callable[[float, str], None]
) -> None:
    """Post a change set until the receiver accepts it. All attempts have the same id."""
    message_id = f"change-{change_set.id}"
    content = {"type": f"listings.{change_set.kind}", "timestamp": change_set.time.isoformat()}
    body = operations.encode({**content, "data": change_set})
    for attempt in count():
        now = int(time.time())
        headers = {
            "Content-Type": "application/json",
            "webhook-id": message_id,
            "webhook-timestamp": str(now),
            "webhook-signature": sign(secret, message_id, now, body),
        }
        try:
            response = http.post(url, content=body, headers=headers, timeout=_TIMEOUT_SECONDS)
        except httpx2.TransportError as error:
            reason = f"{type(error).__name__}: {error}"
        else:
            if response.status_code in _SUCCESS:
                return
            reason = f"the receiver responded with status {response.status_code}"
        delay = choose_delay(NoResponseError(reason), attempt)
        on_wait(delay, reason)
        time.sleep(delay)
