"""Create and change several listings of an account in one transaction, with few statements: batches and imports."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from listings.domain.account_limits import NO_GROWTH, measure_imported
from listings.domain.external_ids import build_taken_problem, find_claimed
from listings.domain.model import BUCKETS, ImportedListing, Listing, ListingChange, bucket_of
from listings.store import search_sql, sql
from listings.store.mapping import AccountState, Partition, build_listing
from listings.store.scripts import listings
from listings.store.scripts.changes import ChangeSet
from listings.store.scripts.engine import Engine
from listings.store.scripts.script import Transaction

_MAX_PENDING_CHARACTERS = 1024 * 1024  # that texts of changed listings may have in memory


class BulkWriter:
    """Collects creates and changes, and writes them together, and the account's counts at the end.

    A create or change that is rejected raises its Problem before anything of it is written.
    """

    def __init__(self, engine: Engine, partition: Partition, change_set: ChangeSet) -> None:
        self.known: dict[int, Listing | None] = {}  # listings that stay in memory, with the changes
        self._engine = engine
        self._limits = engine.limits
        self.partition = partition
        self._change_set = change_set
        self.last_serial = 0  # the bucket's counter, which must be locked and set before creates without an id
        self._indexed: bool | None = None  # whether new listings are indexed
        self._holders: dict[str, int | None] = {}  # ids of listings by external id, those in `_created` included
        self._created: dict[int, ImportedListing] = {}
        self._changed: dict[int, tuple[Listing, ListingChange]] = {}
        self._changed_characters = 0
        self._size = self._before = NO_GROWTH  # the account's, now and before the transaction
        self._creates = self._changes = 0

    async def prepare(
        self,
        tx: Transaction,
        ids: Sequence[int],
        external_ids: Sequence[str],
        new_external_ids: Iterable[str] = (),
        *,
        indexed: bool | None,
    ) -> None:
        """Lock and read the account's listings with these ids or external ids, then lock the account.

        `new_external_ids` are those of new listings. `indexed` is what `Engine.prepare_account` returned, or None if
        it was not called.
        """
        self._indexed = indexed
        if ids or external_ids:
            self.known |= await self._engine.lock_and_read_listings(tx, self.partition, ids, external_ids)
        for one in self.known.values():
            if one is not None and one.external_id is not None and one.deleted_at is None:
                self._holders[one.external_id] = one.id
        state = await tx.find(AccountState, sql.GET_ACCOUNT_SIZE, self.partition, locks=True)
        if state is not None:
            self._size = self._before = state.size
            self._limits = self._limits.override((state.max_listings, state.max_text_bytes))
            self._change_set.begin(state.edit_revision + 1, state.edited_at)
        wanted = dict.fromkeys(one for one in (*external_ids, *new_external_ids) if one not in self._holders)
        if wanted:
            found = await tx.fetch_many(sql.FIND_EXTERNAL_ID, [(*self.partition, one) for one in wanted])
            self._holders |= wanted | {name: holder for holder, name in found}

    async def find(self, tx: Transaction, listing_id: int, *, locks: bool = False) -> Listing | None:
        """Return a listing of any account, as it is after the changes. Lock it if `locks`."""
        if listing_id in self.known:
            return self.known[listing_id]
        if listing_id in self._changed or listing_id in self._created:
            await self._write_pending(tx)
        rows = await tx.fetch(sql.GET_LISTING, (bucket_of(listing_id), listing_id), locks=locks)
        return build_listing(rows[0]) if rows else None

    async def find_holder(self, tx: Transaction, external_id: str) -> int | None:
        """Return the id of the account's listing with the external id."""
        if external_id not in self._holders:
            self._holders[external_id] = await listings.find_holder(tx, self.partition, external_id)
        return self._holders[external_id]

    async def create(self, tx: Transaction, listing: ImportedListing, listing_id: int | None = None) -> int:
        """Create a listing, and return its id: `listing_id` or a new one. Raises Problem."""
        await self._require_acceptable(tx, None, listing)
        if self._changed:  # may give up the external id
            await self._write_pending(tx)
        if listing_id is None:
            listing_id = (self.last_serial + 1) * BUCKETS + self.partition[0]
        self.last_serial = max(self.last_serial, listing_id // BUCKETS)
        self.known.pop(listing_id, None)
        self._created[listing_id] = listing
        self._creates += 1
        is_as_created = listing.updated_at == listing.created_at
        self._change_set.add_created(listing_id, None if is_as_created else listing.updated_at)
        if listing.new.external_id is not None and listing.deleted_at is None:
            self._holders[listing.new.external_id] = listing_id
        return listing_id

    async def change(
        self, tx: Transaction, listing: Listing, changes: ListingChange, base_version: int | None = None
    ) -> Listing:
        """Write changes of a listing, unless they are empty, and return the new listing. Raises Problem.

        `base_version`: that of an import's row.
        """
        await self._require_acceptable(tx, listing, changes)
        if not changes:
            return listing
        await self._make_room(tx, listing, changes)
        await self._change_set.add_changed(tx, listing, changes, base_version)
        values: Mapping[str, Any] = changes
        changed = replace(listing, version=listing.version + 1, **values)
        self._changed[listing.id] = (changed, changes)
        self._changed_characters += len(changed.content)
        self._changes += 1
        if listing.id in self.known:
            self.known[listing.id] = changed
        if listing.external_id is not None and listing.deleted_at is None:
            self._holders[listing.external_id] = None
        if changed.external_id is not None and changed.deleted_at is None:
            self._holders[changed.external_id] = listing.id
        return changed

    async def finish(self, tx: Transaction) -> None:
        """Write the pending edits, the last serial, and the account's counts. The caller writes the change set."""
        await self._write_pending(tx)
        if self._creates:
            await tx.fetch(sql.SKIP_SERIALS, (self.partition[0], self.last_serial))
        if self._creates or self._changes:
            step = int(self._change_set.edit_revision is not None)
            growth = self._size.subtract(self._before)
            rows = await tx.fetch(sql.COUNT_MORE, (*self.partition, self._creates, *growth, step))
            if self._indexed is False and rows and rows[0][0] >= search_sql.MIN_INDEXED_LISTINGS:
                await self._engine.start_indexing(tx, self.partition)

    async def _require_acceptable(
        self, tx: Transaction, listing: Listing | None, decision: ImportedListing | ListingChange
    ) -> None:
        # Adds the account's growth, unless the edit is rejected.
        claimed = find_claimed(listing, decision)
        if claimed is not None:
            holder = await self.find_holder(tx, claimed)
            if holder is not None and (listing is None or holder != listing.id):
                raise build_taken_problem(claimed, holder)
        growth = measure_imported(listing, decision)
        if growth is not NO_GROWTH:
            self._limits.require_room(self._size, growth)
            self._size = self._size.add(growth)

    async def _make_room(self, tx: Transaction, listing: Listing, changes: ListingChange) -> None:
        # A change may depend on the pending edits, and they must not take too much memory.
        if (
            self._created
            or listing.id in self._changed
            or find_claimed(listing, changes) is not None  # which another change may have given up
            or self._changed_characters >= _MAX_PENDING_CHARACTERS
        ):
            await self._write_pending(tx)

    async def _write_pending(self, tx: Transaction) -> None:
        created, self._created = self._created, {}
        changed, self._changed, self._changed_characters = self._changed, {}, 0
        if created:
            event = (None, None, self._change_set.edit_revision)
            rows = [
                listings.build_row(listing_id, self.partition, listing, indexed=bool(self._indexed), event=event)
                for listing_id, listing in created.items()
            ]
            await tx.fetch_many(sql.ADD_LISTING, rows)
            if self._indexed:
                texts = [
                    (listing_id, listing.new.title, listing.new.content) for listing_id, listing in created.items()
                ]
                await self._engine.index_words(tx, self.partition[1], texts)
        if changed:
            may_be_indexed = self._indexed is not False
            await update_many(tx, self._engine, self.partition, list(changed.values()), may_be_indexed=may_be_indexed)


async def update_many(
    tx: Transaction,
    engine: Engine,
    partition: Partition,
    edits: Sequence[tuple[Listing, ListingChange]],
    *,
    may_be_indexed: bool = True,
) -> None:
    """Write changes of different listings, each with the listing after them. The caller must raise the revision.

    No change may take the external id that another one gives up.
    """
    by_columns: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
    for listing, changes in edits:
        by_columns.setdefault(tuple(changes), []).append((partition[0], listing.id, *changes.values()))
    for columns, rows in by_columns.items():
        await tx.fetch_many(sql.build_listing_update(columns), rows, sql.build_listing_updates(columns))
    texts = [(one.id, one.title, one.content) for one, changes in edits if changes.keys() & {"title", "content"}]
    if texts and may_be_indexed:
        found = await tx.fetch_many(sql.IS_LISTING_INDEXED, [(partition[0], text[0]) for text in texts])
        indexed = [text for text, (is_indexed,) in zip(texts, found, strict=True) if is_indexed]
        if indexed:
            await engine.index_words(tx, partition[1], indexed)
