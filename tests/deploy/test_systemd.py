"""The systemd units: they are valid and restrict the service, and the service works with these restrictions."""

import ctypes
import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from listings.workers import companion, supervisor
from tests.cli.commands import DEADLINE, PROGRAM, Program, clean_environment
from tests.cli.crowds import list_workers
from tests.processes import run_program

pytestmark = pytest.mark.uncovered

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
UNITS = ["listings.service", "listings-backup.service", "listings-backup.timer"]
SET_MDWE, GET_MDWE = 65, 66  # options of prctl
DENY_WRITE_EXECUTE = f"""
import ctypes, os, sys
if ctypes.CDLL(None).prctl({SET_MDWE}, 1, 0, 0, 0):
    raise OSError("prctl failed")
os.execv(sys.argv[1], sys.argv[1:])
"""
MAP_WRITE_EXECUTE = "import mmap; mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)"

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
needs_mdwe = pytest.mark.skipif(
    ctypes.CDLL(None).prctl(GET_MDWE, 0, 0, 0, 0) < 0, reason="the kernel is older than 6.3"
)


def read_unit(unit: str) -> dict[str, str]:
    """Return the options of a unit; of repeated ones, the last value."""
    lines = (DEPLOY / unit).read_text("utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """A folder with the units, changed to run the program of this environment."""
    for name in UNITS:
        text = (DEPLOY / name).read_text("utf-8").replace("/opt/listings/bin/listings", str(PROGRAM))
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


@needs_systemd
@pytest.mark.parametrize("unit", UNITS)
def test_systemd_verifies_the_units(unit: str, units: Path) -> None:
    outcome = run_program(["systemd-analyze", "verify", "--man=no", unit], cwd=units)
    assert (outcome.returncode, outcome.stdout + outcome.stderr) == (0, "")


@needs_systemd
@pytest.mark.parametrize(("unit", "max_exposure"), [("listings.service", 1.5), ("listings-backup.service", 1.0)])
def test_the_units_have_a_low_exposure_level(unit: str, max_exposure: float) -> None:
    outcome = run_program(["systemd-analyze", "security", "--no-pager", "--offline=true", DEPLOY / unit], check=True)
    (exposure,) = re.findall(rf"exposure level for {unit}: (\d+\.\d)", outcome.stdout)
    assert float(exposure) <= max_exposure


def test_the_stop_timeout_exceeds_the_slowest_stop() -> None:
    seconds = float(read_unit("listings.service")["TimeoutStopSec"])
    assert seconds > supervisor._STOP_TIMEOUT_SECONDS + companion._STOP_SECONDS + 1  # noqa: SLF001 - the limits
    compose = (DEPLOY.parent / "compose.yaml").read_text("utf-8")
    assert f"stop_grace_period: {seconds:.0f}s" in compose


@pytest.mark.parametrize("unit", ["listings.service", "listings-backup.service"])
def test_the_rate_limit_can_read_the_boot_id(unit: str) -> None:
    assert "ProcSubset" not in read_unit(unit)


@needs_mdwe
def test_the_service_works_with_memory_deny_write_execute(tmp_path: Path) -> None:
    restricted = [sys.executable, "-c", DENY_WRITE_EXECUTE]
    process = subprocess.run([*restricted, sys.executable, "-c", MAP_WRITE_EXECUTE], capture_output=True, check=False)
    assert b"PermissionError" in process.stderr
    with subprocess.Popen(
        [*restricted, PROGRAM, "serve", "--demo", "--port", "0"],
        cwd=tmp_path,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as service:
        assert service.stdout is not None
        assert "Listings is running at" in "".join(iter(service.stdout.readline, "\n"))
        service.terminate()
        assert service.wait(DEADLINE) == 0


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("is_abstract", [False, True])
def test_systemd_learns_that_the_service_is_ready_and_alive(tmp_path: Path, workers: str, *, is_abstract: bool) -> None:
    name = f"{'@' if is_abstract else ''}{tmp_path / 'notify'}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(name.replace("@", "\0"))
        systemd.settimeout(DEADLINE)
        program = Program(tmp_path, NOTIFY_SOCKET=name, WATCHDOG_USEC="30000", LISTINGS_WORKERS=workers)
        with program.serve() as service:
            assert [systemd.recv(100) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]
            assert service.http.get("/healthz").status_code == 200
            if workers == "2":
                for worker in list_workers(service):
                    assert b"NOTIFY_SOCKET" not in Path(f"/proc/{worker.pid}/environ").read_bytes()


def test_systemd_waits_for_the_service_and_kills_a_hung_one() -> None:
    unit = read_unit("listings.service")
    assert unit["Type"] == "notify"
    assert unit["TimeoutStartSec"] == "infinity"  # a start may migrate a large database first
    assert unit["WatchdogSignal"] == "SIGKILL"  # a core dump would contain keys
    assert unit["ExecReload"].endswith("listings reload $MAINPID")


def test_the_journal_keeps_all_lines_of_a_busy_service() -> None:
    unit = read_unit("listings.service")
    assert unit["LogRateLimitIntervalSec"] == "1s"  # 0 means the default of journald, which drops lines
    assert int(unit["LogRateLimitBurst"]) >= 1_000_000


def relocate(script: str, folder: Path) -> str:
    """Change a script to use paths in a folder and to run as the current user."""
    for path in ("/var/lib/listings", "/var/backups/listings", "/etc/listings"):
        script = script.replace(path, f"{folder}{path}")
    script = script.replace("/opt/listings/bin/listings", str(PROGRAM))
    return script.replace(
        "runuser -u listings --", "env" if os.geteuid() else f"runuser -u {pwd.getpwuid(0).pw_name} --"
    )


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The installed wrapper script, changed to use the paths in its folder."""
    for path in ("var/lib/listings", "var/backups/listings", "etc/listings"):
        (tmp_path / path).mkdir(parents=True)
    wrapper = tmp_path / "listings"
    wrapper.write_text(relocate((DEPLOY / "listings.sh").read_text("utf-8"), tmp_path), "utf-8")
    wrapper.chmod(0o755)
    return wrapper


def run(*command: str | Path) -> str:
    return run_program(command, env=clean_environment(), check=True).stdout


def test_the_wrapper_uses_the_settings_of_the_service(installed: Path) -> None:
    run(installed, "migrate")
    assert (installed.parent / "var/lib/listings/listings.db").exists()
    assert re.search(r"LISTINGS_CHANGE_DAYS +90 +default", run(installed, "settings"))
    (installed.parent / "etc/listings/listings.env").write_text("# comment\nLISTINGS_CHANGE_DAYS=91\n", "utf-8")
    assert re.search(r"LISTINGS_CHANGE_DAYS +91 +LISTINGS_CHANGE_DAYS", run(installed, "settings"))


def test_the_nightly_backup_has_one_file_per_day_of_the_week(installed: Path) -> None:
    run(installed, "migrate")
    (line,) = re.findall(r"^ExecStart=/bin/sh -c '(.*)'$", (DEPLOY / UNITS[1]).read_text("utf-8"), re.MULTILINE)
    script = relocate(line.replace("%%", "%"), installed.parent)
    url = f"sqlite:///{installed.parent}/var/lib/listings/listings.db"
    for _ in range(2):
        run("env", f"LISTINGS_DATABASE_URL={url}", "/bin/sh", "-c", script)
    names = [path.name for path in (installed.parent / "var/backups/listings").iterdir()]
    assert 1 <= len(names) <= 2, "midnight may have passed"
    assert all(re.fullmatch(r"listings-[1-7]\.db", name) for name in names)


@pytest.mark.parametrize(
    ("settings", "folder"),
    [
        ({}, "var/lib/listings/media"),
        ({"LISTINGS_DATABASE_URL": "sqlite:///{}/srv/other.db"}, "srv/media"),
        ({"LISTINGS_MEDIA_URL": "file://{}/srv/my pictures"}, "srv/my pictures"),
        ({"LISTINGS_MEDIA_URL": "s3://bucket/media"}, None),
    ],
)
def test_the_nightly_backup_copies_the_pictures(installed: Path, settings: dict[str, str], folder: str | None) -> None:
    root = installed.parent
    for name in ("var/lib/listings/media", "srv/media", "srv/my pictures"):
        (root / name).mkdir(parents=True)
        (root / name / "picture.jpg").touch()
    write_rsync(root)
    copy_pictures(root, settings)
    expected = "" if folder is None else f"{root / folder} ./ {root}/var/backups/listings/media/\n"
    assert (root / "copied").read_text("utf-8") == expected


def test_the_nightly_backup_needs_rsync_for_pictures_alone(installed: Path) -> None:
    media = installed.parent / "var/lib/listings/media"
    media.mkdir()
    copy_pictures(installed.parent, {})
    media.rmdir()
    with pytest.raises(subprocess.CalledProcessError):  # the service creates the folder
        copy_pictures(installed.parent, {})


def write_rsync(root: Path) -> None:
    """Write an `rsync` that records its folder and its last two arguments."""
    (root / "copied").touch()
    program = root / "rsync"
    program.write_text(f'#!/bin/sh\nshift 2\necho "$PWD $*" >> {root}/copied\n', "utf-8")
    program.chmod(0o755)


def copy_pictures(root: Path, settings: dict[str, str]) -> None:
    """Run the step of the backup that copies the pictures."""
    text = (DEPLOY / UNITS[1]).read_text("utf-8").replace("\\\n", "")
    (line,) = re.findall(r"^ExecStartPost=/bin/sh -c '(.*)'$", text, re.MULTILINE)
    script = relocate(line.replace("%%", "%").replace("$$", "$"), root)
    given = {"LISTINGS_DATABASE_URL": f"sqlite:///{root}/var/lib/listings/listings.db"}
    given |= {name: value.format(root) for name, value in settings.items()}
    path = f"{root}:{os.environ['PATH']}"
    run_program(["/bin/sh", "-c", script], env=clean_environment() | given | {"PATH": path}, check=True)
