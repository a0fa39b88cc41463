"""Plan the writes of a revert, a step at a time. The scripts only read."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any, NamedTuple

from listings.domain import timestamps
from listings.domain.account_limits import NO_GROWTH, AccountLimits, AccountSize, measure_growth
from listings.domain.errors import Problem
from listings.domain.model import Listing, ListingChange
from listings.domain.reverts import (
    CREATION_FIELDS,
    MAX_STEP_LISTINGS,
    ChangeSource,
    Conflict,
    Edit,
    EditKey,
    FieldHistory,
    RevertKey,
    RevertPlan,
    RevertPosition,
    RevertPreview,
    RevertScope,
    RevertStep,
    list_needed,
    plan_revert,
    read_history,
)
from listings.store import sql
from listings.store.change_reads import build_values
from listings.store.mapping import AccountState, Partition, build_listing
from listings.store.reverts import sql as revert_sql
from listings.store.scripts.engine import Engine
from listings.store.scripts.script import Transaction

_MAX_EDITS = 2_000  # per listing
_MAX_BYTES = 4 * 1024 * 1024  # of values and edits, and characters of texts, in memory at a time
_EDIT_BYTES = 200  # of an edit without its values
_CHUNK = 25  # listings whose edits are in memory at a time: those of the smallest step


class HoldersChangedError(Exception):
    """Another listing got an external id after the chains were followed, and before they were locked."""


class Plans(NamedTuple):
    """The plans of a step, of which the first `done` candidates are planned, and the growth of the account by them.

    `edit_revision` is that of the account before the step.
    """

    planned: list[RevertPlan]
    done: int
    growth: AccountSize
    edit_revision: int


class _Link(NamedTuple):
    # The part of a listing's plan that its chain needs.
    claimed: str | None
    frees: bool
    size: int


class _EditedListing(NamedTuple):
    # A listing, its edits (newest first) and the history of its fields, without the edits of the revert itself.
    # `has_own`: whether there are such edits.
    listing: Listing
    edits: Sequence[Edit]
    fields: Mapping[str, FieldHistory]
    has_own: bool


@dataclass(eq=False)
class Planner:
    """Plans a step of a revert, with the listings that must be reverted in it because they pass on external ids.

    `key` and `group_id` are those of the revert, once it has begun. `preview` has the earlier parts of a preview.
    """

    tx: Transaction
    partition: Partition
    scope: RevertScope
    engine: Engine
    now: int
    key: RevertKey | None = None
    group_id: int | None = None
    preview: RevertPreview = field(default_factory=RevertPreview)
    _start: RevertPosition = field(init=False)
    _scopes: dict[Any, RevertScope] = field(default_factory=dict, init=False)  # of earlier reverts, by group
    # None: a listing that is not reverted, or was before.
    _links: dict[int, _Link | None] = field(default_factory=dict, init=False)
    _holders: dict[str, int] = field(default_factory=dict, init=False)
    _keep: set[int] = field(default_factory=set, init=False)  # other holders, which keep their external ids

    async def plan_step(self, step: RevertStep, *, locks: bool = True) -> Plans:
        """Plan a step. Unless it is for a preview, lock its listings and the account.

        It ends early if it has too many long texts, or listings that pass on external ids. Raises HoldersChangedError.
        """
        self._start = step.start
        chains, ahead = await self._follow([one.listing_id for one in step.candidates])
        keep = self._keep if locks else None
        if locks:
            ids = sorted({*ahead, *(one for chain in chains for one in chain)})
            await self.engine.lock_listings(self.tx, self.partition, ids)
            await self.tx.fetch(sql.GET_ACCOUNT_SIZE, self.partition, locks=True)
        planned: list[RevertPlan] = []
        done = size = 0
        for start in range(0, len(chains), _CHUNK):
            part = chains[start : start + _CHUNK]
            found = await self._plan([one for chain in part for one in chain])
            for chain in part:
                own = [found[one] for one in chain if one in found]
                size += sum(one.size for one in own)
                if size > _MAX_BYTES and done:
                    return await self._resolve(planned, done, keep)
                planned += own
                done += 1
        planned += [one.free_external_id(self.now) for one in (await self._plan(ahead)).values()]
        return await self._resolve(planned, done, keep)

    async def _follow(self, ids: Sequence[int]) -> tuple[list[list[int]], list[int]]:
        # Returns the first listings, each with those that must pass on their external ids to it. If the first chain is
        # too long, it returns a part of it, and the next listing, which only loses its external id.
        wanted = [(self.partition[0], one, self.scope.first) for one in ids]
        rows = await self.tx.fetch_each(revert_sql.MAY_CLAIM, wanted)
        await self._explore([listing_id for (listing_id,) in rows])
        chains: list[list[int]] = []
        taken: set[int] = set()
        for listing_id in ids:
            chain, rest = (await self._build_chain(listing_id, taken)) if listing_id not in taken else ([], 0)
            if chains and (rest or len(taken) + len(chain) > MAX_STEP_LISTINGS):
                break
            chains.append(chain)
            taken.update(chain)
            if rest:
                return chains, [rest]
        return chains, []

    async def _build_chain(self, listing_id: int, taken: set[int]) -> tuple[list[int], int]:
        # Returns the next listing, too, if they are too many.
        chain, size = [listing_id], 0
        while True:
            link = self._links.get(chain[-1])
            holder = (await self._find_next(chain[-1], link)) if link is not None else 0
            if link is None or not holder or holder in taken or holder in chain:
                return chain, 0
            size += link.size
            if len(chain) == MAX_STEP_LISTINGS or size > _MAX_BYTES:
                return chain, holder
            chain.append(holder)

    async def _find_next(self, listing_id: int, link: _Link) -> int:
        # Returns the listing that must pass on its external id, or 0.
        holder = self._holders.get(link.claimed or "", listing_id)
        if holder == listing_id:
            return 0
        if holder not in self._links:
            unknown = [holder, *(one for one in self._holders.values() if one not in self._links and one != holder)]
            await self._explore(unknown[:MAX_STEP_LISTINGS])
        held = self._links[holder]
        if held is not None and held.frees:
            return holder
        self._keep.add(holder)
        return 0

    async def _explore(self, ids: Sequence[int]) -> None:
        for start in range(0, len(ids), _CHUNK):
            part = ids[start : start + _CHUNK]
            found = await self._plan(part)
            self._links |= dict.fromkeys(part)
            self._links |= {key: _Link(one.claimed, one.frees, one.size) for key, one in found.items()}
        names = {link.claimed for one in ids if (link := self._links[one]) is not None and link.claimed is not None}
        self._holders |= await self._find_holders(names - self._holders.keys())

    async def _plan(self, ids: Sequence[int]) -> dict[int, RevertPlan]:
        # Without those that are not reverted, or have been before.
        planned: dict[int, RevertPlan] = {}
        for start in range(0, len(ids), _CHUNK):
            chunk = [one for one in ids[start : start + _CHUNK] if one not in self.preview.handled]
            wanted = [] if self.key is None else [(*self.key, one) for one in chunk]
            conflicts = dict(await self.tx.fetch_each(revert_sql.LIST_CONFLICTS_OF_LISTING, wanted))
            cases = await self._read_listings(chunk) if chunk else []
            values = await self._read_values(cases)
            for case in cases:
                number = conflicts.get(case.listing.id, 0)
                plan = self._plan_listing(case, values, was_ahead=number < 0) if number <= 0 else None
                if plan is not None:
                    one, needed = case.listing, list_needed(case.fields)
                    size = len(one.title) + len(one.content) + len(one.images) + _EDIT_BYTES * len(case.edits)
                    size += sum(edit.size for edit in case.edits if edit.key in needed)
                    planned[case.listing.id] = plan._replace(size=size, was_ahead=number < 0)
        return planned

    def _plan_listing(
        self, case: _EditedListing, values: Mapping[EditKey, ListingChange], *, was_ahead: bool
    ) -> RevertPlan | None:
        if len(case.edits) > _MAX_EDITS:
            return RevertPlan(case.listing, {}, [Conflict("too_many_changes", ())])
        last = next((edit for edit in case.edits if self.scope.includes(edit.source)), None)
        if last is None or (case.has_own and not was_ahead):
            return None
        if (last.source.edit_revision, -case.listing.id if last.is_creation else last.number) >= self._start:
            return None
        return plan_revert(case.listing, case.fields, values, self.now, overwrite=self.scope.overwrite)

    async def _read_listings(self, ids: Sequence[int]) -> list[_EditedListing]:
        keys = [(self.partition[0], one) for one in ids]
        rows = await self.tx.fetch_each(revert_sql.GET_CREATED_LISTING, keys)
        edits, firsts = await self._read_edits(ids)
        scopes = [self.scope, *(edit.undoes for found in edits.values() for edit in found if edit.undoes)]
        are_grouped = any(scope.kind == "group" for scope in scopes)  # then a single create may have a row, too
        batches = {
            edit_revision
            for listing_id, *_, author, edit_revision in rows
            if edit_revision is not None and edit_revision >= firsts[listing_id] and (author is None or are_grouped)
        }
        wanted = [(*self.partition, one) for one in sorted(batches)]
        heads = await self.tx.fetch_many(revert_sql.GET_SET_HEAD, wanted)
        sources = {one.edit_revision: one for one in starmap(ChangeSource, heads)}
        cases = []
        for *columns, author, edit_revision in rows:
            listing = build_listing(columns)
            all_edits = edits.get(listing.id, [])
            found = [one for one in all_edits if not (one.undoes and one.source.group_id == self.group_id)]
            has_own = len(found) < len(all_edits)
            if edit_revision is not None and edit_revision >= firsts[listing.id] and len(found) <= _MAX_EDITS:
                if author is None or edit_revision in sources:
                    source = sources[edit_revision]
                else:
                    moment = timestamps.parse_timestamp(listing.created_at)
                    source = ChangeSource(edit_revision, moment, author, "created")
                found.append(Edit(source, 0, CREATION_FIELDS, is_creation=True))
            fields = read_history(found, self.scope) if len(found) <= _MAX_EDITS else {}
            cases.append(_EditedListing(listing, found, fields, has_own))
        return cases

    async def _read_values(self, cases: Sequence[_EditedListing]) -> dict[EditKey, ListingChange]:
        # Those from before the edits that the plans need.
        needed = set[EditKey]().union(*(list_needed(case.fields) for case in cases))
        rows = await self.tx.fetch_each(revert_sql.GET_EDIT_VALUES, [(*self.partition, *key) for key in sorted(needed)])
        return {(first, number): build_values(fields.split(","), detail)[0] for first, number, fields, detail in rows}

    async def _read_edits(self, ids: Sequence[int]) -> tuple[dict[int, list[Edit]], dict[int, int]]:
        # Returns the edits of listings in the scope and later, newest first, and the first change set read. If an
        # earlier revert is among them, all that it undid is read, too.
        if self.scope.kind == "revert":
            await self._read_scopes({self.scope.subject})
        firsts, wanted = dict.fromkeys(ids, self._find_first(self.scope)), list(ids)
        found: dict[int, list[Edit]] = {}
        while wanted:
            keys = [(self.partition[0], one, firsts[one], _MAX_EDITS + 1) for one in wanted]
            rows = await self.tx.fetch_each(revert_sql.LIST_EDITS, keys)
            await self._read_scopes({group for _, _, _, _, kind, group, *_ in rows if kind == "reverted" and group})
            found |= {one: [] for one in wanted}
            for listing_id, edit_revision, moment, actor, kind, group, number, fields, size in rows:
                source = ChangeSource(edit_revision, moment, actor, kind, group)
                undoes = self._scopes.get(group) if kind == "reverted" else None
                found[listing_id].append(Edit(source, number, fields.split(","), size, undoes=undoes))
            lower = {
                one: min((self._find_first(edit.undoes) for edit in found[one] if edit.undoes), default=firsts[one])
                for one in wanted
            }
            wanted = [one for one in wanted if lower[one] < firsts[one] and len(found[one]) <= _MAX_EDITS]
            firsts |= {one: lower[one] for one in wanted}
        return found, firsts

    async def _read_scopes(self, groups: set[int]) -> None:
        # Those of the reverts that these undid, too.
        while groups := groups - self._scopes.keys():
            wanted = [(*self.partition, one) for one in sorted(groups)]
            heads = await self.tx.fetch_many(revert_sql.GET_SCOPE_OF_GROUP, wanted)
            found = {row[0]: RevertScope(*row[1:]) for row in heads}
            self._scopes |= found
            groups = {one.subject for one in found.values() if one.kind == "revert"}

    def _find_first(self, scope: RevertScope) -> int:
        # The first change set of a scope and, if it is a revert, of what that undid.
        first = scope.first
        while scope.kind == "revert" and scope.subject in self._scopes:
            scope = self._scopes[scope.subject]
            first = min(first, scope.first)
        return first

    async def _find_holders(self, names: Iterable[str]) -> dict[str, int]:
        wanted = [(*self.partition, name) for name in sorted(names)]
        rows = await self.tx.fetch_many(sql.FIND_EXTERNAL_ID, wanted)
        holders = {name: holder for holder, name in rows if holder not in self.preview.freed}
        return holders | {name: self.preview.taken[name] for name in names if name in self.preview.taken}

    async def _resolve(self, planned: Sequence[RevertPlan], done: int, keep: set[int] | None) -> Plans:
        # Leaves out changes that would clash with other listings' external ids, or exceed the account's limits.
        # Listings that take no external id come first, since they may make room.
        holders = await self._find_holders({one.claimed for one in planned if one.claimed is not None})
        if keep is not None and not keep.issuperset(set(holders.values()) - {one.listing.id for one in planned}):
            raise HoldersChangedError
        state = await self.tx.get(AccountState, sql.GET_ACCOUNT_SIZE, self.partition)
        limits = self.engine.limits.override((state.max_listings, state.max_text_bytes))
        size = state.size.add(self.preview.growth)
        ordered, growth = list[RevertPlan](), NO_GROWTH
        resolved = sorted(planned, key=lambda one: one.claimed is not None)
        while resolved != ordered:  # a listing that is left out keeps the external id that another one takes
            ordered = resolved
            resolved, growth = _check_plans(ordered, holders, size, limits, self.now)
        return Plans(resolved, done, growth, state.edit_revision)


def _check_plans(
    planned: Sequence[RevertPlan], holders: Mapping[str, int], size: AccountSize, limits: AccountLimits, now: int
) -> tuple[list[RevertPlan], AccountSize]:
    # Leaves out the changes that are impossible if all others are written. `holders`: listings by external id.
    freed = {one.listing.id for one in planned if one.frees}
    taken = {name: holder for name, holder in holders.items() if holder not in freed}
    checked: list[RevertPlan] = []
    total = NO_GROWTH
    for one in planned:
        plan, claimed = one, one.claimed
        if claimed is not None and taken.get(claimed, one.listing.id) != one.listing.id:
            plan = plan.leave_external_id(taken[claimed], now)
        growth = measure_growth(one.listing, plan.changes)
        try:
            limits.require_room(size.add(total), growth)
        except Problem:
            plan, growth = plan.leave_all("account_full"), NO_GROWTH
        total = total.add(growth)
        checked.append(plan)
        claimed = plan.claimed
        if claimed is not None:
            taken[claimed] = one.listing.id
    return checked, total
