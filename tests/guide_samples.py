"""Run the samples of the served guides, and compare their output with the page."""

import html
import os
import re
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

import httpx2

from tests.harness import TIMEOUT, RunningService
from tests.pictures import photo
from tests.processes import run_program

_PRE = re.compile(r'<pre tabindex="0"><code(?: class="language-(\w+)")?>(.*?)</code></pre>', re.DOTALL)
_OUTPUTS = {"json", "text"}
_FILES = {"go": "go", "javascript": "mjs", "php": "php", "python": "py", "sh": "sh"}
_COMMANDS: Mapping[str, tuple[str, ...]] = {
    "go": ("go", "run"),
    "javascript": ("node",),
    "php": ("php",),
    "python": (sys.executable, "-W", "error"),
    "sh": ("bash", "-e", "-o", "pipefail"),
}


class Sample(NamedTuple):
    """A program in a guide. It prints `output`, in which "…" stands for any text."""

    language: str
    code: str
    output: str


def read_samples(page: str) -> list[Sample]:
    """Return the samples of a page. A block of JSON or text is the output of the sample before it."""
    samples: list[Sample] = []
    for language, escaped in _PRE.findall(page):
        text = html.unescape(escaped)
        if language in _OUTPUTS:
            assert not samples[-1].output, text
            samples[-1] = samples[-1]._replace(output=text)
        else:
            assert language in _COMMANDS, text
            samples.append(Sample(language, text, ""))
    return samples


def run_samples(name: str, folder: Path, languages: Collection[str], variables: Mapping[str, str]) -> None:
    """Run the samples of one guide in these languages against a service of their own, which has three listings."""
    with RunningService(folder / "service") as running:
        key = running.cast().alice.key
        environment = build_environment({**variables, "BASE_URL": running.base_url, "API_KEY": key})
        with httpx2.Client(base_url=running.base_url, headers={"X-API-Key": key}, timeout=TIMEOUT) as http:
            page = http.get(f"/docs/{name}").text
            for number in (1, 2, 3):
                http.post("/api/v1/listings", json={"title": f"Listing {number}", "content": "A sample."})
        for sample in read_samples(page):
            if sample.language in languages:
                printed = run_sample(name, sample, folder, environment)
                assert _build_pattern(sample.output).fullmatch(printed.strip()), (sample.code, printed)


def build_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with these variables, in which `python3` has the samples' packages."""
    return {**os.environ, **variables, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def run_sample(name: str, sample: Sample, folder: Path, environment: Mapping[str, str]) -> str:
    """Save the sample in a file with the name of its guide, run it and return its output."""
    file = folder / f"{name}.{_FILES[sample.language]}"
    file.write_text(sample.code, "utf-8")
    (folder / "photo.jpg").write_bytes(photo())
    command = [*_COMMANDS[sample.language], str(file)]
    done = run_program(command, cwd=folder, env=environment)
    assert (done.returncode, done.stderr) == (0, ""), (sample.code, done.stdout, done.stderr)
    return done.stdout


def _build_pattern(output: str) -> re.Pattern[str]:
    """Return what the output must match. The page breaks the lines of JSON."""
    lines = output.strip().replace("\n  ", "").replace("\n]", "]") if output.startswith("{") else output.strip()
    return re.compile(".*".join(map(re.escape, lines.split("…"))), re.DOTALL)
