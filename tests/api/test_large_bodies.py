"""Large request bodies have a bounded number of values and share the memory (decisions G20 and G31)."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from select import select

import pytest

from listings.api.request import MAX_BODY_BYTES
from listings.domain.errors import Problem
from listings.http.body_files import REQUESTS, BodyFolder
from listings.http.large_bodies import LARGE_BODY_BYTES, MAX_VALUES, LargeBodies, ReceivedBody
from tests.conftest import Client
from tests.harness import TIMEOUT, Cast, Person, RunningService
from tests.http.raw import Connection, request

PATH = "/api/v1/listings"
GOOD = '"title": "Lamp", "content": "Bright."'
TEXT = r"[{,\"\\" * 30_000
BODIES_OF_ACCOUNT = 33  # of two million bytes


def build_body(values: int) -> str:
    """Return a large body with this many values: the object, three strings, an array, and the rest in it."""
    return f'{{{GOOD}, "padding": "{TEXT}", "x": [{", ".join(["1"] * (values - 5))}]}}'


@pytest.mark.decision("G20")
@pytest.mark.parametrize(
    ("body", "status"),
    [
        (build_body(6), 201),
        (build_body(MAX_VALUES), 201),
        (build_body(MAX_VALUES + 1), 400),
        (json.dumps({"title": "Lamp", "content": "Bright.", "x": [[]] * 200_000}), 400),
        (json.dumps({"title": "Lamp", "content": "Bright.", "x": [{"a": ""}] * 100_000}), 400),
        (json.dumps({"title": "Lamp", "content": "Bright."} | {f"x{n}": n for n in range(100_000)}), 400),
    ],
    ids=["text", "most", "one more", "arrays", "objects", "fields"],
)
def test_a_large_body_has_at_most_20000_values(alice: Client, body: str, status: int) -> None:
    response = alice.request("POST", "", content=body.encode())
    assert (len(body) > LARGE_BODY_BYTES, response.status_code) == (True, status)
    if status != 201:
        assert response.headers["x-error-code"] == "invalid_request"
        assert response.json() == {"error": "The body must have at most 20000 values"}


async def decode(bodies: LargeBodies, data: bytes, owner: int = 1) -> bytes:
    body = ReceivedBody(bodies, owner, (data, False))
    try:
        return await bodies.read(body)
    finally:
        body.release()


def test_other_tasks_run_between_two_large_bodies() -> None:
    events: list[str] = []

    async def take(bodies: LargeBodies, name: str) -> None:
        await decode(bodies, b" " * 100_000)
        events.append(name)

    async def tick() -> None:
        while "c" not in events:
            events.append("-")
            await asyncio.sleep(0)

    async def work() -> None:
        bodies = LargeBodies(BodyFolder(None, REQUESTS), 32)
        await asyncio.gather(take(bodies, "a"), take(bodies, "b"), take(bodies, "c"), tick())

    asyncio.run(work())
    order = "".join(events)
    assert [name for name in order if name != "-"] == ["a", "b", "c"]
    assert "-" in order[order.index("a") : order.index("b")]
    assert "-" in order[order.index("b") : order.index("c")]


def test_the_large_bodies_of_accounts_are_decoded_in_turn() -> None:
    turns: list[int] = []

    async def take(bodies: LargeBodies, account_id: int) -> None:
        await decode(bodies, b" " * 100_000, account_id)
        turns.append(account_id)

    async def work() -> None:
        bodies = LargeBodies(BodyFolder(None, REQUESTS), 4)
        await asyncio.gather(*(take(bodies, account_id) for account_id in (1, 1, 1, 2)))

    asyncio.run(work())
    assert turns == [1, 2, 1, 1]


def test_other_tasks_run_while_values_are_counted() -> None:
    async def work() -> int:
        iterations = 0

        async def tick() -> None:
            nonlocal iterations
            while True:
                iterations += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(tick())
        bodies = LargeBodies(BodyFolder(None, REQUESTS), 4)
        with pytest.raises(Problem, match="at most 20000 values"):
            await decode(bodies, b'{"x": ["' + b",[" * 800_000 + b'"' + b",[]" * 100_000 + b"]}")
        task.cancel()
        return iterations

    assert asyncio.run(work()) > 20


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    with RunningService(tmp_path_factory.mktemp("bodies")) as service:
        yield service


@pytest.fixture
def cast(service: RunningService) -> Cast:
    return service.cast()


def begin_upload(service: RunningService, person: Person, body: bytes, *headers: bytes) -> Connection:
    """Send a request but for its last byte, after the service has begun to read the body."""
    sent = request("POST", PATH, person.key, b"Expect: 100-continue", *headers, body=b"" if headers else body)
    head = sent.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    connection = Connection(service).send(head)
    assert connection.socket.recv(1000).startswith(b"HTTP/1.1 100 ")
    return connection.send(body[:-1])


def begin_with_length(service: RunningService, key: str, length: int) -> Connection:
    """Send the head of a request, and return once the service has begun to read the body."""
    head = request("POST", f"{PATH}?dry_run=true", key, b"Expect: 100-continue", b"Content-Length: %d" % length)
    connection = Connection(service).send(head)
    assert connection.socket.recv(1000).startswith(b"HTTP/1.1 100 ")
    return connection


@pytest.mark.decision("G31")
def test_uploads_that_stall_do_not_disturb_other_accounts(service: RunningService, cast: Cast) -> None:
    email = cast.alice.account.email
    keys = [service.run(lambda services: services.keys.create(email, "Key")).secret for _ in range(20)]
    body = f'{{{GOOD}, "padding": "{"x" * 90_000}"}}'.encode()
    with ExitStack() as stack:
        for number in range(100):
            key = keys[number // 4 if number < 16 else number % 20]
            stack.enter_context(begin_with_length(service, key, MAX_BODY_BYTES)).send(b"{")
        for number in range(40):
            stack.enter_context(begin_with_length(service, keys[number % 20], MAX_BODY_BYTES)).send(body)
        for _ in range(3):
            with begin_upload(service, cast.bob, body) as connection:
                assert connection.send(body[-1:]).read_response().status == 201
        with begin_upload(service, cast.alice, body) as connection:
            assert connection.send(body[-1:]).read_response().status == 201


@pytest.mark.decision("G31")
@pytest.mark.parametrize("is_chunked", [False, True], ids=["length", "chunked"])
def test_an_account_may_have_64_mebibytes_of_incomplete_bodies(
    service: RunningService, cast: Cast, *, is_chunked: bool
) -> None:
    body = f'{{{GOOD}, "padding": "{"x" * 2_000_000}"}}'.encode()
    headers = [b"Transfer-Encoding: chunked"] if is_chunked else []
    data = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if is_chunked else body
    with ExitStack() as stack:
        uploads = [
            stack.enter_context(begin_upload(service, cast.alice, data, *headers)) for _ in range(1 + BODIES_OF_ACCOUNT)
        ]
        refused, *_ = select([upload.socket for upload in uploads], [], [], TIMEOUT)[0]
        (upload,) = (upload for upload in uploads if upload.socket is refused)
        response = upload.read_response()
        assert (response.status, response.headers["retry-after"], response.headers["x-error-code"]) == (
            503,
            "1",
            "unavailable",
        )
        assert "Too many large request bodies" in response.json()["error"]
        with begin_upload(service, cast.bob, body) as other:
            assert other.send(body[-1:]).read_response().status == 201
        with Connection(service).send(request("POST", PATH, cast.alice.key, body=f"{{{GOOD}}}".encode())) as small:
            assert small.read_response().status == 201
        uploads.remove(upload)
        assert {upload.send(data[-1:]).read_response().status for upload in uploads} == {201}


def test_a_client_that_leaves_makes_room_for_others(service: RunningService, cast: Cast) -> None:
    body = f'{{{GOOD}, "padding": "{"x" * 2_000_000}"}}'.encode()
    for _ in range(2 * BODIES_OF_ACCOUNT):
        begin_upload(service, cast.alice, body).socket.close()
    for _ in range(1000):
        with begin_upload(service, cast.alice, body) as connection:
            if connection.send(body[-1:]).read_response().status == 201:
                return
    pytest.fail("a client that has left occupies room")


def test_bodies_that_arrive_at_once_wait_for_memory(service: RunningService, cast: Cast) -> None:
    body = f'{{{GOOD}, "padding": "{"x" * 1_900_000}"}}'.encode()
    with ExitStack() as stack:
        uploads = [stack.enter_context(begin_upload(service, cast.alice, body)) for _ in range(20)]
        for upload in uploads:
            upload.send(body[-1:])
        assert {upload.read_response().status for upload in uploads} == {201}
