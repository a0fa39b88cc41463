"""README.md does what it says: its lines are run as they stand there."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.commands import PROGRAM, Program

HOME = Path(__file__).parent.parent
README = (HOME / "README.md").read_text("utf-8")
STATUS_OF_EACH = """curl() { command curl -w '\\n%{http_code}\\n' "$@"; }\n"""


def block(language: str, mark: str) -> str:
    """The fenced block of a language that holds a mark."""
    (found,) = (text for text in re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL) if mark in text)
    return str(found)


def without_times(text: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "<time>", text)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def test_the_curl_lines_answer_what_stands_below_them(program: Program) -> None:
    script = STATUS_OF_EACH + block("sh", ". data/demo.env")
    with program.serve("--demo"):
        outcome = subprocess.run(["bash", "-c", script], cwd=program.folder, capture_output=True, text=True, check=True)
    lines = outcome.stdout.splitlines()
    answers = [f"{status} {body}" for body, status in zip(lines[::2], lines[1::2], strict=True)]
    promised = block("text", "listing created").splitlines()
    assert len(answers) == len(promised) == 7
    for answer, promise in zip(answers, promised, strict=True):
        if promise.endswith("…"):
            assert answer.startswith(promise.removesuffix(" …").rstrip(", "))
        else:
            assert without_times(answer) == without_times(promise)
        json.loads(answer.partition(" ")[2])


def test_the_lines_for_a_real_service_work(program: Program) -> None:
    lines = [
        line for line in block("sh", "account create").splitlines() if "account create" in line or "key create" in line
    ]
    assert program.run("migrate").code == 0
    script = "\n".join(lines).replace(".venv/bin/listings", str(PROGRAM))
    outcome = subprocess.run(["bash", "-ec", script], cwd=program.folder, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"lst_\w{38}", outcome.stdout.splitlines()[-1])


PAGES = ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in (HOME / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_lead_somewhere(page: str) -> None:
    text = (HOME / page).read_text("utf-8")
    for target in re.findall(r"\]\((?!https?://)([^)#]+)", text):
        assert ((HOME / page).parent / target).exists(), target


@pytest.mark.parametrize("folder", ["api", "cli", "conform", "limiter", "store"])
def test_the_tour_names_every_room(folder: str) -> None:
    assert f"`src/listings/{folder}/`" in README
