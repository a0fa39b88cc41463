"""The writes of the tests of reverts."""

from typing import Any

from listings.contract.history import Actor
from listings.contract.listings import IdempotencyRecord
from listings.contract.reverts import (
    Revert,
    RevertConflict,
    RevertPosition,
    RevertRequest,
    RevertScan,
    RevertStep,
)
from listings.domain.model import Listing
from tests.contract.test_changes import CREATED_MOMENT, Edits

BOT, OWNER = Actor(7, 1_500), Actor(8, 1_600)
NOW = CREATED_MOMENT + 100
WORKER, OTHER_WORKER = b"a" * 16, b"b" * 16
ALL_OF_BOT = RevertRequest("key", BOT.key_id)


class Reverts(Edits):
    """The writes to an account, and their reverts."""

    def get(self, listing_id: int) -> Listing:
        listing: Listing = self.run(self.store.get_listing(listing_id))
        return listing

    def delete(self, listing_id: int, actor: Actor = BOT) -> None:
        self.change(listing_id, actor, is_active=False, deleted_at=1_500)

    def scan(self, request: RevertRequest) -> tuple[Any, RevertScan]:
        """Return the scope of a request, and everything in it."""
        scope = self.run(self.store.find_revert_scope(*self.partition, request))
        position, found = RevertPosition(scope.last + 1, 0), []
        while True:
            scan = self.run(self.store.scan_revert(*self.partition, scope, position))
            found += scan.candidates
            if scan.is_last:
                return scope, RevertScan(found, scan.end, is_last=True)
            position = scan.end

    def begin(
        self,
        request: RevertRequest = ALL_OF_BOT,
        count: int | None = None,
        idempotency: IdempotencyRecord | None = None,
    ) -> Any:
        scope, (candidates, end, is_last) = self.scan(request)
        step = RevertStep(RevertPosition(scope.last + 1, 0), candidates, end, is_last)
        if count is not None:
            step = step._replace(
                candidates=candidates[:count], end=RevertPosition(*candidates[count - 1][:2]), is_last=False
            )
        actor = Actor(9, NOW)
        revert: Revert = self.run(self.store.begin_revert(*self.partition, scope, step, actor, idempotency))
        return revert

    def advance(self, revert: Revert, worker: bytes = WORKER, now: int = NOW) -> Revert | None:
        scan = self.run(self.store.scan_revert(*self.partition, revert.scope, revert.position))
        step = RevertStep(revert.position, scan.candidates, scan.end, scan.is_last)
        advanced: Revert | None = self.run(self.store.advance_revert(revert.key, step, worker, now))
        return advanced

    def conflicts(self, revert: Revert) -> list[RevertConflict]:
        found: list[RevertConflict] = self.run(self.store.page_revert_conflicts(revert.key, 0, 1000))
        return found
