"""Runs lst in this process, in a folder of its own, with the key of one seller."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from listings_client import Client
from listings_client.cli import main
from tests.harness import Person, RunningService


class Outcome(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


class Lst:
    """Runs lst as one seller. Nobody answers its questions, because its input is not a terminal."""

    def __init__(self, folder: Path, service: RunningService, seller: Person) -> None:
        self.folder = folder
        self.seller = seller
        self.base_url = service.base_url
        self.environment = {"LISTINGS_API_KEY": seller.key, "LISTINGS_URL": service.base_url}

    def __call__(self, *arguments: str | Path, stdin: str | None = None) -> Outcome:
        done = CliRunner().invoke(main, [str(one) for one in arguments], env=self.environment, input=stdin)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Outcome(done.exit_code, done.stdout, done.stderr)

    def ok(self, *arguments: str | Path, stdin: str | None = None) -> str:
        """Run a command that must succeed. Return its standard output."""
        outcome = self(*arguments, stdin=stdin)
        assert outcome.code == 0, outcome
        return outcome.out

    def data(self, *arguments: str | Path) -> Any:
        """Return the data that a command prints with --json, of several lines the last."""
        return json.loads(self.ok("--json", *arguments).splitlines()[-1])

    def fail(self, code: int, *arguments: str | Path) -> str:
        """Run a command that must end with an exit code. Return its standard error."""
        outcome = self(*arguments)
        assert outcome.code == code, outcome
        return outcome.err

    def write(self, text: str, name: str = "stock.csv") -> Path:
        path = self.folder / name
        path.write_text(text, "utf-8", newline="")
        return path

    def plan(self, text: str, *options: str, name: str = "stock.csv") -> Any:
        """Plan a file. Return the plan's numbers; the plan is plan.json in the folder."""
        return self.data("plan", self.write(text, name), "--out", self.plan_file, *options)

    def load(self, text: str) -> None:
        """Make the catalogue like a file."""
        self.plan(text)
        self.ok("apply", self.plan_file, "--yes")

    @property
    def plan_file(self) -> Path:
        return self.folder / "plan.json"

    def connect(self) -> Client:
        return Client(self.seller.key, self.base_url)

    def read(self) -> dict[str | None, Any]:
        with self.connect() as client:
            return {one.external_id: one for one in client.stream(status="all") if one.deleted_at is None}
