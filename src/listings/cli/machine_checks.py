"""The checks of `listings doctor` for what this machine has besides the database: pictures and the search index."""

import asyncio
from pathlib import Path

from listings import wiring
from listings.cli.check_result import Finding, fault, ok, warning
from listings.domain.errors import Problem
from listings.domain.number_text import format_count
from listings.settings import BucketUrl, Settings

_MAX_NAMED = 3


def check_pictures(settings: Settings) -> Finding:
    """Look for the files of all pictures."""
    try:
        place = wiring.build_picture_files(settings).place
    except Problem:
        return ok("Not checked, because a setting is wrong")
    try:
        missing = asyncio.run(wiring.find_missing_pictures(settings, _MAX_NAMED + 1))
    except Problem:
        return ok("Not checked, because the database can't be read")
    except OSError as error:
        reason = str(error.__cause__ or error.strerror).partition("\n")[0].rpartition(" - ")[2]
        return fault(f"{place} can't be read: {reason}", "Uploads get 503: check its address, and AWS_ variables")
    if not missing:
        is_local = isinstance(settings.database, Path) or isinstance(settings.media_url, BucketUrl)
        shared = "" if is_local else ": several machines must share this folder, or use S3"
        return ok(f"All files are in {place}{shared}")
    more = ", ..." if len(missing) > _MAX_NAMED else ""
    named = ", ".join(f"{name}.jpg" for name in missing[:_MAX_NAMED])
    advice = f"Copy the files of your backup to {place}"
    return warning(f"The files of pictures are missing: {named}{more}", advice)


def check_search_index(settings: Settings) -> Finding:
    """Compare a sample of listings with the index."""
    rebuild = "Run `listings market rebuild`"
    try:
        found = asyncio.run(wiring.compare_index(settings))
    except Problem:
        return ok("Not checked, because the database can't be read")
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        # Whatever tantivy raises: its PanicException is a BaseException.
        return fault(f"The index can't be read: {error}", rebuild)
    if found is None:
        return ok("There is none yet: a running service builds it")
    if found.different:
        return fault(f"{found.different} of {found.compared} listings differ from the database", rebuild)
    if found.is_stuck:
        return fault("The index does not follow the database", "The log has the reason. Otherwise restart the service")
    return ok(f"{format_count(found.compared, 'listing')} compared, as in the database")
