"""The documented recovery of a database that was removed while the service ran."""

import json

import pytest

from tests.cli.commands import Cli, Program
from tests.torture.lost_files import copy_deleted_database

pytestmark = pytest.mark.covers_programs


def test_a_removed_database_is_recovered_from_the_running_service(program: Program, cli: Cli) -> None:
    database = cli.folder / "data/listings.db"
    rescued, marker = database.with_suffix(".rescued"), database.with_name("listings.db.needs-recovery")
    with program.serve() as serving:
        key = cli.key(cli.account("alice", "--months", "1"))["key"]
        created = [serving.create(key) for _ in range(3)]
        database.unlink()
        assert serving.http.get("/readyz").status_code == 503
        copy_deleted_database(serving.process.pid, rescued)
        outcome = serving.stop()
    assert (outcome.code, "the WAL is kept" in outcome.err) == (0, True)
    assert program.run("serve", "--port", "0").code == 1
    rescued.rename(database)
    assert str(marker) in cli.get_error("serve", "--port", "0")
    findings = {row["check"]: row for row in map(json.loads, cli("doctor", "--json").out.splitlines())}
    assert (findings["database"]["verdict"], findings["integrity"]["verdict"]) == ("fault", "ok")
    assert str(marker) in findings["database"]["advice"]
    marker.unlink()
    with program.serve() as serving:
        assert [serving.read(key, listing).status_code for listing in created] == [200] * 3
