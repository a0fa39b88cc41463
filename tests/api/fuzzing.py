"""Run schemathesis against the service and its OpenAPI document; `python -m tests.api.fuzzing 20000` for a long run."""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import httpx2

from tests.cli.commands import clean_environment
from tests.harness import Cast, RunningService

SETTINGS = Path(__file__).with_suffix(".toml")
PROGRAM = Path(sys.executable).with_name("schemathesis")
ROOT = Path(__file__).parent.parent.parent


class Report(NamedTuple):
    code: int  # 0 if nothing was found
    text: str

    @property
    def cases(self) -> int:
        return int(re.findall(r"^\s+(\d+) generated", self.text, re.MULTILINE)[0])


def fuzz(folder: Path, examples: int, seed: int | None = None) -> Report:
    """Serve from a folder, and send at most `examples` cases of each kind to each operation.

    Without a seed the cases are always the same.
    """
    repeatable = ["--generation-deterministic"] if seed is None else [f"--seed={seed}"]
    with RunningService(folder, rate_limit="100000") as running:
        cast = running.cast()
        _create_revert(running.base_url, cast.alice.key)
        people = _write_people(folder, cast)
        command = [str(PROGRAM), f"--config-file={SETTINGS}", "run", f"{running.base_url}/openapi.json", "--no-color"]
        completed = subprocess.run(
            [*command, f"--max-examples={examples}", *repeatable],
            cwd=ROOT,
            env=clean_environment() | {"LISTINGS_FUZZ_PEOPLE": str(people), "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    return Report(completed.returncode, completed.stdout)


def _create_revert(base_url: str, key: str) -> None:
    """Create a listing and revert that, with the ids in `fuzzing_hooks`."""
    with httpx2.Client(base_url=base_url, headers={"X-API-Key": key}) as http:
        http.post("/api/v1/listings", json={"title": "Lamp", "content": "Brass."}).raise_for_status()
        http.post("/api/v1/changes/revert", json={"change": 1}).raise_for_status()


def _write_people(folder: Path, cast: Cast) -> Path:
    """Write the callers and their keys for schemathesis, in the format of Web Fuzzing Commons."""
    named = {"alice": cast.alice.key, "bob": cast.bob.key}
    auth = [{"name": name, "fixedHeaders": [{"name": "X-API-Key", "value": key}]} for name, key in named.items()]
    file = folder / "people.json"
    file.write_text(json.dumps({"auth": auth}), "utf-8")
    return file


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        report = fuzz(Path(name), int(sys.argv[1]), seed=int.from_bytes(os.urandom(4)))
    sys.stdout.write(report.text)
    sys.exit(report.code)
