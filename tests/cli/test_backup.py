"""`listings backup`, also while the service is running."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.cli import terminal
from tests.cli.commands import PROGRAM, Cli, Data, Program
from tests.processes import run_program
from tests.store.databases import rows


def test_a_backup_prints_path_size_and_duration(cli: Cli, alice: Data) -> None:
    result = cli.data("backup", "backup.db")
    file = cli.folder / "backup.db"
    assert list(result) == ["backup", "bytes", "seconds"]
    assert (result["backup"], result["bytes"]) == (str(file), file.stat().st_size)
    assert 0 <= result["seconds"] < 20
    assert rows(file, "SELECT email FROM accounts") == [(alice["email"],)]
    assert str(file) in cli.run_ok("backup", "--force", "backup.db").out


def test_a_read_only_disk_is_a_one_line_error(cli: Cli, database: Path, tmp_path: Path) -> None:
    (cli.folder / "closed").mkdir(mode=0o755)
    privilege = "-m" if os.geteuid() == 0 else "-Urm"
    namespace = ["unshare", privilege, "sh", "-c", 'mount -t tmpfs -o ro none "$1" && shift && exec "$@"', "sh"]
    if subprocess.run([*namespace, str(tmp_path / "closed"), "true"], capture_output=True, check=False).returncode:
        pytest.skip("mounting a read-only folder is not permitted on this machine")
    command = [*namespace, "closed", str(PROGRAM), "backup", "closed/backup.db"]
    outcome = run_program(command, cwd=cli.folder)
    assert outcome.returncode == 1
    assert outcome.stderr.startswith(f"listings: {cli.folder}/closed/backup.db can't be written: Read-only file system")
    assert database.is_file()


@pytest.mark.usefixtures("database")
def test_progress_is_shown_only_on_a_terminal(cli: Cli, program: Program) -> None:
    assert program.run("backup", "quiet.db").err == ""
    code, written = terminal.run(cli.folder, "backup", "shown.db", stream="stderr")
    assert code == 0
    assert "Copying" in written
