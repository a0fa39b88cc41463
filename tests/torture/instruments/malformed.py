"""Malformed HTTP: requests smuggled, cut, folded and pipelined, on raw sockets."""

import asyncio
from collections import Counter
from contextlib import ExitStack, closing, suppress
from http import HTTPStatus
from typing import NamedTuple

import apsw
import uvloop

from tests.harness import Person
from tests.torture.instrument import Instrument, Outcome, Scale
from tests.torture.malformed import Case, Expectation, Maker
from tests.torture.serving import Place, Zygote, children_of, make_people
from tests.torture.wire import Answer, Line, answer_of

CASES = 20_000
_CLIENTS = 24
_LONGEST = 90.0  # seconds: more than any deadline of a connection that says so much at once
_SHORTEST = 2.0
_CONTROL = 450
_MOST_TOLD = 20
_STATUSES = {*range(400, 432), HTTPStatus.HTTP_VERSION_NOT_SUPPORTED}
CONTROLS = ("take_any_framing", "take_cut_bodies", "answer_the_last_first")


class Talk(NamedTuple):
    """What came back."""

    answers: list[Answer]
    rest: bytes  # what is no whole answer
    hangs: bool


class Trial:
    """A service, and what became of all that was sent to it."""

    def __init__(self, place: Place, maker: Maker, *, is_control: bool) -> None:
        """A control ends with what it finds first, and waits for that no longer than it must."""
        self._most = 1 if is_control else _MOST_TOLD
        self._longest = _SHORTEST if is_control else _LONGEST
        self.faults: list[str] = []
        self.verdicts: Counter[Expectation] = Counter()
        self.acknowledged: set[str] = set()
        self.may_be: set[str] = set()
        self._place = place
        self._maker = maker

    @property
    def done(self) -> int:
        return self.verdicts.total()

    async def client(self, count: int, scale: Scale) -> None:
        """One connection after the other."""
        while self.done < count and not scale.is_over and len(self.faults) < self._most:
            case = self._maker.next()
            self.verdicts[case.verdict] += 1
            self.may_be.update(case.may_make)
            talk = await self._talk(case)
            for fault in self._judge(case, talk):
                self.faults.append(f"{case.name}: {fault}")

    async def _talk(self, case: Case) -> Talk:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._place.port)
        answers: list[Answer] = []
        try:
            async with asyncio.timeout(self._longest):
                await self._send(case, writer)
                if case.verdict in {Expectation.CUT, Expectation.ANY}:
                    await _leave(case, reader, writer, answers)
                else:
                    await _read(reader, answers)
        except TimeoutError:
            return Talk(answers, b"", hangs=True)
        except asyncio.IncompleteReadError as error:
            return Talk(answers, error.partial, hangs=False)
        except (OSError, ValueError):
            return Talk(answers, b"", hangs=False)
        finally:
            writer.transport.abort()
        return Talk(answers, b"", hangs=False)

    async def _send(self, case: Case, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):  # what was answered meanwhile can still be read
            for piece in case.pieces:
                writer.write(piece)
                await writer.drain()
                if len(case.pieces) > 1:
                    await asyncio.sleep(0)

    def _judge(self, case: Case, talk: Talk) -> list[str]:
        faults = ["nothing came, not even the end of the connection"] if talk.hangs else []
        statuses = [answer.status for answer in talk.answers]
        faults += [
            f"answered {it}" for it in statuses if it >= HTTPStatus.INTERNAL_SERVER_ERROR and it not in _STATUSES
        ]
        if talk.rest:
            faults.append(f"half an answer came: {talk.rest[:80]!r}")
        marks = [answer.headers.get("x-request-id", "") for answer in talk.answers]
        made = [mark for mark, status in zip(marks, statuses, strict=True) if status == HTTPStatus.CREATED]
        if case.verdict is not Expectation.ANY:
            self.acknowledged.update(made)
            faults += _judge_order(case, marks, statuses)
        return faults

    def compare(self, person: Person) -> None:
        """What is stored with what was acknowledged and what may be there."""
        with closing(apsw.Connection(str(self._place.database))) as connection:
            rows = connection.execute("SELECT title FROM listings WHERE account_id = ?", (person.account.id,))
            stored = [str(title) for (title,) in rows]
        for title in sorted(set(stored) - self.may_be)[:_MOST_TOLD]:
            self.faults.append(f"a listing {title!r} was written, and nobody has sent a whole request for it")
        for title in sorted(self.acknowledged - set(stored))[:_MOST_TOLD]:
            self.faults.append(f"a listing {title!r} was acknowledged, and is not there")
        if len(stored) != len(set(stored)):
            self.faults.append("a listing was written twice")


def _judge_order(case: Case, marks: list[str], statuses: list[int]) -> list[str]:
    """Whether the answers are those that the case may get, in their order."""
    before = list(case.marks[: case.place])
    if case.verdict is Expectation.CUT:
        fits = marks == before[: len(marks)] or (marks[: len(before)] == before and len(statuses) == len(before) + 1)
        return (
            []
            if fits and max(statuses[len(before) :], default=400) >= HTTPStatus.BAD_REQUEST
            else [_told(case, marks, statuses)]
        )
    is_served = marks == list(case.marks) or _is_served_anonymously(case, marks)
    refused = len(marks) == case.place + 1 and marks[: case.place] == before and statuses[-1] in _STATUSES
    fits = {
        Expectation.SERVED: is_served,
        Expectation.REFUSED: refused and marks[-1] not in case.marks[case.place + 1 :],
        Expectation.EITHER: is_served or refused,
    }.get(case.verdict, True)
    return [] if fits else [_told(case, marks, statuses)]


def _is_served_anonymously(case: Case, marks: list[str]) -> bool:
    """An answer to the odd one that ends the connection, as one to HTTP/1.0 does."""
    return case.verdict is Expectation.EITHER and marks == list(case.marks[: case.place + 1])


def _told(case: Case, marks: list[str], statuses: list[int]) -> str:
    answers = [(status, mark.rpartition("-")[2]) for status, mark in zip(statuses, marks, strict=True)]
    return f"{case.verdict.value} expected at {case.place} of {len(case.marks)}, answers were {answers}"


async def _leave(case: Case, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: list[Answer]) -> None:
    """Without a good-bye, or after the answers to what was whole."""
    if case.is_reset:
        return
    while len(answers) < case.place:
        answers.append(await answer_of(reader))
    with suppress(OSError):
        writer.write_eof()
    await _read(reader, answers)


async def _read(reader: asyncio.StreamReader, answers: list[Answer]) -> None:
    """All answers, until the connection ends."""
    while not reader.at_eof():
        try:
            answer = await answer_of(reader)
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise
            return
        if answer.status != HTTPStatus.CONTINUE:
            answers.append(answer)


async def _work(place: Place, scale: Scale, count: int, maker: Maker, alice: Person) -> Trial:
    await place.answers()
    trial = Trial(place, maker, is_control=place.is_broken)
    before = _workers(place)
    await asyncio.gather(*(trial.client(count, scale) for _ in range(_CLIENTS)))
    line = Line(place.port, alice.key)
    answer = await line.fetch("GET", "/healthz")
    line.close()
    if answer.status != HTTPStatus.OK:
        trial.faults.append(f"afterwards /healthz is {answer.status}")
    if _workers(place) != before:
        trial.faults.append("a worker has died")
    place.stop()
    trial.compare(alice)
    if "Traceback" in place.log.read_text("utf-8", "replace"):
        trial.faults.append(f"the log has a traceback: {place.said()}")
    return trial


def _workers(place: Place) -> list[int]:
    assert place.process is not None
    return [] if place.process.has_ended else [place.process.pid, *children_of(place.process.pid)]


def work(scale: Scale, count: int, seed: int, fault: str | None = None, workers: int = 1) -> Trial:
    """A service, and so many connections."""
    folder = scale.folder / (fault or "sound")
    folder.mkdir()
    with ExitStack() as stack:
        zygote = stack.enter_context(Zygote())
        place = stack.enter_context(Place(folder, zygote, fault, LISTINGS_WORKERS=str(workers)))
        alice, wild = asyncio.run(make_people(folder, 2))
        place.start()
        return uvloop.run(_work(place, scale, count, Maker(alice.key, wild.key, seed), alice))


def run(scale: Scale) -> Outcome:
    """On two workers where there is time for many."""
    count = scale.amount(CASES)
    trial = work(scale, count, 1, workers=2 if scale.part > 0.1 else 1)
    told = ", ".join(f"{number:,} {verdict.value}" for verdict, number in trial.verdicts.most_common())
    return Outcome(f"{trial.done:,} connections ({told})", trial.faults, trial.done >= CASES)


def control(scale: Scale) -> Outcome:
    """A parser that takes everything; bodies that count when they are cut; answers in another order."""
    faults = []
    for fault in CONTROLS:
        found = work(scale, _CONTROL, 2, fault).faults
        if not found:
            return Outcome(f"{fault} was not found")
        faults += [f"{fault}: {one}" for one in found]
    return Outcome(f"{', '.join(CONTROLS)}: {_CONTROL} connections each", faults)


INSTRUMENT = Instrument(
    7,
    "malformed HTTP on raw sockets",
    "20,000 connections: 0 hangs, no 5xx but 505, 0 dead workers, 0 writes from unfinished requests, in order",
    4,
    run,
    control,
    short=0.06,
)
