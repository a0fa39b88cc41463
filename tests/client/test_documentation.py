"""The samples of docs/client.md run as printed, and use every public name."""

import re
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import listings_client
from listings_client import Client
from listings_client.cli import main
from tests.cli.commands import clean_environment
from tests.harness import Person, RunningService
from tests.pictures import photo
from tests.processes import run_program

MODULES = {path.stem for path in Path(listings_client.__file__).parent.glob("*.py")}
PAGE = Path(__file__).parents[2] / "docs" / "client.md"


class Sample(NamedTuple):
    code: str
    output: str


SAMPLES = [
    Sample(*match)
    for match in re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
]


@pytest.mark.parametrize("sample", SAMPLES, ids=range(len(SAMPLES)))
def test_a_sample_prints_what_the_page_says(
    service: RunningService, alice: Person, tmp_path: Path, sample: Sample
) -> None:
    (tmp_path / "photo.jpg").write_bytes(photo())
    environment = {**clean_environment(), "LISTINGS_API_KEY": alice.key, "LISTINGS_URL": service.base_url}
    done = run_program([sys.executable, "-W", "error", "-c", sample.code], cwd=tmp_path, env=environment)
    assert (done.stderr, done.stdout) == ("", sample.output)


def test_the_samples_use_every_public_name() -> None:
    code = "\n".join(sample.code for sample in SAMPLES)
    public = {name for name in vars(listings_client) if not name.startswith("_")} - MODULES
    assert len(public) > 30
    assert [name for name in sorted(public) if not re.search(rf"\b{name}\b", code)] == []
    methods = [name for name in dir(Client) if not name.startswith("_")]
    assert [name for name in methods if f"client.{name}(" not in code] == []


def test_the_samples_are_typed(tmp_path: Path) -> None:
    files = []
    for number, sample in enumerate(SAMPLES):
        files.append(tmp_path / f"sample_{number}.py")
        files[-1].write_text(sample.code, "utf-8")
    options = ["--strict", "--config-file=", f"--cache-dir={tmp_path}"]
    command = [sys.executable, "-m", "mypy", *options, *map(str, files)]
    done = run_program(command)
    assert done.returncode == 0, done.stdout


def test_the_page_of_lst_has_every_command_and_exit_code() -> None:
    page = (PAGE.parent / "lst.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    named = {name for row in rows for name in re.findall(r"`(?:lst )?([a-z]+)`", row.split("|")[1])}
    assert named == set(main.commands)
    assert [row.split("|")[1].strip() for row in rows if re.match(r"\| \d ", row)] == ["0", "1", "2", "3", "4"]
    options = {name for command in main.commands.values() for one in command.params for name in one.opts}
    assert set(re.findall(r"--[a-z][a-z-]+", page)) <= options | {"--json", "--test", "--live"}
