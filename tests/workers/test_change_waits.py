"""A client that waits for changes in one process gets those that another process has written."""

import json
from pathlib import Path

import pytest

from tests.cli.commands import Program
from tests.cli.crowds import PATH, connections_to_each
from tests.harness import DatabaseUrls, Harness
from tests.http.raw import request

pytestmark = [pytest.mark.slow, pytest.mark.uncovered]

LAMP = json.dumps({"title": "Lamp", "content": "Brass."}).encode()


@pytest.mark.decision("G47")
@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
def test_a_wait_ends_with_the_write_of_another_process(tmp_path: Path, engine: str) -> None:
    assert engine
    folder = tmp_path / "data"
    with Harness(folder) as harness:
        key = harness.person("alice").key
    program = Program(
        tmp_path, LISTINGS_DATABASE_URL=DatabaseUrls.build(folder), LISTINGS_WORKERS="2", LISTINGS_LOG_LEVEL="error"
    )
    with program.serve() as serving, connections_to_each(serving, 2) as ((first, *_), (second, *_)):
        for number, (waiting, writing) in enumerate([(first, second), (second, first)]):
            waiting.send(request("GET", f"/api/v1/changes?after={number}&timeout=30", key))
            assert writing.send(request("POST", PATH, key, body=LAMP)).read_response().status == 201
            assert waiting.read_response().json()["last"] == number + 1
