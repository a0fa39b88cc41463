"""The systemd units: they are sound, they shut the service in, and the service works so shut in."""

import ctypes
import os
import pwd
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from listings.http import server
from tests.cli.commands import DEADLINE, PROGRAM, clean_environment

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
UNITS = ["listings.service", "listings-backup.service", "listings-backup.timer"]
SET_MDWE, GET_MDWE = 65, 66  # of prctl
SHUT_IN = f"""
import ctypes, os, sys
if ctypes.CDLL(None).prctl({SET_MDWE}, 1, 0, 0, 0):
    raise OSError("refused")
os.execv(sys.argv[1], sys.argv[1:])
"""
WRITE_AND_RUN = "import mmap; mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)"

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
needs_mdwe = pytest.mark.skipif(
    ctypes.CDLL(None).prctl(GET_MDWE, 0, 0, 0, 0) < 0, reason="the kernel is older than 6.3 and can't refuse it"
)


def settings_of(unit: str) -> dict[str, str]:
    """The last value of each; what stands more than once is not asked for here."""
    lines = (DEPLOY / unit).read_text("utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units in a folder, with the program that is installed here."""
    for name in UNITS:
        text = (DEPLOY / name).read_text("utf-8").replace("/opt/listings/bin/listings", str(PROGRAM))
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


@needs_systemd
@pytest.mark.parametrize("unit", UNITS)
def test_systemd_finds_no_fault_in_the_units(unit: str, units: Path) -> None:
    outcome = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], cwd=units, capture_output=True, text=True, check=False
    )
    assert (outcome.returncode, outcome.stdout + outcome.stderr) == (0, "")


@needs_systemd
@pytest.mark.parametrize(("unit", "most"), [("listings.service", 1.5), ("listings-backup.service", 1.0)])
def test_systemd_deems_the_units_safe(unit: str, most: float) -> None:
    outcome = subprocess.run(
        ["systemd-analyze", "security", "--no-pager", "--offline=true", DEPLOY / unit],
        capture_output=True,
        text=True,
        check=True,
    )
    (exposure,) = re.findall(rf"exposure level for {unit}: (\d+\.\d)", outcome.stdout)
    assert float(exposure) <= most


def test_a_stop_is_given_more_time_than_an_orderly_one_takes() -> None:
    seconds = float(settings_of("listings.service")["TimeoutStopSec"])
    assert seconds > server._DRAIN_SECONDS  # noqa: SLF001 - the bound itself


@pytest.mark.parametrize("unit", ["listings.service", "listings-backup.service"])
def test_the_rate_limit_can_read_the_id_of_the_boot(unit: str) -> None:
    assert "ProcSubset" not in settings_of(unit)


@needs_mdwe
def test_the_service_works_where_no_memory_is_both_written_and_run(tmp_path: Path) -> None:
    shut_in = [sys.executable, "-c", SHUT_IN]
    refused = subprocess.run([*shut_in, sys.executable, "-c", WRITE_AND_RUN], capture_output=True, check=False)
    assert b"PermissionError" in refused.stderr
    with subprocess.Popen(
        [*shut_in, PROGRAM, "serve", "--demo", "--port", "0"],
        cwd=tmp_path,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as service:
        assert service.stdout is not None
        assert "Listings answers at" in "".join(iter(service.stdout.readline, "\n"))
        service.terminate()
        assert service.wait(DEADLINE) == 0


def in_a_folder(script: str, folder: Path) -> str:
    """A script for the paths of a system and the user `listings`, for a folder and the present user."""
    for path in ("/var/lib/listings", "/var/backups/listings", "/etc/listings"):
        script = script.replace(path, f"{folder}{path}")
    script = script.replace("/opt/listings/bin/listings", str(PROGRAM))
    return script.replace(
        "runuser -u listings --", "env" if os.geteuid() else f"runuser -u {pwd.getpwuid(0).pw_name} --"
    )


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The wrapper, for the folder that it stands in."""
    for path in ("var/lib/listings", "var/backups/listings", "etc/listings"):
        (tmp_path / path).mkdir(parents=True)
    wrapper = tmp_path / "listings"
    wrapper.write_text(in_a_folder((DEPLOY / "listings.sh").read_text("utf-8"), tmp_path), "utf-8")
    wrapper.chmod(0o755)
    return wrapper


def output(*command: str | Path) -> str:
    return subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=True).stdout


def test_the_operators_commands_have_the_settings_of_the_service(installed: Path) -> None:
    output(installed, "migrate")
    assert (installed.parent / "var/lib/listings/listings.db").exists()
    assert re.search(r"LISTINGS_IDLE_TIMEOUT +75 +default", output(installed, "settings"))
    (installed.parent / "etc/listings/listings.env").write_text("# ours\nLISTINGS_IDLE_TIMEOUT=90\n", "utf-8")
    assert re.search(r"LISTINGS_IDLE_TIMEOUT +90 +LISTINGS_IDLE_TIMEOUT", output(installed, "settings"))


def test_the_nightly_backup_is_named_by_its_day_and_replaces_the_last_of_that_name(installed: Path) -> None:
    output(installed, "migrate")
    (line,) = re.findall(r"^ExecStart=/bin/sh -c '(.*)'$", (DEPLOY / UNITS[1]).read_text("utf-8"), re.MULTILINE)
    script = in_a_folder(line.replace("%%", "%"), installed.parent)
    url = f"sqlite:///{installed.parent}/var/lib/listings/listings.db"
    for _ in range(2):
        output("env", f"LISTINGS_DATABASE_URL={url}", "/bin/sh", "-c", script)
    names = [path.name for path in (installed.parent / "var/backups/listings").iterdir()]
    assert 1 <= len(names) <= 2, "midnight may have passed"
    assert all(re.fullmatch(r"listings-[1-7]\.db", name) for name in names)
