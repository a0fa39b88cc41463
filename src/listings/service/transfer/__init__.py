"""Import and export the listings of an account."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable

from listings.domain.imports import ImportProgress
from listings.domain.model import Account, Listing, bucket_of
from listings.service.transfer.importer import Import, ImportOptions, ImportProgressListener, build_import_key
from listings.service.transfer.rows import Source
from listings.store.store import Store

_PAGE_SIZE = 200
_ORIGIN_LENGTH = 12


class Transfer:
    """Imports and exports listings."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock

    async def get_origin(self) -> str:
        """Return what the versions in an export end with. It differs in another database, and after a restore."""
        database_id = await self._store.get_database_id()
        return hashlib.sha256(f"{database_id} {self._store.restore_id}".encode()).hexdigest()[:_ORIGIN_LENGTH]

    async def read_pages(self, account: Account) -> AsyncIterator[list[Listing]]:
        """Yield all listings of an account, including deleted ones, by ascending id.

        Each page is a separate read, so that no database snapshot stays open.
        """
        after_id = 0
        while found := await self._store.page_listings(bucket_of(account.id), account.id, after_id, _PAGE_SIZE):
            yield found
            after_id = found[-1].id
            await asyncio.sleep(0)  # a read of SQLite does not yield to the event loop

    async def run_import(
        self, account: Account, source: Source, listener: ImportProgressListener, options: ImportOptions
    ) -> ImportProgress:
        """Import the remaining rows of a file. See `Import.run`."""
        origin = await self.get_origin()
        return await Import(self._store, self._clock, account, source, listener, options, origin).run()

    async def find_import(self, account: Account, source: Source, options: ImportOptions) -> ImportProgress | None:
        """Return the stored progress of the last import of a file, or None if it was never started."""
        return await self._store.find_import(await build_import_key(account, source, options))

    async def list_imports(self, account: Account, count: int) -> list[ImportProgress]:
        """Return the account's latest `count` imports, newest first."""
        return await self._store.list_imports(bucket_of(account.id), account.id, count)
