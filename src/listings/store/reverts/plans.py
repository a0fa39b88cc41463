"""Plan the writes of a revert, a step at a time. The scripts only read."""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from listings.domain import timestamps
from listings.domain.account_limits import NO_GROWTH, AccountLimits, AccountSize, measure_growth
from listings.domain.errors import Problem
from listings.domain.external_ids import find_claimed
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
    RevertOverlay,
    RevertPlan,
    RevertPosition,
    RevertScope,
    RevertStep,
    free_external_id,
    leave_all,
    leave_external_id,
    list_needed,
    plan_revert,
    read_history,
)
from listings.store import sql
from listings.store.change_reads import build_values
from listings.store.mapping import AccountState, Partition, build_listing
from listings.store.reverts import sql as revert_sql
from listings.store.scripts.script import Transaction

_MAX_EDITS = 2_000  # per listing
_MAX_BYTES = 4 * 1024 * 1024  # of values and edits, and characters of texts, in memory at a time
_EDIT_BYTES = 200  # of an edit without its values
_CHUNK = 25  # listings whose edits are in memory at a time: those of the smallest step


class HoldersChangedError(Exception):
    """Another listing got an external id after the chains were followed, and before they were locked."""


class PlanOptions(NamedTuple):
    """What to plan: the change sets to revert, the current Unix time, and the limits of the account.

    `key` and `group_id` are those of the revert, once it has begun. `overlay` is that of a preview.
    """

    scope: RevertScope
    limits: AccountLimits
    now: int
    key: RevertKey | None = None
    group_id: int | None = None
    overlay: RevertOverlay | None = None


class Planned(NamedTuple):
    """A listing, its plan, and the external id that the changes take.

    If `is_ahead`, it is not its turn, and the plan only frees its external id. `was_ahead`: this was done before.
    """

    listing: Listing
    plan: RevertPlan
    claimed: str | None
    size: int = 0
    was_ahead: bool = False
    is_ahead: bool = False

    @property
    def held(self) -> str | None:
        """The external id that the listing has, unless it is deleted."""
        return None if self.listing.deleted_at is not None else self.listing.external_id

    @property
    def frees(self) -> bool:
        """Whether the changes free that external id."""
        changes = self.plan.changes
        return changes.get("deleted_at") is not None or changes.get("external_id", self.held) != self.held


class Plans(NamedTuple):
    """The plans of a step, of which the first `done` candidates are planned, and the growth of the account by them.

    `edit_revision` is that of the account before the step.
    """

    planned: list[Planned]
    done: int
    growth: AccountSize
    edit_revision: int


class _Link(NamedTuple):
    """The part of a listing's plan that its chain needs."""

    claimed: str | None
    frees: bool
    size: int


class _EditedListing(NamedTuple):
    """A listing to be planned, with its edits, newest first, what they mean, and those whose values are needed.

    The edits that the revert itself has written are left out. `has_own`: whether there are any.
    """

    listing: Listing
    edits: Sequence[Edit]
    fields: Mapping[str, FieldHistory]
    needed: set[EditKey]
    has_own: bool

    @property
    def size(self) -> int:
        """Bytes of the edits and the needed values, and characters of the listing's texts."""
        texts = len(self.listing.title) + len(self.listing.content) + len(self.listing.images)
        return texts + _EDIT_BYTES * len(self.edits) + sum(edit.size for edit in self.edits if edit.key in self.needed)


Lock: TypeAlias = Callable[[Sequence[int]], Coroutine[Any, Any, None]]


async def plan_step(
    tx: Transaction, partition: Partition, step: RevertStep, options: PlanOptions, lock: Lock | None = None
) -> Plans:
    """Plan a step, after its listings and the account are locked with `lock`, if it is to be written.

    It ends early if it has too many long texts, or listings that pass on external ids. Raises HoldersChangedError.
    """
    follower = _Follower(partition, options, step.start)
    chains, ahead = await follower.follow(tx, [one.listing_id for one in step.candidates])
    keep = None if lock is None else follower.keep
    if lock is not None:
        await lock(sorted({*ahead, *(one for chain in chains for one in chain)}))
    planned: list[Planned] = []
    done = size = 0
    for start in range(0, len(chains), _CHUNK):
        part = chains[start : start + _CHUNK]
        found = await _plan_listings(tx, partition, [one for chain in part for one in chain], options, step.start)
        for chain in part:
            size += sum(found[one].size for one in chain if one in found)
            if size > _MAX_BYTES and done:
                return await _resolve(tx, partition, planned, done, options, keep)
            planned += [found[one] for one in chain if one in found]
            done += 1
    found = await _plan_listings(tx, partition, ahead, options, step.start)
    planned += [
        one._replace(plan=free_external_id(one.listing, options.now), claimed=None, is_ahead=True)
        for one in found.values()
    ]
    return await _resolve(tx, partition, planned, done, options, keep)


def build_scope(columns: Sequence[Any]) -> RevertScope:
    """Return the scope in the columns of a revert."""
    kind, subject, first, last, since, until, overwrite = columns
    return RevertScope(kind, subject, first, last, since, until, overwrite == 1)


class _Follower:
    """Finds the listings that must be reverted in the same step, because they pass on external ids to each other."""

    def __init__(self, partition: Partition, options: PlanOptions, start: RevertPosition) -> None:
        self._partition = partition
        self._options = options
        self._start = start
        self._links: dict[int, _Link | None] = {}  # None: a listing that is not reverted, or was before
        self._holders: dict[str, int] = {}
        self.keep: set[int] = set()  # other holders, which keep their external ids

    async def follow(self, tx: Transaction, ids: Sequence[int]) -> tuple[list[list[int]], list[int]]:
        """Return the first listings, each with those that must pass on their external ids to it.

        If the first chain is too long, return a part of it, and the next listing, which only loses its external id.
        """
        wanted = [(self._partition[0], one, self._options.scope.first) for one in ids]
        rows = (await tx.fetch_many(revert_sql.MAY_CLAIM, wanted, revert_sql.MAY_CLAIM_OF_LISTINGS)) if wanted else []
        await self._explore(tx, [row[0] for row in rows])
        chains: list[list[int]] = []
        taken: set[int] = set()
        for listing_id in ids:
            chain, rest = (await self._build_chain(tx, listing_id, taken)) if listing_id not in taken else ([], 0)
            if chains and (rest or len(taken) + len(chain) > MAX_STEP_LISTINGS):
                break
            chains.append(chain)
            taken.update(chain)
            if rest:
                return chains, [rest]
        return chains, []

    async def _build_chain(self, tx: Transaction, listing_id: int, taken: set[int]) -> tuple[list[int], int]:
        """Return a listing and those that must pass on their external ids, and the next one if these are too many."""
        chain, size = [listing_id], 0
        while True:
            link = self._links.get(chain[-1])
            holder = (await self._find_next(tx, chain[-1], link)) if link is not None else 0
            if link is None or not holder or holder in taken or holder in chain:
                return chain, 0
            size += link.size
            if len(chain) == MAX_STEP_LISTINGS or size > _MAX_BYTES:
                return chain, holder
            chain.append(holder)

    async def _find_next(self, tx: Transaction, listing_id: int, link: _Link) -> int:
        """Return the listing that must pass on its external id, or 0."""
        holder = self._holders.get(link.claimed or "", listing_id)
        if holder == listing_id:
            return 0
        if holder not in self._links:
            unknown = [holder, *(one for one in self._holders.values() if one not in self._links and one != holder)]
            await self._explore(tx, unknown[:MAX_STEP_LISTINGS])
        held = self._links[holder]
        if held is not None and held.frees:
            return holder
        self.keep.add(holder)
        return 0

    async def _explore(self, tx: Transaction, ids: Sequence[int]) -> None:
        """Plan listings, and find the holders of the external ids that they get."""
        for start in range(0, len(ids), _CHUNK):
            part = ids[start : start + _CHUNK]
            found = await _plan_listings(tx, self._partition, part, self._options, self._start)
            self._links |= dict.fromkeys(part)
            self._links |= {key: _Link(one.claimed, one.frees, one.size) for key, one in found.items()}
        names = {link.claimed for one in ids if (link := self._links[one]) is not None and link.claimed is not None}
        self._holders |= await _find_holders(tx, self._partition, names - self._holders.keys(), self._options.overlay)


async def _plan_listings(
    tx: Transaction, partition: Partition, ids: Sequence[int], options: PlanOptions, start: RevertPosition
) -> dict[int, Planned]:
    """Return the plans of listings, without those that are not reverted, or have been before."""
    planned: dict[int, Planned] = {}
    for first in range(0, len(ids), _CHUNK):
        chunk = [
            one for one in ids[first : first + _CHUNK] if options.overlay is None or one not in options.overlay.handled
        ]
        if not chunk:
            continue
        conflicts: dict[int, int] = {}
        if options.key is not None:
            wanted = [(partition[0], *options.key[1:], one) for one in chunk]
            statements = revert_sql.LIST_CONFLICTS_OF_LISTING, revert_sql.LIST_CONFLICTS_OF_LISTINGS
            conflicts = dict(await tx.fetch_many(statements[0], wanted, statements[1]))
        cases, values = await _read_cases(tx, partition, chunk, options)
        for listing_id, case in cases.items():
            number = conflicts.get(listing_id, 0)
            plan = _plan_case(case, values, options, start, was_ahead=number < 0) if number <= 0 else None
            if plan is not None:
                claimed = find_claimed(case.listing, plan.changes)
                planned[listing_id] = Planned(case.listing, plan, claimed, case.size, was_ahead=number < 0)
    return planned


def _plan_case(
    case: _EditedListing,
    values: Mapping[EditKey, ListingChange],
    options: PlanOptions,
    start: RevertPosition,
    *,
    was_ahead: bool,
) -> RevertPlan | None:
    """Return the plan of a listing, or None if it is not reverted, or was before."""
    if len(case.edits) > _MAX_EDITS:
        return RevertPlan({}, [Conflict("too_many_changes", ())])
    last = next((edit for edit in case.edits if options.scope.includes(edit.source)), None)
    if last is None or (case.has_own and not was_ahead):
        return None
    if start.has_passed(last.source.edit_revision, -case.listing.id if last.is_creation else last.number):
        return None
    return plan_revert(case.listing, case.fields, values, options.now, overwrite=options.scope.overwrite)


async def _read_cases(
    tx: Transaction, partition: Partition, ids: Sequence[int], options: PlanOptions
) -> tuple[dict[int, _EditedListing], dict[EditKey, ListingChange]]:
    """Return listings with their edits, and the values from before the edits that their plans need."""
    keys = [(partition[0], one) for one in ids]
    rows = await tx.fetch_many(revert_sql.GET_CREATED_LISTING, keys, revert_sql.GET_CREATED_LISTINGS)
    edits, firsts, short = await _read_edits(tx, partition, ids, options.scope)
    scopes = [options.scope, *(edit.undoes for found in edits.values() for edit in found if edit.undoes)]
    are_grouped = any(scope.kind == "group" for scope in scopes)  # then a single create may have a row, too
    created = [row for row in rows if row[-1] is not None and row[-1] >= firsts[row[0]]]
    batches = {row[-1] for row in created if row[-2] is None or are_grouped}
    heads = await tx.fetch_many(revert_sql.GET_SET_HEAD, [(*partition, one) for one in sorted(batches)])
    sources = {head[0]: ChangeSource(*head) for head in heads}
    cases = {}
    for *columns, author, edit_revision in rows:
        listing = build_listing(columns)
        all_edits = edits.get(listing.id, [])
        found = [one for one in all_edits if not (one.undoes and one.source.group_id == options.group_id)]
        has_own = len(found) < len(all_edits)
        if edit_revision is not None and edit_revision >= firsts[listing.id] and len(found) <= _MAX_EDITS:
            source = sources.get(edit_revision)
            if source is None:
                moment = timestamps.parse_timestamp(listing.created_at)
                source = ChangeSource(edit_revision, moment, author, "created")
            found.append(Edit(source, 0, CREATION_FIELDS, is_creation=True))
        fields = read_history(found, options.scope) if len(found) <= _MAX_EDITS else {}
        cases[listing.id] = _EditedListing(listing, found, fields, list_needed(fields), has_own)
    needed = set[EditKey]().union(*(case.needed for case in cases.values()))
    values = {key: build_values(*short[key])[0] for key in needed & short.keys()}
    rows = await tx.fetch_many(
        revert_sql.GET_EDIT_VALUES, [(*partition, *key) for key in sorted(needed - short.keys())]
    )
    values |= {(edit, number): build_values(*changed)[0] for edit, number, *changed in rows}
    return cases, values


async def _read_edits(
    tx: Transaction, partition: Partition, ids: Sequence[int], scope: RevertScope
) -> tuple[dict[int, list[Edit]], dict[int, int], dict[EditKey, tuple[str, str]]]:
    """Return the edits of listings in the scope and later, newest first, the first change set read, and short values.

    If an earlier revert is among them, all that it undid is read, too.
    """
    scopes: dict[Any, RevertScope] = {}
    await _read_scopes(tx, partition, scopes, {scope.subject} if scope.kind == "revert" else set())
    firsts, wanted = dict.fromkeys(ids, _find_first(scope, scopes)), list(ids)
    found: dict[int, list[Edit]] = {}
    short: dict[EditKey, tuple[str, str]] = {}
    while wanted:
        keys = [(partition[0], one, firsts[one], _MAX_EDITS + 1) for one in wanted]
        rows = await tx.fetch_many(revert_sql.LIST_EDITS, keys, revert_sql.LIST_EDITS_OF_LISTINGS)
        await _read_scopes(tx, partition, scopes, {row[5] for row in rows if row[4] == "reverted"} - scopes.keys())
        found |= {one: [] for one in wanted}
        for listing_id, *source, number, fields, size, values in rows:
            undoes = scopes.get(source[4]) if source[3] == "reverted" else None
            edit = Edit(ChangeSource(*source), number, fields.split(","), size, undoes=undoes)
            found[listing_id].append(edit)
            if values is not None:
                short[edit.key] = fields, values
        lower = {
            one: min((_find_first(edit.undoes, scopes) for edit in found[one] if edit.undoes), default=firsts[one])
            for one in wanted
        }
        wanted = [one for one in wanted if lower[one] < firsts[one] and len(found[one]) <= _MAX_EDITS]
        firsts |= {one: lower[one] for one in wanted}
    return found, firsts, short


async def _read_scopes(tx: Transaction, partition: Partition, scopes: dict[Any, RevertScope], groups: set[int]) -> None:
    """Add the scopes of reverts, by group, and of the reverts that these undid."""
    while groups:
        heads = await tx.fetch_many(revert_sql.GET_SCOPE_OF_GROUP, [(*partition, one) for one in sorted(groups)])
        found = {group_id: build_scope(columns) for group_id, *columns in heads}
        scopes |= found
        groups = {one.subject for one in found.values() if one.kind == "revert"} - scopes.keys()


def _find_first(scope: RevertScope, scopes: Mapping[Any, RevertScope]) -> int:
    """Return the first change set of a scope and, if it is a revert, of what that undid."""
    first = scope.first
    while scope.kind == "revert" and scope.subject in scopes:
        scope = scopes[scope.subject]
        first = min(first, scope.first)
    return first


async def _find_holders(
    tx: Transaction, partition: Partition, names: Iterable[str], overlay: RevertOverlay | None
) -> dict[str, int]:
    rows = await tx.fetch_many(sql.FIND_EXTERNAL_ID, [(*partition, name) for name in sorted(names)])
    holders = {str(row[1]): int(row[0]) for row in rows}
    if overlay is None:
        return holders
    holders = {name: holder for name, holder in holders.items() if holder not in overlay.freed}
    return holders | {name: overlay.taken[name] for name in names if name in overlay.taken}


async def _resolve(
    tx: Transaction,
    partition: Partition,
    planned: Sequence[Planned],
    done: int,
    options: PlanOptions,
    keep: set[int] | None,
) -> Plans:
    """Leave out changes that would clash with other listings' external ids, or exceed the account's limits.

    Listings that take no external id come first, since they may make room.
    """
    ordered = sorted(planned, key=lambda one: one.claimed is not None)
    names = {one.claimed for one in ordered if one.claimed is not None}
    holders = await _find_holders(tx, partition, names, options.overlay)
    if keep is not None and not keep.issuperset(set(holders.values()) - {one.listing.id for one in planned}):
        raise HoldersChangedError
    state = await tx.get(AccountState, sql.GET_ACCOUNT_SIZE, partition)
    options = options._replace(limits=options.limits.override((state.max_listings, state.max_text_bytes)))
    overlay = options.overlay
    size = state.size if overlay is None else state.size.add(overlay.growth)
    resolved, growth = _check_plans(ordered, holders, size, options)
    while resolved != ordered:  # a listing that is left out keeps the external id that another one takes
        ordered = resolved
        resolved, growth = _check_plans(ordered, holders, size, options)
    if overlay is not None:
        overlay.growth = overlay.growth.add(growth)
        overlay.handled |= {one.listing.id for one in resolved if not one.is_ahead}
        overlay.freed |= {one.listing.id for one in resolved if one.frees}
        overlay.taken |= {one.claimed: one.listing.id for one in resolved if one.claimed is not None}
    return Plans(resolved, done, growth, state.edit_revision)


def _check_plans(
    planned: Sequence[Planned], holders: Mapping[str, int], size: AccountSize, options: PlanOptions
) -> tuple[list[Planned], AccountSize]:
    """Return the plans without the changes that are impossible if all others are written, and their growth.

    `holders` are the ids of listings by external id, and `size` is the size of the account.
    """
    freed = {one.listing.id for one in planned if one.frees}
    taken = {name: holder for name, holder in holders.items() if holder not in freed}
    checked: list[Planned] = []
    total = NO_GROWTH
    for one in planned:
        listing, plan, claimed = one.listing, one.plan, one.claimed
        if claimed is not None and taken.get(claimed, listing.id) != listing.id:
            plan = leave_external_id(plan, listing, taken[claimed], options.now)
        growth = measure_growth(listing, plan.changes)
        try:
            options.limits.require_room(size.add(total), growth)
        except Problem:
            plan, growth = leave_all(plan, "account_full"), NO_GROWTH
        total = total.add(growth)
        claimed = find_claimed(listing, plan.changes)
        checked.append(one if plan is one.plan else one._replace(plan=plan, claimed=claimed))
        if claimed is not None:
            taken[claimed] = listing.id
    return checked, total
