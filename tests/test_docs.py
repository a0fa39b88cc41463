"""Test that the documentation is complete: settings, errors, fields, metrics, commands."""

import json
import re
from pathlib import Path
from typing import Annotated, get_args, get_origin

import click
import pytest

from listings.api.docs.page import list_titles
from listings.api.routes import ROUTES
from listings.cli import listings
from listings.domain.fields import FIELDS
from listings.domain.listing_json import INCLUDABLE_FIELDS
from listings.service.transfer.rows import COLUMNS
from listings.settings import REMOVED, SETTINGS
from listings.telemetry.logs import RequestLine
from listings.telemetry.metrics import Metrics
from listings.workers.metrics_sum import build_worker_metrics
from tests.cli.test_doctor import CHECKS

DOCS = Path(__file__).parent.parent / "docs"
API = (DOCS / "api.md").read_text("utf-8")
OPERATING = (DOCS / "operating.md").read_text("utf-8")
TROUBLESHOOTING = (DOCS / "troubleshooting.md").read_text("utf-8")
ROWS = [line for line in (DOCS / "settings.md").read_text("utf-8").splitlines() if line.startswith("| `")]


def test_the_table_has_every_setting_with_its_default() -> None:
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in ROWS]
    documented = {tuple(re.findall(r"`(\w+)`", names)): default for names, _, default, *_ in cells}
    assert documented == {row.variables: f"`{row.default}`" if row.default else "" for row in SETTINGS}


def test_the_bounds_of_every_number_are_documented() -> None:
    bounds = {row.variables[0]: get_args(row.type)[1] for row in SETTINGS if get_origin(row.type) is Annotated}
    bounds = {name: meta for name, meta in bounds.items() if getattr(meta, "le", None) is not None}
    assert "LISTINGS_RATE_LIMIT" in bounds
    for name, meta in bounds.items():
        (row,) = (row for row in ROWS if row.startswith(f"| `{name}`"))
        assert row.endswith(f" From {meta.ge:,} to {meta.le:,}. |")


def test_every_removed_setting_is_documented() -> None:
    section = (DOCS / "settings.md").read_text("utf-8").partition("## Fixed values")[2].partition("\n## ")[0]
    assert set(re.findall(r"`(LISTINGS_\w+)`", section)) == REMOVED.keys()


@pytest.mark.parametrize("name", [name for row in SETTINGS if row.secret for name in row.variables])
def test_the_file_variable_of_every_secret_is_documented(name: str) -> None:
    assert f"`{name}_FILE` names a file" in (DOCS / "settings.md").read_text("utf-8")


def test_every_check_of_the_doctor_is_in_the_table() -> None:
    section = TROUBLESHOOTING.partition("\n## Checks of listings doctor\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE) == CHECKS


def test_every_path_and_field_is_in_a_table() -> None:
    assert [path for path in ROUTES if f"| `{path}` |" not in API] == []
    assert [field for field in FIELDS if f"`{field}`" not in API] == []


def test_every_guide_is_linked() -> None:
    folder = DOCS.parent / "src" / "listings" / "api" / "docs" / "guides"
    linked = re.findall(r"\]\(\.\./src/listings/api/docs/guides/([a-z-]+)\.md\)", API)
    assert {path.stem for path in folder.glob("*.md")} == set(linked) == set(list_titles())


def test_every_field_on_request_is_in_the_row_of_include() -> None:
    (row,) = (line for line in API.splitlines() if line.startswith("| `include` |"))
    assert set(re.findall(r"`(\w+)`", row)) == {"include", "all", *INCLUDABLE_FIELDS}


def test_the_columns_of_a_file_are_documented_in_their_order() -> None:
    page = (DOCS / "transfer.md").read_text("utf-8")
    assert f"\n{','.join(COLUMNS)}\n" in page
    (line,) = (line for line in page.splitlines() if line.startswith('{"id":'))
    assert tuple(json.loads(line)) == COLUMNS


def test_every_metric_is_in_the_table_with_its_labels(tmp_path: Path) -> None:
    page = (DOCS / "metrics.md").read_text("utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `listings_")]
    documented = {name: labels for _, name, labels, *_ in rows}
    metrics = Metrics(tmp_path / "listings.db", lambda: None)
    metrics.record_state("", 0, 0, 0)
    metrics.record_response(RequestLine(method="GET", route="/healthz", status=200))
    metrics.record_mail("sent")
    exported: dict[str, set[str]] = {}
    for family in metrics.registry.collect():
        name = f"{family.name}{'_total' if family.type == 'counter' else '_info' if family.type == 'info' else ''}"
        exported[name] = {label for sample in family.samples for label in sample.labels} - {"le"}
    exported |= {sample.name: set() for family in build_worker_metrics(1, 0) for sample in family.samples}
    ours = {name: labels for name, labels in exported.items() if name.startswith("listings_")}
    assert {name.strip(" `"): set(re.findall(r"`(\w+)`", labels)) for name, labels in documented.items()} == ours


def list_commands(group: click.Group, path: str = "listings") -> list[tuple[str, click.Command]]:
    found: list[tuple[str, click.Command]] = []
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found += (
            list_commands(command, f"{path} {name}")
            if isinstance(command, click.Group)
            else [(f"{path} {name}", command)]
        )
    return found


def test_every_command_is_in_the_operators_table() -> None:
    table = re.findall(r"^\| `(listings [a-z ]+[a-z])[ A-Z_.]*[^`]*` \|", OPERATING, re.MULTILINE)
    assert table == sorted(path for path, _ in list_commands(listings))
