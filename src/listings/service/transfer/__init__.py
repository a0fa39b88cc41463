"""Import and export the listings of an account."""

from collections.abc import AsyncIterator, Callable

from listings.contract.imports import ImportProgress, ImportStore
from listings.contract.listings import ListingStore
from listings.domain.model import Account, Listing
from listings.service.transfer.exporter import read_pages
from listings.service.transfer.importer import Import, ImportOptions, ImportProgressListener
from listings.service.transfer.rows import Source


class Transfer:
    """The use cases of imports and exports."""

    def __init__(self, imports: ImportStore, listings: ListingStore, clock: Callable[[], float]) -> None:
        self._imports = imports
        self._listings = listings
        self._clock = clock

    def read_pages(self, account: Account, after_id: int = 0) -> AsyncIterator[list[Listing]]:
        """Yield all listings of an account after an id, including deleted ones, by ascending id."""
        return read_pages(self._listings, account, after_id)

    async def run_import(
        self, account: Account, source: Source, watch: ImportProgressListener, options: ImportOptions
    ) -> ImportProgress:
        """Import the remaining rows of a file. See `Import.run`."""
        return await Import(self._imports, self._listings, self._clock, account, source, watch, options).run()
