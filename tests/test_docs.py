"""The pages tell what the code does: every setting, every error, every command."""

import re
from pathlib import Path

import click
import pytest

from listings.api.routes import ROUTES
from listings.api.wire import STATUS
from listings.cli import listings
from listings.fields import FIELDS
from listings.settings import SETTINGS, Setting

DOCS = Path(__file__).parent.parent / "docs"
API = (DOCS / "api.md").read_text("utf-8")
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


@pytest.mark.parametrize("code", STATUS)
def test_every_error_is_in_the_table_with_its_status(code: str) -> None:
    assert re.search(rf"^\| {STATUS[code]} \|[^|]*`{code}`", API, re.MULTILINE)  # type: ignore[index]  # a key of it


@pytest.mark.parametrize("path", ROUTES)
def test_every_path_is_in_the_table(path: str) -> None:
    assert f"| `{path}` |" in API


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_is_told(field: str) -> None:
    assert f"`{field}`" in API


def commands(group: click.Group, path: str = "listings") -> list[tuple[str, click.Command]]:
    found: list[tuple[str, click.Command]] = []
    for name, command in group.commands.items():
        found += (
            commands(command, f"{path} {name}") if isinstance(command, click.Group) else [(f"{path} {name}", command)]
        )
    return found


@pytest.mark.parametrize(("path", "command"), commands(listings))
def test_every_command_tells_an_example_of_itself(path: str, command: click.Command) -> None:
    assert f"Example: {path}" in (command.help or "")
