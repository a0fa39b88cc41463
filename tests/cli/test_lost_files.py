"""The service while its files are removed, truncated or on a read-only disk, and the documented recovery."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import DEADLINE, Cli, Program
from tests.torture.lost_files import copy_deleted_database

pytestmark = pytest.mark.covers_programs

ROOT = Path(__file__).parents[2]


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


def test_a_read_only_disk_rejects_writes_and_loses_nothing(tmp_path: Path) -> None:
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None or not Path("/dev/loop-control").exists():
        pytest.skip("mounting an ext4 image needs root, mkfs.ext4 and loop devices")
    command = ["unshare", "-m", sys.executable, "-m", "tests.cli.read_only_disk", str(tmp_path)]
    outcome = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert outcome.returncode == 0, outcome.stderr
    observed = json.loads(outcome.stdout)
    works = {"read": 200, "read with a new key": 200}
    assert observed["read-only"] == works | {"create": 503, "ready": 503}
    assert observed["exit code"] == 0
    assert "Read-only file system" in observed["start"]
    assert observed["start"].count("\n") == 1
    assert observed["stored"] == [200] * 3
    assert observed["writable"] == works | {"create": 201, "ready": 200}
