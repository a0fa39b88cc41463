"""Large request bodies have a bounded number of values and share the memory (decisions G20 and G31)."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from listings.domain.errors import Problem
from listings.http.large_bodies import LARGE_BODY_BYTES, MAX_VALUES, LargeBodies
from tests.conftest import Client
from tests.harness import Cast, Person, RunningService
from tests.http.raw import Connection, request

PATH = "/api/v1/listings"
GOOD = '"title": "Lamp", "content": "Bright."'
TEXT = r"[{,\"\\" * 30_000
BODIES_PER_KEY = 4  # of two mebibytes


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


def test_other_tasks_run_between_two_large_bodies() -> None:
    events: list[str] = []

    async def take(bodies: LargeBodies, name: str) -> None:
        await bodies.wait_and_check(b"[1]")
        events.append(name)

    async def tick() -> None:
        while "c" not in events:
            events.append("-")
            await asyncio.sleep(0)

    async def work() -> None:
        bodies = LargeBodies()
        await asyncio.gather(take(bodies, "a"), take(bodies, "b"), take(bodies, "c"), tick())

    asyncio.run(work())
    order = "".join(events)
    assert [name for name in order if name != "-"] == ["a", "b", "c"]
    assert "-" in order[order.index("a") : order.index("b")]
    assert "-" in order[order.index("b") : order.index("c")]


def test_other_tasks_run_while_values_are_counted() -> None:
    async def work() -> int:
        iterations = 0

        async def tick() -> None:
            nonlocal iterations
            while True:
                iterations += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(tick())
        with pytest.raises(Problem, match="at most 20000 values"):
            await LargeBodies().wait_and_check(b'{"x": ["' + b",[" * 800_000 + b'"' + b",[]" * 100_000 + b"]}")
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


@pytest.mark.decision("G31")
@pytest.mark.parametrize("is_chunked", [False, True], ids=["length", "chunked"])
def test_a_key_may_send_eight_mebibytes_of_large_bodies_at_once(
    service: RunningService, cast: Cast, *, is_chunked: bool
) -> None:
    body = f'{{{GOOD}, "padding": "{"x" * 2_000_000}"}}'.encode()
    headers = [b"Transfer-Encoding: chunked"] if is_chunked else []
    data = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if is_chunked else body
    with ExitStack() as stack:
        uploads = [
            stack.enter_context(begin_upload(service, cast.alice, data, *headers)) for _ in range(1 + BODIES_PER_KEY)
        ]
        wait_until_full(service, cast.alice, body)
        with Connection(service).send(request("POST", PATH, cast.bob.key, body=body)) as other:
            assert other.read_response().status == 201
        with Connection(service).send(request("POST", PATH, cast.alice.key, body=f"{{{GOOD}}}".encode())) as small:
            assert small.read_response().status == 201
        statuses = [upload.send(data[-1:]).read_response().status for upload in uploads]
    assert set(statuses) <= {201, 503}
    with Connection(service).send(request("POST", PATH, cast.alice.key, body=body)) as again:
        assert again.read_response().status == 201


def wait_until_full(service: RunningService, person: Person, body: bytes) -> None:
    """Send bodies until the service has no room for them."""
    for _ in range(1000):
        with Connection(service).send(request("POST", PATH, person.key, body=body)) as connection:
            response = connection.read_response()
        if response.status == 503:
            assert (response.headers["retry-after"], response.headers["x-error-code"]) == ("1", "unavailable")
            assert "Too many large request bodies" in response.json()["error"]
            return
    pytest.fail("all bodies were accepted")


def test_a_client_that_leaves_makes_room_for_others(service: RunningService, cast: Cast) -> None:
    body = f'{{{GOOD}, "padding": "{"x" * 2_000_000}"}}'.encode()
    for _ in range(2 * BODIES_PER_KEY):
        begin_upload(service, cast.alice, body).socket.close()
    for _ in range(1000):
        with Connection(service).send(request("POST", PATH, cast.alice.key, body=body)) as connection:
            if connection.read_response().status == 201:
                return
    pytest.fail("a client that has left occupies memory")
