"""Import and export the listings of an account."""

import asyncio
from collections.abc import AsyncIterator, Callable

from listings.contract.imports import ImportProgress
from listings.domain.model import Account, Listing, bucket_of
from listings.service.transfer.importer import (
    Import,
    ImportOptions,
    ImportProgressListener,
    TransferStore,
    build_import_key,
)
from listings.service.transfer.rows import Source

_PAGE_SIZE = 200


class Transfer:
    """Imports and exports listings."""

    def __init__(self, store: TransferStore, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock

    async def read_pages(self, account: Account, after_id: int = 0) -> AsyncIterator[list[Listing]]:
        """Yield all listings of an account with ids above `after_id`, including deleted ones, by ascending id.

        Each page is a separate read, so that no database snapshot stays open.
        """
        while found := await self._store.page_listings(bucket_of(account.id), account.id, after_id, _PAGE_SIZE):
            yield found
            after_id = found[-1].id
            await asyncio.sleep(0)  # a read of SQLite does not yield to the event loop

    async def run_import(
        self, account: Account, source: Source, listener: ImportProgressListener, options: ImportOptions
    ) -> ImportProgress:
        """Import the remaining rows of a file. See `Import.run`."""
        return await Import(self._store, self._clock, account, source, listener, options).run()

    async def find_import(self, account: Account, source: Source, *, new_ids: bool) -> ImportProgress | None:
        """Return the stored progress of the last import of a file, or None if it was never started."""
        return await self._store.find_import(await build_import_key(account, source, new_ids=new_ids))
