"""README.md: the tests run its commands and compare the output."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.commands import PROGRAM, Program
from tests.processes import run_program

pytestmark = pytest.mark.uncovered

HOME = Path(__file__).parent.parent
README = (HOME / "README.md").read_text("utf-8")
WITH_STATUS = """curl() { command curl "$@" -w '\\n%{http_code}\\n'; }\n"""


def block(language: str, mark: str) -> str:
    """Return the only fenced block in this language that contains `mark`."""
    (found,) = (text for text in re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL) if mark in text)
    return str(found)


def without_times(text: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "<time>", text)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def test_the_curl_lines_return_the_responses_below_them(program: Program) -> None:
    with program.serve("--demo"):
        check_curl_lines(program.folder)


def check_curl_lines(folder: Path) -> None:
    """Run the lines in the folder of a demo that is running, and compare the responses."""
    script = WITH_STATUS + block("sh", ". data/demo.env")
    outcome = run_program(["bash", "-c", script], cwd=folder, check=True)
    lines = outcome.stdout.splitlines()
    responses = [f"{status} {body}" for body, status in zip(lines[::2], lines[1::2], strict=True)]
    documented = block("text", "listing created").splitlines()
    assert len(responses) == len(documented) == 8
    for response, expected in zip(responses, documented, strict=True):
        if expected.endswith("…"):
            assert response.startswith(expected.removesuffix(" …").rstrip(", "))
        else:
            assert without_times(response) == without_times(expected)
        json.loads(response.partition(" ")[2])


def test_the_lines_for_production_work(program: Program) -> None:
    lines = [
        line for line in block("sh", "account create").splitlines() if "account create" in line or "key create" in line
    ]
    assert program.run("migrate").code == 0
    script = "\n".join(lines).replace(".venv/bin/listings", str(PROGRAM))
    outcome = run_program(["bash", "-ec", script], cwd=program.folder, check=True)
    assert re.fullmatch(r"lst_\w{38}", outcome.stdout.splitlines()[-1])


PAGES = sorted(
    str(path.relative_to(HOME)) for folder in ("*.md", "docs/**/*.md", ".github/**/*.md") for path in HOME.glob(folder)
)


def test_links_between_pages_are_not_broken() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?://)([^)#]+)", (HOME / page).read_text("utf-8")):
            assert ((HOME / page).parent / target).exists(), (page, target)
