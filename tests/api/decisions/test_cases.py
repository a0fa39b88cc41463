"""Run the cases of docs/decisions.md: each is one situation and the response that was decided."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.decisions import access, endpoints, limits, records
from tests.api.decisions.scenario import Case, Scene

pytestmark = pytest.mark.uncovered

CASES = [*records.CASES, *endpoints.CASES, *access.CASES, *limits.CASES]


def parametrize(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "case",
        [
            pytest.param(case, id=f"{case.decision}: {case.situation}", marks=pytest.mark.decision(case.decision))
            for case in cases
        ],
    )


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    scene.open()
    scene.fill()
    yield scene
    scene.stack.close()


@parametrize([case for case in CASES if not case.every_engine])
def test_decision(scene: Scene, case: Case) -> None:
    run(scene, case)


@pytest.mark.every_engine
@parametrize([case for case in CASES if case.every_engine])
def test_decision_about_stored_data(scene: Scene, case: Case) -> None:
    run(scene, case)


def run(scene: Scene, case: Case) -> None:
    *before, last = case.steps
    for step in before:
        step(scene)
    reply = last(scene)
    assert reply is not None
    assert reply.status == case.status, reply
    for check in case.checks:
        check(scene, reply)
