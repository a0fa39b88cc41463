"""Pictures that sellers upload: add, list, delete, and remove those that no listing has shown for long."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import file_digest
from itertools import islice
from pathlib import Path
from typing import IO, NamedTuple, ParamSpec, TypeVar, cast
from zipfile import ZipFile

from listings.domain.errors import Problem, Unavailable
from listings.domain.model import MAX_ID, bucket_of
from listings.domain.pictures import Picture, Sweep, create_name, find_name
from listings.service.pictures.files import PictureFiles
from listings.service.pictures.processor import Processor
from listings.service.pieces import Pieces
from listings.store.store import Store
from listings.tasks import finish

T = TypeVar("T")
P = ParamSpec("P")

MAX_PICTURE_BYTES = 20 * 1024 * 1024  # the largest upload
MAX_ACCOUNT_BYTES = 10 * 1024**3

_DAY = 86_400
_SWEEP_SECONDS = _DAY - 3_600
_UNDO_DAYS = 7  # after the last undo that could show a picture again
_PAGE_SIZE = 500
_MAX_ATTEMPTS = 3  # to sweep an account whose listings change meanwhile
_MAX_NAMED_LISTINGS = 10
_THREADS = 8  # of their own, so that a disk or S3 that hangs delays nothing but pictures
_LATEST = (MAX_ID, "")

_log = logging.getLogger(__name__)


class PictureOptions(NamedTuple):
    """Where the files are, and how many bytes an account may have."""

    files: PictureFiles | None = None  # None: there are no uploads
    max_account_bytes: int = MAX_ACCOUNT_BYTES


NO_PICTURES = PictureOptions()


class Pictures:
    """Stores and deletes the pictures of accounts."""

    def __init__(self, store: Store, clock: Callable[[], float], options: PictureOptions, change_days: int) -> None:
        """`change_days`: how long changes, which may show a picture again, can be undone."""
        self._store = store
        self._unused_seconds = (change_days + _UNDO_DAYS) * _DAY
        self._clock = clock
        self._options = options
        self._files = options.files
        self._processor = Processor(options.files.drafts) if options.files is not None else None
        self._threads = ThreadPoolExecutor(_THREADS, "listings-picture-files")
        self.base_url = options.files.base_url if options.files is not None else ""

    async def add(
        self,
        account_id: int,
        source: IO[bytes] | Path,
        file_name: str = "",
        *,
        dry_run: bool = False,
        max_bytes: int | None = None,
    ) -> tuple[Picture, bool]:
        """Store an uploaded picture. Return it, and whether it is new: the same bytes give the same picture.

        With `dry_run`, only check it. `max_bytes` replaces the limit of accounts without one of their own.

        Raises Problem: invalid_image, account_full, account_disabled; Unavailable.
        """
        if isinstance(source, Path):
            with source.open("rb") as file:
                return await self.add(account_id, file, file_name or source.name, dry_run=dry_run, max_bytes=max_bytes)
        await self.require_files()
        limit = self._options.max_account_bytes if max_bytes is None else max_bytes
        try:
            digest = await finish(self._run(_compute_digest, source))
            return await self._add(account_id, source, digest, file_name, limit, dry_run=dry_run)
        except OSError as error:
            raise Unavailable(f"The picture can't be stored: {error.strerror}", retry_after=10) from error

    async def _add(
        self, account_id: int, source: IO[bytes], digest: bytes, file_name: str, limit: int, *, dry_run: bool
    ) -> tuple[Picture, bool]:
        if await self._store.is_picture_blocked(digest):
            raise Problem("invalid_image", "The operator has removed this picture, so it can't be uploaded again")
        found = await self._store.find_picture_by_digest(account_id, digest)
        if found is not None and not dry_run:  # first, so that no sweep deletes it meanwhile
            found = await self._store.renew_picture(found.name, self._now(), file_name)
        if found is not None and await self._run(self._get_files().has, found.name):
            return found, False
        draft = create_name()  # of its own, because the same upload may arrive twice
        try:
            processed = await cast("Processor", self._processor).process(account_id, source, draft)
            name = found.name if found is not None else create_name()
            picture = Picture(name, account_id, *processed, self._now(), None, file_name)
            if dry_run:
                return picture, True
            return await finish(self._publish(draft, picture, digest, limit, is_new=found is None))
        finally:
            await finish(self._run(self._get_files().discard, draft))

    async def _publish(
        self, draft: str, picture: Picture, digest: bytes, limit: int, *, is_new: bool
    ) -> tuple[Picture, bool]:
        # If it fails, neither the files nor the row is left.
        try:
            await self._run(self._get_files().publish, draft, picture.name)
            stored = await self._store_row(picture, digest, limit)
        except Unavailable:
            raise  # the row may be stored; files without one are deleted by a sweep
        except (OSError, Problem):
            if is_new:
                await self.delete_files([picture.name])
            raise
        if stored.name != picture.name:  # the same upload at the same time
            await self.delete_files([picture.name])
        return stored, is_new and stored.name == picture.name

    async def _store_row(self, picture: Picture, digest: bytes, limit: int) -> Picture:
        try:
            return await self._store.add_picture(picture, digest, limit)
        except Problem as problem:
            if problem.code != "account_full":
                raise
        await self._sweep_account(picture.account_id, room=picture.size)  # deletes the longest unused ones
        return await self._store.add_picture(picture, digest, limit)

    async def page(self, account_id: int, before: tuple[int, str] | None, count: int) -> list[Picture]:
        """Return at most `count` pictures of an account before a time and name, the last upload first."""
        return await self._store.page_pictures(account_id, before or _LATEST, count)

    async def find(self, account_id: int, name: str) -> Picture:
        """Return a picture of an account. Raises Problem("image_not_found")."""
        picture = await self._store.get_picture(name)
        if picture is None or picture.account_id != account_id:
            raise _not_found()
        return picture

    async def get_sizes(self, names: Iterable[str]) -> Mapping[str, tuple[int, int] | None]:
        """Return width and height of the pictures that exist, by name, or None for one that a takedown hides."""
        return await self._store.get_picture_sizes(list(dict.fromkeys(names)), is_public=True)

    async def measure(self, account_id: int) -> tuple[int, int]:
        """Return the bytes of an account's pictures, and their limit."""
        used, own = await self._store.get_picture_usage(account_id)
        return used, self._options.max_account_bytes if own is None else own

    async def set_limit(self, account_id: int, max_bytes: int | None) -> None:
        """Set an account's own limit. None: the limit of all accounts."""
        await self._store.set_picture_limit(account_id, max_bytes)

    async def read_archive(self, account_id: int) -> AsyncIterator[bytes]:
        """Yield a ZIP archive with the JPEGs of an account, in pieces. Raises Unavailable."""
        files, pieces = self._get_files(), Pieces()
        with ZipFile(cast("IO[bytes]", pieces), "w") as archive:
            for file in [f"{name}.jpg" for name in await self._store.list_picture_names(account_id)]:
                try:
                    archive.writestr(file, await self._run(files.read, file))
                except FileNotFoundError:
                    continue
                except OSError as error:
                    raise Unavailable(f"The pictures can't be read: {error.strerror}", retry_after=10) from error
                yield pieces.take()
        yield pieces.take()

    async def list_listings(self, picture: Picture) -> list[int]:
        """Return the ids of the account's listings that show a picture and are not deleted."""
        _, used = await self._store.find_used_pictures(bucket_of(picture.account_id), picture.account_id)
        return sorted(listing_id for listing_id in used.get(picture.name, ()) if listing_id > 0)

    async def delete(self, account_id: int, name: str, *, force: bool = False, dry_run: bool = False) -> list[int]:
        """Delete a picture, and return the ids of the listings that show it, none unless `force` is set.

        Raises Problem: image_not_found, image_in_use; Unavailable.
        """
        picture = await self.find(account_id, name)
        listings = await self.list_listings(picture)
        if listings and not force:
            named = ", ".join(map(str, islice(listings, _MAX_NAMED_LISTINGS)))
            more = ", …" if len(listings) > _MAX_NAMED_LISTINGS else ""
            shown = "A listing shows" if len(listings) == 1 else f"{len(listings)} listings show"
            raise Problem("image_in_use", f"{shown} this picture ({named}{more}): remove it there, or add force=true")
        if not dry_run:
            await self.require_files()
            await self._store.delete_picture(name)
            await self.delete_files([name])
            _log.info("Deleted a picture of account %d", account_id)
        return listings

    async def remove(self, url: str, *, block: bool) -> tuple[Picture, list[int]]:
        """Delete any account's picture, by URL or name, and block further uploads of it if `block` is set.

        Return it with the ids of the listings that show it. Raises Problem("image_not_found"), Unavailable.
        """
        picture = await self._store.get_picture(find_name(url) or url)
        if picture is None:
            raise _not_found()
        listings = await self.list_listings(picture)
        await self.require_files()
        await self._store.delete_picture(picture.name, self._now() if block else None)
        await self.delete_files([picture.name])
        _log.info("Deleted a picture of account %d", picture.account_id)
        return picture, listings

    async def open(self, file: str, name: str) -> int | str | None:
        """Return a descriptor of a picture's file, or the URL where browsers load it. None: it may not be shown."""
        if self._files is None or not await self._store.is_picture_visible(name):
            return None
        if self.base_url:  # without a thread, because all of them may wait for S3
            return self._files.open(file)
        return await self._run(self._files.open, file)

    async def require_files(self) -> None:
        """Raise Unavailable if files can't be stored or deleted at the moment, or belong to another database.

        Otherwise, each of two databases would delete the other's files, for which it has no rows.
        """
        try:
            is_own = await self._run(self._get_files().claim, await self._store.get_database_id())
        except OSError as error:
            _log.warning("Pictures can't be stored in %s: %s", self._get_files().place, error.strerror)
            raise Unavailable(f"Pictures can't be stored or deleted: {error.strerror}", retry_after=10) from error
        if not is_own:
            _log.error("%s has the pictures of another database: set LISTINGS_MEDIA_URL", self._get_files().place)
            raise Unavailable("The folder of pictures belongs to another database", retry_after=60)

    async def delete_files(self, names: Sequence[str]) -> None:
        """Delete the files of pictures, whose rows are deleted. If that fails, a sweep deletes them."""
        if self._files is not None and names:
            try:
                await self._run(self._files.delete, names)
            except OSError as error:
                _log.warning("Files of deleted pictures remain in %s for a day: %s", self._files.place, error.strerror)

    async def sweep(self) -> None:
        """Once a day, in one of the processes: mark and delete unused pictures, and files without a row."""
        if self._files is None:
            return
        await self.require_files()  # before rows are deleted
        if not await self._store.claim_task("sweep pictures", self._now(), _SWEEP_SECONDS):
            return
        after = 0
        while page := await self._store.page_picture_accounts(after, _PAGE_SIZE):
            for account_id in page:
                await self._sweep_account(account_id)
            after = page[-1]
        moment = self._clock() - _DAY
        await self._run(self._files.discard_older, moment)
        old = self._files.list_older(moment)
        while names := await self._run(lambda: sorted(set(islice(old, _PAGE_SIZE)))):
            known = await self._store.get_picture_sizes(names)
            await self.delete_files([name for name in names if name not in known])

    async def _sweep_account(self, account_id: int, room: int = 0) -> None:
        partition = (bucket_of(account_id), account_id)
        for _ in range(_MAX_ATTEMPTS):
            revision, used = await self._store.find_used_pictures(*partition)
            now = self._now()
            sweep = Sweep(used.keys(), revision, now, now - self._unused_seconds, room, now - _DAY)
            deleted = await self._store.sweep_pictures(*partition, sweep)
            if deleted is not None:
                await self.delete_files(deleted)
                return

    def close(self) -> None:
        """End the process that converts pictures."""
        if self._processor is not None:
            self._processor.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self, work: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(work, *arguments, **options))

    def _now(self) -> int:
        return int(self._clock())

    def _get_files(self) -> PictureFiles:
        if self._files is None:
            raise Unavailable("This service has no folder for pictures", retry_after=60)
        return self._files


def _compute_digest(source: IO[bytes]) -> bytes:
    if os.fstat(source.fileno()).st_size > MAX_PICTURE_BYTES:
        raise Problem("body_too_large", f"A picture can have at most {MAX_PICTURE_BYTES} bytes")
    source.seek(0)
    return file_digest(source, "sha256").digest()  # type: ignore[arg-type]  # it needs no more than `readinto`


def _not_found() -> Problem:
    return Problem("image_not_found", "There is no such picture: GET /api/v1/images lists yours")
