"""Bulk changes: the selected listings, or all that match a search, in slices of one transaction each."""

import asyncio
import hashlib
import secrets
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from listings.domain.errors import Problem
from listings.domain.history import ChangeGroup
from listings.domain.listings import BatchOutcome, ChangeStep
from listings.domain.model import MAX_ID, Listing, ListingChange, ListingQuery
from listings.service import Services
from listings.service.listings.steps import StateCondition, WriteOptions
from listings.service.members.sessions import Member
from listings.site.console.guards import build_form_options
from listings.site.console.listings.actions import PRICE, PriceChange, build_step, describe_action
from listings.site.console.listings.form import label_problem
from listings.site.console.listings.search import Search, find_exact_query

MAX_SELECTED = 100
"""The largest number of listings that a form selects one by one, and of listings in a slice."""

MAX_MATCHING = 10_000
"""The largest number of listings that can be changed together by a search."""

_MAX_COUNTED = 1_001
_MAX_NAMED = 50
_ANY_STATE = StateCondition(None)  # the outcome then has the change set


class BulkForm(NamedTuple):
    """An action on the listings with `ids`, or on all that match the search and have lower ids than `below`.

    A form with the same `form_id` and `digest` takes effect once.
    """

    search: Search
    ids: list[int]
    all_matching: bool
    action: str
    mode: str  # for a price change
    amount: str
    form_id: str
    confirmed: str  # see `effect`
    below: int = MAX_ID

    @property
    def digest(self) -> bytes:
        """The digest of the whole form."""
        return hashlib.sha256(msgspec.json.encode(self)).digest()

    @property
    def effect(self) -> str:
        """The text that a confirmation confirms: the action, and the change of prices that was previewed."""
        return f"{self.action} {self.mode} {self.amount}" if self.action == PRICE else self.action


class BulkResult(msgspec.Struct):
    """The numbers of listings by outcome, title and reason of the first rejected ones, and the change sets.

    `problem`: why later slices were not changed. `rest`: the id below which further listings match, or 0.
    """

    changed: int = 0
    unchanged: int = 0
    rejected: int = 0
    reasons: list[tuple[str, str]] = []
    change_sets: list[int] = []
    problem: Problem | None = None
    rest: int = 0


class _SliceResult(msgspec.Struct):
    changed: int
    unchanged: int
    rejected: list[tuple[int, str]]  # id, reason
    change_set: int = 0


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_SliceResult).decode
_decode_ids = msgspec.json.Decoder(list[int]).decode


async def run(services: Services, member: Member, form: BulkForm, price: PriceChange | None) -> BulkResult:
    """Change all listings of the selection. A rejected listing does not stop the others.

    Each slice is a transaction of its own. If one fails, the result has its problem, and the form can be submitted
    again: slices that were stored take no second effect.
    """
    total = BulkResult()
    group_id = f"#{form.form_id or secrets.token_urlsafe(16)}"  # the same if the form is submitted again
    group = ChangeGroup(group_id, describe_action(form.action, price))
    try:
        ids = await _store_selection(services, member, form) if form.all_matching else form.ids
        for number, start in enumerate(range(0, len(ids), MAX_SELECTED)):
            slice_ = ids[start : start + MAX_SELECTED]
            options = build_form_options(form.form_id, form.digest, f" {number}")
            options = options._replace(state=_ANY_STATE, group=group)
            steps = [build_step(services, member, form.action, listing_id, price) for listing_id in slice_]
            result = await _run_slice(services, member, steps, options)
            total.changed += result.changed
            total.unchanged += result.unchanged
            total.rejected += len(result.rejected)
            total.change_sets += [result.change_set] if result.change_set else []
            for listing_id, reason in result.rejected[: _MAX_NAMED - len(total.reasons)]:
                listing = await services.listings.find_own(member.caller, listing_id)
                total.reasons.append((listing.title if listing is not None else f"Listing {listing_id}", reason))
        if form.all_matching and len(ids) >= MAX_MATCHING:
            query = _build_page(form.search, ids[-1], 1, services.clock())
            following = (await services.listings.find_page_of_any_size(member.caller, query)).listings
            total.rest = ids[-1] if following else 0
    except Problem as problem:
        total.problem = problem
        if problem.code == "idempotency_key_reused":
            message = "This form was already submitted with another change. Select the listings again"
            total.problem = Problem(problem.code, message)
    return total


async def find_first(services: Services, member: Member, form: BulkForm, count: int) -> list[Listing]:
    """Return at most `count` listings of the selection, deleted or not, for a preview."""
    if form.all_matching:
        first = await _find_by_external_id_only(services, member, form)
        query = _build_page(form.search, form.below, count, services.clock())
        return (first + (await services.listings.find_page_of_any_size(member.caller, query)).listings)[:count]
    found = [await services.listings.find_own(member.caller, listing_id) for listing_id in form.ids[:count]]
    return [listing for listing in found if listing is not None]


async def count_selected(services: Services, member: Member, form: BulkForm) -> int:
    """Return the number of selected listings. A number above 1,000 is not exact."""
    if not form.all_matching:
        return len(form.ids)
    if form.below < MAX_ID:
        return len(await _find_ids(services, member, form, _MAX_COUNTED))
    query = msgspec.structs.replace(_build_page(form.search, MAX_ID, 1, services.clock()), count=True)
    total = (await services.listings.find_page_of_any_size(member.caller, query)).total or 0
    return total + len(await _find_by_external_id_only(services, member, form))


async def find_by_external_id(services: Services, member: Member, search: Search) -> list[Listing]:
    """Return the listings whose external id is the searched text."""
    query = find_exact_query(search, services.clock())
    return [] if query is None else (await services.listings.find_page_of_any_size(member.caller, query)).listings


async def _find_by_external_id_only(services: Services, member: Member, form: BulkForm) -> list[Listing]:
    # Without those whose title or content match the search. They come first, so there are none with `below`.
    if form.below < MAX_ID:
        return []
    found = await find_by_external_id(services, member, form.search._replace(after=None))
    if not found:
        return []
    query = _build_page(form.search, MAX_ID, len(found), services.clock())
    query = msgspec.structs.replace(query, ids=tuple(one.id for one in found))
    page = await services.listings.find_page_of_any_size(member.caller, query)
    matching = {listing.id for listing in page.listings}
    return [listing for listing in found if listing.id not in matching]


async def _store_selection(services: Services, member: Member, form: BulkForm) -> list[int]:
    # If the form was submitted before, the ids that were stored then. A new search would miss the listings that the
    # first slices changed, and its slices would begin at other listings.
    ids = await _find_ids(services, member, form, MAX_MATCHING)
    options = build_form_options(form.form_id, form.digest, " ids")
    stored = await services.listings.run_batch(
        member.caller, [], lambda _: _encode(ids).decode(), options, atomic=False
    )
    return _decode_ids(stored) if isinstance(stored, str) else ids


async def _find_ids(services: Services, member: Member, form: BulkForm, count: int) -> list[int]:
    ids = [listing.id for listing in await _find_by_external_id_only(services, member, form)]
    below = form.below
    while len(ids) < count:
        await asyncio.sleep(0)  # a read of SQLite does not yield to the event loop
        query = _build_page(form.search, below, min(count - len(ids), MAX_SELECTED), services.clock())
        page = await services.listings.find_page_of_any_size(member.caller, query)
        ids += [listing.id for listing in page.listings]
        if page.next_cursor is None:
            break
        below = ids[-1]
    return ids


def _build_page(search: Search, below: int, limit: int, now: float) -> ListingQuery:
    query, _ = search.query(now)  # in the order of the ids, which no change moves
    return msgspec.structs.replace(query, sort="id", descending=True, after=(below, below), limit=limit, count=False)


async def _run_slice(
    services: Services, member: Member, steps: Sequence[ChangeStep], options: WriteOptions
) -> _SliceResult:
    ids, is_changed = [step.listing_id for step in steps], dict[int, bool]()

    def watch(step: ChangeStep) -> ChangeStep:
        def decide(listing: Listing | None) -> ListingChange:
            decided = step.decide(listing)
            is_changed[step.listing_id] = bool(decided)
            return decided

        return ChangeStep(step.listing_id, decide)

    def encode(outcome: BatchOutcome) -> str:
        outcomes = list(zip(ids, outcome.results, strict=True))
        rejected = [(one, label_problem(result).message) for one, result in outcomes if isinstance(result, Problem)]
        changed = sum(is_changed[listing_id] for listing_id, result in outcomes if not isinstance(result, Problem))
        change_set = outcome.edit_revision or 0 if changed else 0
        return _encode(_SliceResult(changed, len(ids) - changed - len(rejected), rejected, change_set)).decode()

    outcome = await services.listings.run_batch(member.caller, list(map(watch, steps)), encode, options, atomic=False)
    return _decode(outcome if isinstance(outcome, str) else encode(outcome))
