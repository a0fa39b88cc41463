"""What an account's activity is kept as, within the transaction that it tells of."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import astuple

from listings.contract.history import CONSOLE, Actor, EventKind, Payment
from listings.contract.imports import ImportKey, ImportProgress, RowOutcome
from listings.contract.listings import ChangeStep, Step, StepResult
from listings.domain.model import Listing, ListingChange, bucket_of
from listings.store import member_sql as console
from listings.store.mapping import Partition
from listings.store.scripts.script import Query, Script


def note(account_id: int, actor: Actor, kind: EventKind, subject: int = 0, detail: object = None) -> Script[None]:
    """An event that is no edit of a listing: numbered behind the revision that it finds."""
    place = (bucket_of(account_id), account_id)
    rows = yield Query(console.GET_STATE, place, locks=True)
    revision = int(rows[0][0])
    rows = yield Query(console.LAST_NUMBER, (*place, revision))
    values = (revision, int(rows[0][0]) + 1, actor.moment, actor.key_id, kind, subject, _encoded(detail))
    yield Query(console.ADD_EVENT, (*place, *values))


def edit_values(
    place: Partition, revision: int, actor: Actor, kind: EventKind, edit: tuple[int, object]
) -> tuple[object, ...]:
    """The values of ADD_EVENT for an edit: of which listing, and what is told of it."""
    return (*place, revision, 0, actor.moment, actor.key_id, kind, edit[0], _encoded(edit[1]))


def record_edit(place: Partition, revision: int, actor: Actor, listing_id: int, changes: ListingChange) -> Script[None]:
    """An edit of one listing."""
    kind = kind_of(changes)
    names = sorted(changes.keys() - {"updated_at"}) if kind == "updated" else None
    yield _edit(place, revision, actor, kind, _encoded(names), listing_id)


class Edits:
    """What the steps of a batch do, by the kind of it: the ids of the listings, for the one event of the batch."""

    def __init__(self) -> None:
        self.of_kind: dict[str, list[int]] = {}

    def watched(self, step: Step) -> Step:
        """The step, whose change is noted when it is one."""
        if not isinstance(step, ChangeStep):
            return step

        def decide(listing: Listing | None) -> ListingChange:
            changes = step.decide(listing)
            if changes:
                self.of_kind.setdefault(kind_of(changes), []).append(step.listing_id)
            return changes

        return ChangeStep(step.listing_id, decide)


def record_batch(place: Partition, actor: Actor, edits: Edits, results: Sequence[StepResult]) -> Script[None]:
    """A batch as one event, unless it has edited nothing."""
    made = [result for result in results if isinstance(result, int)]
    told = ({"created": made} if made else {}) | edits.of_kind
    if told:
        rows = yield Query(console.GET_STATE, place)
        yield _edit(place, int(rows[0][0]), actor, "batch", _encoded(told))


def record_import(key: ImportKey, before: ImportProgress, outcomes: Sequence[RowOutcome], actor: Actor) -> Script[None]:
    """What an import has done so far, as one event: that of its first edit. It was at `before` until this batch."""
    place = (key.bucket, key.account_id)
    detail = {
        "created": before.made + outcomes.count("made"),
        "updated": before.changed + outcomes.count("changed"),
    }
    rows = yield Query(console.GET_IMPORT_REVISION, astuple(key))
    found = rows[0][0]
    if found is not None and (yield Query(console.SET_DETAIL, (*place, found, _encoded(detail)))):
        return
    rows = yield Query(console.GET_STATE, place)
    revision = int(rows[0][0])
    yield _edit(place, revision, actor, "import", _encoded(detail))
    yield Query(console.MARK_IMPORT, (*astuple(key), revision))


def record_payment(payment: Payment, plan_expires_at: int, moment: int) -> Script[None]:
    """A plan that was paid, which is the account's own doing."""
    detail = {"months": payment.months, "plan_expires_at": plan_expires_at, "provider": payment.provider}
    yield from note(payment.account_id, Actor(CONSOLE, moment), "plan_paid", detail=detail)


def kind_of(changes: ListingChange) -> EventKind:
    """What an edit of one listing is."""
    if "deleted_at" not in changes:
        return "updated"
    return "restored" if changes["deleted_at"] is None else "deleted"


def _edit(  # noqa: PLR0913, PLR0917 - the columns
    place: Partition, revision: int, actor: Actor, kind: EventKind, detail: str, listing_id: int = 0
) -> Query:
    return Query(console.ADD_EVENT, (*place, revision, 0, actor.moment, actor.key_id, kind, listing_id, detail))


def _encoded(detail: object) -> str:
    return "" if detail is None else msgspec.json.encode(detail).decode()
