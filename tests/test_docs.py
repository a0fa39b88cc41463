"""The pages tell what the code does: every setting, every error, every command."""

import re
from pathlib import Path

import click
import pytest

from listings.api.codec import STATUS
from listings.api.routes import ROUTES
from listings.cli import listings
from listings.conform import limits
from listings.conform.runner import SUBJECTS
from listings.domain.fields import FIELDS
from listings.settings import SETTINGS, Setting
from listings.telemetry.logs import RequestLine
from listings.telemetry.metrics import Metrics
from listings.workers.metrics_sum import build_worker_metrics
from tests.cli.test_doctor import CHECKS

DOCS = Path(__file__).parent.parent / "docs"
API = (DOCS / "api.md").read_text("utf-8")
OPERATING = (DOCS / "operating.md").read_text("utf-8")
TROUBLESHOOTING = (DOCS / "troubleshooting.md").read_text("utf-8")
ROWS = [line for line in (DOCS / "settings.md").read_text("utf-8").splitlines() if line.startswith("| `")]


@pytest.mark.parametrize("setting", SETTINGS, ids=[setting.attribute for setting in SETTINGS])
def test_every_setting_has_its_row(setting: Setting) -> None:
    (row,) = (line for line in ROWS if f"`{setting.variables[0]}`" in line)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert all(f"`{name}`" in cells[0] for name in setting.variables)
    assert cells[2] == (f"`{setting.default}`" if setting.default else "")


def test_no_row_is_about_a_setting_that_is_not_there() -> None:
    documented = {name for row in ROWS for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert documented == {name for setting in SETTINGS for name in setting.variables}


@pytest.mark.parametrize("name", [name for row in SETTINGS if row.secret for name in row.variables])
def test_the_file_of_every_secret_is_told(name: str) -> None:
    assert f"`{name}_FILE` names a file" in (DOCS / "settings.md").read_text("utf-8")


def test_every_check_of_the_doctor_is_in_the_table() -> None:
    section = TROUBLESHOOTING.partition("\n## Checks of listings doctor\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE) == CHECKS


@pytest.mark.parametrize("code", STATUS)
def test_every_error_is_in_the_table_with_its_status(code: str) -> None:
    assert re.search(rf"^\| {STATUS[code]} \|[^|]*`{code}`", API, re.MULTILINE)  # type: ignore[index]  # a key of it


@pytest.mark.parametrize("path", ROUTES)
def test_every_path_is_in_the_table(path: str) -> None:
    assert f"| `{path}` |" in API


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_is_told(field: str) -> None:
    assert f"`{field}`" in API


def test_every_metric_is_in_the_table_with_its_labels(tmp_path: Path) -> None:
    page = (DOCS / "metrics.md").read_text("utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `listings_")]
    told = {name: labels for _, name, labels, *_ in rows}
    metrics = Metrics(tmp_path / "listings.db")
    metrics.record_response(RequestLine(method="GET", route="/healthz", status=200))
    there: dict[str, set[str]] = {}
    for family in metrics.registry.collect():
        name = f"{family.name}{'_total' if family.type == 'counter' else '_info' if family.type == 'info' else ''}"
        there[name] = {label for sample in family.samples for label in sample.labels} - {"le"}
    there |= {sample.name: set() for family in build_worker_metrics(1, 0) for sample in family.samples}
    ours = {name: labels for name, labels in there.items() if name.startswith("listings_")}
    assert {name.strip(" `"): set(re.findall(r"`(\w+)`", labels)) for name, labels in told.items()} == ours


def commands(group: click.Group, path: str = "listings") -> list[tuple[str, click.Command]]:
    found: list[tuple[str, click.Command]] = []
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found += (
            commands(command, f"{path} {name}") if isinstance(command, click.Group) else [(f"{path} {name}", command)]
        )
    return found


@pytest.mark.parametrize(("path", "command"), commands(listings))
def test_every_command_tells_an_example_of_itself(path: str, command: click.Command) -> None:
    assert f"Example: {path}" in (command.help or "")


def test_every_check_of_conform_is_told() -> None:
    rows = [
        line.split("|")[1]
        for line in (DOCS / "conformance.md").read_text("utf-8").splitlines()
        if line.startswith("| `")
    ]
    told: set[str] = set()
    for row in rows:
        ids = re.findall(r"`([a-z]+)-(\d+)`", row)
        numbers = range(int(ids[0][1]), int(ids[-1][1]) + 1) if " to " in row else [int(number) for _, number in ids]
        told |= {f"{ids[0][0]}-{number}" for number in numbers}
    assert told == {check.id for subject in (*SUBJECTS, limits) for check in subject.SHEET.checks}


def test_every_command_is_in_the_operators_table() -> None:
    table = re.findall(r"^\| `(listings [a-z ]+[a-z])[ A-Z_.]*[^`]*` \|", OPERATING, re.MULTILINE)
    assert table == sorted(path for path, _ in commands(listings))
