"""lst watch: nothing is lost, repetitions have the same id, and messages are signed by Standard Webhooks."""

import base64
import hashlib
import hmac
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import Queue
from typing import Any, NamedTuple

import pytest

from listings_client import watch
from tests.cli.commands import DEADLINE, clean_environment
from tests.client.lst import Lst

SECRET = b"0123456789abcdef01234567"
SECRET_TEXT = "whsec_" + base64.b64encode(SECRET).decode()


class Message(NamedTuple):
    id: str
    content: Any
    status: int


class Receiver:
    """Receives messages, checks their signatures, and responds with the next prepared status, otherwise 204."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.messages: Queue[Message] = Queue()
        self.faults: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.receive(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def receive(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers["content-length"])
        body = handler.rfile.read(length)
        if len(body) < length:
            return  # the sender was killed
        head = f"{handler.headers['webhook-id']}.{handler.headers['webhook-timestamp']}.".encode()
        expected = base64.b64encode(hmac.new(SECRET, head + body, hashlib.sha256).digest()).decode()
        if handler.headers["webhook-signature"] != f"v1,{expected}":
            self.faults.append("wrong signature")
        status = self.statuses.pop(0) if self.statuses else 204
        handler.send_response(status)
        handler.end_headers()
        self.messages.put(Message(handler.headers["webhook-id"], json.loads(body), status))

    def wait(self) -> Message:
        return self.messages.get(timeout=DEADLINE)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        assert self.faults == []


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    running = Receiver()
    yield running
    running.close()


@contextmanager
def watching(lst: Lst, *options: str | Path) -> Iterator["subprocess.Popen[str]"]:
    """Run lst watch in a process of its own until the end of the block, which kills it."""
    process = subprocess.Popen(
        [sys.executable, "-c", "from listings_client.cli import main; main()", "--json", "watch", *map(str, options)],
        env={**clean_environment(), **lst.environment},
        cwd=lst.folder,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=DEADLINE)


def create(lst: Lst, external_id: str) -> None:
    with lst.connect() as client:
        client.create(title="Lamp", content="Brass.", price=5, external_id=external_id)


def list_options(lst: Lst, receiver: Receiver) -> list[str | Path]:
    secret = lst.folder / "secret"
    secret.write_text(SECRET_TEXT + "\n", "utf-8")
    return ["--forward", receiver.url, "--secret-file", secret, "--place", lst.folder / "place.json"]


def start_at_now(lst: Lst, place: Path) -> None:
    """Write the place of a watch that has seen all changes until now."""
    with lst.connect() as client:
        watch.write_place(place, client.account(), client.last_change())


def test_changes_are_printed_as_they_happen(lst: Lst) -> None:
    start_at_now(lst, lst.folder / "watch.json")
    with watching(lst) as process:
        create(lst, "a")
        assert process.stdout is not None
        change_set = json.loads(process.stdout.readline())
    assert (change_set["kind"], change_set["changes"][0]["after"]["price"]) == ("created", 5.0)


def test_a_message_is_repeated_with_its_id_until_it_is_accepted(lst: Lst, receiver: Receiver) -> None:
    start_at_now(lst, lst.folder / "place.json")
    receiver.statuses = [500, 302, 410]
    with watching(lst, *list_options(lst, receiver)):
        create(lst, "a")
        messages = [receiver.wait() for _ in range(4)]
        create(lst, "b")
        second = receiver.wait()
    assert [message.status for message in messages] == [500, 302, 410, 204]
    assert len({message.id for message in messages}) == 1
    assert messages[0].content == messages[3].content
    assert messages[0].content["type"] == "listings.created"
    assert second.content["data"]["changes"][0]["external_id"] == "b"
    assert second.id != messages[0].id


def test_after_a_kill_nothing_is_missing(lst: Lst, receiver: Receiver) -> None:
    options = list_options(lst, receiver)
    start_at_now(lst, lst.folder / "place.json")
    received: dict[str, Any] = {}
    for number in range(6):
        create(lst, f"{number}a")
        create(lst, f"{number}b")
        with watching(lst, *options):
            message = receiver.wait()  # killed just after the receiver has it
            received.setdefault(message.id, message.content)
            assert received[message.id] == message.content
    with watching(lst, *options):
        create(lst, "last")
        while not received or "last" not in str(list(received.values())[-1]):
            message = receiver.wait()
            assert received.setdefault(message.id, message.content) == message.content
    names = [content["data"]["changes"][0]["external_id"] for content in received.values()]
    assert names == [*(f"{number}{letter}" for number in range(6) for letter in "ab"), "last"]


def test_the_place_belongs_to_a_service(lst: Lst) -> None:
    for text in ("", "[]", '{"service": "a", "last": 5}'):
        lst.write(text, "place.json")
        assert "is not a file of lst watch" in lst.fail(1, "watch", "--place", lst.folder / "place.json")
    watch.write_place(lst.folder / "place.json", "test https://a.example", 5)
    message = lst.fail(1, "watch", "--place", lst.folder / "place.json")
    assert message.endswith("is the place in the changes of test https://a.example\n")


def test_forwarding_needs_a_valid_secret(lst: Lst) -> None:
    assert "--forward needs --secret-file" in lst.fail(2, "watch", "--forward", "http://127.0.0.1:1")
    for text in ("whsec_", "whsec_ü", "x"):
        file = lst.write(text, "secret")
        assert "must be whsec_ and base64" in lst.fail(1, "watch", "--forward", "http://a", "--secret-file", file)


def test_the_signature_is_that_of_the_standard() -> None:
    """The example of the specification of Standard Webhooks."""
    secret = watch.parse_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'
    signature = watch.sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
