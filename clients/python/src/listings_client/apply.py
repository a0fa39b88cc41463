"""Apply a plan, in batches whose results are recorded in a journal."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from listings_client import operations
from listings_client.client import Client
from listings_client.errors import StaleError
from listings_client.plan import Entry, Plan, require_current
from listings_client.records import BatchResult

_STALE = {"precondition_failed", "listing_not_found", "external_id_taken"}
"""Errors of listings that somebody has changed since the plan."""


@dataclass
class Outcome:
    """The entries of a plan by their results."""

    applied: list[Entry] = field(default_factory=list)
    skipped: list[tuple[Entry, str]] = field(default_factory=list)  # changed since, with the reason
    failed: list[tuple[Entry, str]] = field(default_factory=list)


class Journal:
    """The results of the batches that were applied, one line of JSON for each, next to the plan's file."""

    def __init__(self, file: Path, plan: Plan) -> None:
        self._path = file.with_name(f"{file.name}.journal")
        self._plan = plan.id
        self.results = dict(self._read())

    def _read(self) -> Iterator[tuple[int, list[BatchResult]]]:
        """Yield the complete lines of this plan. An incomplete one, of a kill, is removed."""
        if not self._path.exists():
            return
        content = self._path.read_bytes()
        complete = content[: content.rfind(b"\n") + 1]
        if complete != content:
            os.truncate(self._path, len(complete))
        for line in complete.splitlines():
            record = json.loads(line)
            if record["plan"] == self._plan:
                yield record["batch"], [BatchResult(**one) for one in record["results"]]

    def write(self, number: int, results: list[BatchResult]) -> None:
        """Record the results of a batch durably."""
        record = {"plan": self._plan, "batch": number, "results": results}
        with os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb") as file:
            file.write(operations.encode(record) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.results[number] = results


def apply_plan(
    client: Client, plan: Plan, journal: Journal, *, strict: bool, on_batch: Callable[[int], None] = lambda _count: None
) -> Outcome:
    """Apply the batches that the journal does not have. Call it again after a crash: it ends in the same state.

    `strict`: raise StaleError before the first write if anything has changed since the plan. Raises ListingsError.
    """
    options = replace(client.options, change_group=plan.group)
    if strict and not journal.results and plan.entries:
        _require_state(client, plan)
    outcome, start = Outcome(), 0
    for number, bodies in enumerate(operations.split([entry.body for entry in plan.entries])):
        require_current(plan, client)
        if number not in journal.results:
            journal.write(number, client.run(operations.send_batch(options, bodies, f"{plan.group}-{number}")))
        for entry, result in zip(plan.entries[start : start + len(bodies)], journal.results[number], strict=True):
            if result.ok:
                outcome.applied.append(entry)
            else:
                (outcome.skipped if result.code in _STALE else outcome.failed).append((entry, result.message))
        start += len(bodies)
        on_batch(len(bodies))
    return outcome


def _require_state(client: Client, plan: Plan) -> None:
    if plan.last is not None:
        if client.last_change() != plan.last:
            raise StaleError(412, "precondition_failed", "Listings were changed since the plan")
        return
    first, name = [plan.entries[0].body], f"{plan.group}-check"
    client.run(operations.send_batch(client.options, first, name, dry_run=True, if_match=plan.tag))
