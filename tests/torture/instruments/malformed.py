"""Malformed HTTP: smuggled, cut, folded and pipelined requests on raw sockets."""

import asyncio
from collections import Counter
from contextlib import ExitStack, closing, suppress
from http import HTTPStatus
from typing import NamedTuple

import apsw
import uvloop

from tests.harness import Person
from tests.torture.http_client import Connection, Response, read_response
from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.malformed_requests import Case, CaseGenerator, Expectation
from tests.torture.services import RestartableService, create_people, find_children

CASES = 20_000
_CLIENTS = 24
_TIMEOUT_SECONDS = 90.0  # longer than any timeout of the service for such a connection
_CONTROL_TIMEOUT_SECONDS = 2.0
_CONTROL_CASES = 450
_MAX_FAILURES = 20
_STATUSES = {*range(400, 432), HTTPStatus.HTTP_VERSION_NOT_SUPPORTED}
CONTROLS = ("accept_any_framing", "accept_any_host", "accept_truncated_bodies", "respond_in_reverse_order")


class Exchange(NamedTuple):
    """The responses on one connection."""

    responses: list[Response]
    partial: bytes  # an incomplete response
    is_hanging: bool


class RequestRun:
    """Runs cases against a service, and collects the failures."""

    def __init__(self, service: RestartableService, generator: CaseGenerator, *, is_control: bool) -> None:
        """A control stops at its first failure and uses a short timeout."""
        self._max_failures = 1 if is_control else _MAX_FAILURES
        self._timeout = _CONTROL_TIMEOUT_SECONDS if is_control else _TIMEOUT_SECONDS
        self.failures: list[str] = []
        self.counts: Counter[Expectation] = Counter()
        self.acknowledged: set[str] = set()
        self.allowed: set[str] = set()
        self._service = service
        self._generator = generator

    @property
    def total(self) -> int:
        return self.counts.total()

    async def client(self, count: int, scale: Scale) -> None:
        """Run one connection after the other."""
        while self.total < count and not scale.is_time_up and len(self.failures) < self._max_failures:
            case = self._generator.next()
            self.counts[case.expectation] += 1
            self.allowed.update(case.allowed_titles)
            exchange = await self._exchange(case)
            for failure in self._check(case, exchange):
                self.failures.append(f"{case.name}: {failure}")

    async def _exchange(self, case: Case) -> Exchange:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._service.port)
        responses: list[Response] = []
        try:
            async with asyncio.timeout(self._timeout):
                await self._send(case, writer)
                if case.expectation in {Expectation.CUT, Expectation.ANY}:
                    await _disconnect(case, reader, writer, responses)
                else:
                    await _read_responses(reader, responses)
        except TimeoutError:
            return Exchange(responses, b"", is_hanging=True)
        except asyncio.IncompleteReadError as error:
            return Exchange(responses, error.partial, is_hanging=False)
        except (OSError, ValueError):
            return Exchange(responses, b"", is_hanging=False)
        finally:
            writer.transport.abort()
        return Exchange(responses, b"", is_hanging=False)

    async def _send(self, case: Case, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):  # the responses so far can still be read
            for piece in case.pieces:
                writer.write(piece)
                await writer.drain()
                if len(case.pieces) > 1:
                    await asyncio.sleep(0)

    def _check(self, case: Case, exchange: Exchange) -> list[str]:
        failures = ["the connection hangs: no response, and not closed"] if exchange.is_hanging else []
        statuses = [response.status for response in exchange.responses]
        failures += [
            f"returned {it}" for it in statuses if it >= HTTPStatus.INTERNAL_SERVER_ERROR and it not in _STATUSES
        ]
        if exchange.partial:
            failures.append(f"an incomplete response: {exchange.partial[:80]!r}")
        marks = [response.headers.get("x-request-id", "") for response in exchange.responses]
        created = [mark for mark, status in zip(marks, statuses, strict=True) if status == HTTPStatus.CREATED]
        if case.expectation is not Expectation.ANY:
            self.acknowledged.update(created)
            failures += _check_order(case, marks, statuses)
        return failures

    def compare_with_database(self, person: Person) -> None:
        """Compare the stored listings with the acknowledged and the allowed ones."""
        with closing(apsw.Connection(str(self._service.database))) as connection:
            rows = connection.execute("SELECT title FROM listings WHERE account_id = ?", (person.account.id,))
            stored = [str(title) for (title,) in rows]
        for title in sorted(set(stored) - self.allowed)[:_MAX_FAILURES]:
            self.failures.append(f"the listing {title!r} was created, but no client sent a complete request for it")
        for title in sorted(self.acknowledged - set(stored))[:_MAX_FAILURES]:
            self.failures.append(f"the listing {title!r} was acknowledged, but is missing")
        if len(stored) != len(set(stored)):
            self.failures.append("a listing was created twice")


def _check_order(case: Case, marks: list[str], statuses: list[int]) -> list[str]:
    """Return a failure if the responses or their order differ from the expectation."""
    expected_marks = list(case.marks[: case.position])
    if case.expectation is Expectation.CUT:
        fits = marks == expected_marks[: len(marks)] or (
            marks[: len(expected_marks)] == expected_marks and len(statuses) == len(expected_marks) + 1
        )
        return (
            []
            if fits and max(statuses[len(expected_marks) :], default=400) >= HTTPStatus.BAD_REQUEST
            else [_describe(case, marks, statuses)]
        )
    was_served = marks == list(case.marks) or _is_served_anonymously(case, marks)
    was_rejected = (
        len(marks) == case.position + 1 and marks[: case.position] == expected_marks and statuses[-1] in _STATUSES
    )
    fits = {
        Expectation.SERVED: was_served,
        Expectation.REJECTED: was_rejected and marks[-1] not in case.marks[case.position + 1 :],
        Expectation.EITHER: was_served or was_rejected,
    }.get(case.expectation, True)
    return [] if fits else [_describe(case, marks, statuses)]


def _is_served_anonymously(case: Case, marks: list[str]) -> bool:
    """Return whether the unusual request was served last, because it closed the connection, as in HTTP/1.0."""
    return case.expectation is Expectation.EITHER and marks == list(case.marks[: case.position + 1])


def _describe(case: Case, marks: list[str], statuses: list[int]) -> str:
    responses = [(status, mark.rpartition("-")[2]) for status, mark in zip(statuses, marks, strict=True)]
    return f"expected {case.expectation.value} at {case.position} of {len(case.marks)}, got {responses}"


async def _disconnect(
    case: Case, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, responses: list[Response]
) -> None:
    """Disconnect: abort, or close after reading the responses to the complete requests."""
    if case.is_reset:
        return
    while len(responses) < case.position:
        responses.append(await read_response(reader))
    with suppress(OSError):
        writer.write_eof()
    await _read_responses(reader, responses)


async def _read_responses(reader: asyncio.StreamReader, responses: list[Response]) -> None:
    """Read all responses until the connection ends."""
    while not reader.at_eof():
        try:
            response = await read_response(reader)
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise
            return
        if response.status != HTTPStatus.CONTINUE:
            responses.append(response)


async def _work(
    service: RestartableService, scale: Scale, count: int, generator: CaseGenerator, alice: Person
) -> RequestRun:
    await service.wait_until_ready()
    request_run = RequestRun(service, generator, is_control=service.is_broken)
    processes = _list_processes(service)
    await asyncio.gather(*(request_run.client(count, scale) for _ in range(_CLIENTS)))
    connection = Connection(service.port, alice.key)
    response = await connection.fetch("GET", "/healthz")
    connection.close()
    if response.status != HTTPStatus.OK:
        request_run.failures.append(f"/healthz returned {response.status} afterwards")
    if _list_processes(service) != processes:
        request_run.failures.append("a worker has died")
    service.stop()
    request_run.compare_with_database(alice)
    if "Traceback" in service.log.read_text("utf-8", "replace"):
        request_run.failures.append(f"the log has a traceback: {service.read_log()}")
    return request_run


def _list_processes(service: RestartableService) -> list[int]:
    assert service.process is not None
    return [] if service.process.has_ended else [service.process.pid, *find_children(service.process.pid)]


def work(scale: Scale, count: int, seed: int, fault: str | None = None, workers: int = 1) -> RequestRun:
    """Start a service and send this number of connections."""
    folder = scale.folder / (fault or "sound")
    folder.mkdir()
    with ExitStack() as stack:
        service = stack.enter_context(RestartableService(folder, fault, LISTINGS_WORKERS=str(workers)))
        alice, fuzzer = asyncio.run(create_people(folder, 2))
        service.start()
        return uvloop.run(_work(service, scale, count, CaseGenerator(alice.key, fuzzer.key, seed), alice))


def run(scale: Scale) -> Outcome:
    """Use two workers in a full run, else one."""
    count = scale.amount(CASES)
    request_run = work(scale, count, 1, workers=2 if scale.fraction > 0.1 else 1)
    summary = ", ".join(f"{number:,} {expectation.value}" for expectation, number in request_run.counts.most_common())
    return Outcome(f"{request_run.total:,} connections ({summary})", request_run.failures, request_run.total >= CASES)


def control(scale: Scale) -> Outcome:
    """Inject a lenient parser, invalid hosts, truncated bodies, and responses in the wrong order."""
    failures = []
    for fault in CONTROLS:
        found = work(scale, _CONTROL_CASES, 2, fault).failures
        if not found:
            return Outcome(f"{fault} was not found")
        failures += [f"{fault}: {one}" for one in found]
    return Outcome(f"{', '.join(CONTROLS)}: {_CONTROL_CASES} connections each", failures)


INSTRUMENT = Instrument(
    7,
    "malformed HTTP on raw sockets",
    "20,000 connections: 0 hangs, no 5xx but 505, 0 dead workers, 0 writes from unfinished requests, in order",
    4,
    run,
    control,
    short_fraction=0.06,
)
