"""The writes of the tests of reverts."""

from collections.abc import Sequence
from typing import Any

from listings.domain.history import Actor
from listings.domain.listings import Batch, IdempotencyRecord, Step
from listings.domain.model import Listing
from listings.domain.reverts import Revert, RevertConflict, RevertPosition, RevertRequest, RevertStep
from tests.contract.test_changes import CREATED_MOMENT, Edits

BOT, OWNER = Actor(7, 1_500), Actor(8, 1_600)
NOW = CREATED_MOMENT + 100
WORKER, OTHER_WORKER = b"a" * 16, b"b" * 16
ALL_OF_BOT = RevertRequest("key", BOT.key_id)


class Reverts(Edits):
    def get(self, listing_id: int) -> Listing:
        listing: Listing = self.run(self.store.get_listing(listing_id))
        return listing

    def delete(self, listing_id: int, actor: Actor = BOT) -> None:
        self.change(listing_id, actor, is_active=False, deleted_at=1_500)

    def run_batch_as(self, actor: Actor, steps: Sequence[Step]) -> list[Any]:
        batch = Batch(steps, atomic=False, dry_run=False, encode=str)
        results: list[Any] = self.run(self.store.run_batch(*self.partition, batch, None, actor))
        return results

    def scan(self, request: RevertRequest) -> tuple[Any, RevertStep]:
        """Return the scope of a request, and everything in it."""
        scope, _ = self.run(self.store.find_revert_scope(*self.partition, request))
        position, found = RevertPosition(scope.last), []
        while True:
            scan = self.run(self.store.scan_revert(*self.partition, scope, position))
            found += scan.candidates
            if scan.is_last:
                return scope, RevertStep(RevertPosition(scope.last), found, scan.end, is_last=True)
            position = scan.end

    def begin(
        self,
        request: RevertRequest = ALL_OF_BOT,
        count: int | None = None,
        idempotency: IdempotencyRecord | None = None,
        now: int = NOW,
    ) -> Any:
        return self.begin_scanned(*self.scan(request), count, idempotency, now)

    def begin_scanned(
        self,
        scope: Any,
        step: RevertStep,
        count: int | None = None,
        idempotency: IdempotencyRecord | None = None,
        now: int = NOW,
    ) -> Any:
        if count is not None:
            end = step.candidates[count - 1].position
            step = step._replace(candidates=step.candidates[:count], end=end, is_last=False)
        actor = Actor(9, now)
        revert: Revert = self.run(self.store.begin_revert(*self.partition, scope, step, actor, idempotency))
        return revert

    def advance(self, revert: Revert, worker: bytes = WORKER, now: int = NOW) -> Revert | None:
        step = self.run(self.store.scan_revert(*self.partition, revert.scope, revert.position))
        advanced: Revert | None = self.run(self.store.advance_revert(revert.key, step, worker, now))
        return advanced

    def conflicts(self, revert: Revert) -> list[RevertConflict]:
        found: list[RevertConflict] = self.run(self.store.page_revert_conflicts(revert.key, 0, 1000))
        return found
