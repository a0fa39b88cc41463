"""The results of the checks of `listings doctor`, and the checks that both kinds of database share."""

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from listings import wiring
from listings.domain import timestamps
from listings.domain.errors import Problem
from listings.domain.number_text import format_count
from listings.search.folders import find_root
from listings.settings import BucketUrl, Settings
from listings.store.inspection import Pending
from listings.store.migrations import Difference

Verdict: TypeAlias = Literal["ok", "warning", "fault"]
GIVE_ACCESS = "Run this command as the service's user, or give that user access to"
_MAX_FUTURE_SECONDS = 300
_MAX_MAIL_SECONDS = 3600
_MAX_NAMED_PICTURES = 3


class Finding(NamedTuple):
    """The finding of a check. `advice` says how to fix a warning or fault."""

    verdict: Verdict
    found: str
    advice: str | None = None


CheckResult: TypeAlias = tuple[str, Finding]
"""The name of a check and its finding."""


def ok(found: str) -> Finding:
    """Return the finding that nothing is wrong."""
    return Finding("ok", found)


def warning(found: str, advice: str) -> Finding:
    """Return a finding that does not stop the service."""
    return Finding("warning", found, advice)


def fault(found: str, advice: str) -> Finding:
    """Return a finding with which the service does not work, or is not safe."""
    return Finding("fault", found, advice)


def fault_of(message: str, advice: str = "Correct it") -> Finding:
    """Return the fault that an error message describes. `advice` is for messages that do not end with `: advice`."""
    found, _, own_advice = message.rpartition(": ")
    return fault(found, own_advice[0].upper() + own_advice[1:]) if found else fault(message, advice)


def catch_os_error(check: Callable[[], Finding]) -> Finding:
    """Return the finding of a check, or a fault if a file can't be read."""
    try:
        return check()
    except OSError as error:
        return fault(f"{error.filename} can't be read: {error.strerror}", f"{GIVE_ACCESS} it")


def check_schema(mismatch: str | None, pending: int, differences: Sequence[Difference]) -> Finding:
    """Check that the schema is this version's. `mismatch` is an error message."""
    if mismatch is not None:
        return fault_of(mismatch, "Run the version of Listings that created it, or restore a backup")
    faults = [difference for difference in differences if difference.is_fault]
    if faults:
        return fault(*_describe_differences(faults))
    if pending:
        advice = "Run `listings migrate`, or start the service, which does the same"
        return warning("1 migration is pending" if pending == 1 else f"{pending} migrations are pending", advice)
    if differences:
        return warning(*_describe_differences(differences))
    return ok("It is up to date")


def _describe_differences(differences: Sequence[Difference]) -> tuple[str, str]:
    found = f"The {', the '.join(difference.found for difference in differences)}"
    return found, f"Stop the service, then run: {'; '.join(difference.repair for difference in differences)}"


def check_pending(found: Pending, settings: Settings) -> Iterator[CheckResult]:
    """Check that neither sellers nor emails wait for long."""
    plan_requests = ok("There are none")
    if found.plan_requests:
        oldest = timestamps.format_timestamp(found.oldest_plan_request or 0)
        text = f"{found.plan_requests} open, the oldest since {oldest}"
        advice = "`listings account list --requests` shows them, and `listings account plan` answers one"
        plan_requests = warning(text, advice)
    yield "plan requests", plan_requests
    yield "mail", _check_mail(found, settings)


def _check_mail(found: Pending, settings: Settings) -> Finding:
    is_on = settings.smtp_url is not None
    text = f"{found.mails} queued, {found.given_up_mails} given up in the last 30 days"
    is_late = found.mails > 0 and (found.oldest_mail or 0) < time.time() - _MAX_MAIL_SECONDS
    if is_on and (found.given_up_mails or is_late):
        return warning(text, "Look for mail in the service's log, and check LISTINGS_SMTP_URL and LISTINGS_MAIL_FROM")
    if not is_on and found.mails:
        return warning(f"Off, but {text}", "Set LISTINGS_SMTP_URL again, so that they are sent")
    return ok(text if is_on else "Off, because LISTINGS_SMTP_URL is not set")


def check_stored_times(newest: int | None) -> Finding:
    """Check that the latest stored time is not in the future."""
    if newest is None:
        return ok("-")
    found, now = f"The latest is {timestamps.format_timestamp(newest)}", time.time()
    if newest <= now + _MAX_FUTURE_SECONDS:
        return ok(found)
    found = found.replace("latest", "latest stored time")
    advice = "Correct the machine's clock if it is wrong. If it was wrong before, this warning disappears with time"
    return warning(f"{found}, but the clock says {timestamps.format_timestamp(now)}", advice)


def check_pictures(settings: Settings) -> Finding:
    """Look for the files of all pictures."""
    try:
        place = wiring.build_picture_files(settings).place
    except Problem:
        return ok("Not checked, because a setting is wrong")
    try:
        missing = asyncio.run(wiring.find_missing_pictures(settings, _MAX_NAMED_PICTURES + 1))
    except Problem:
        return ok("Not checked, because the database can't be read")
    except OSError as error:
        reason = str(error.__cause__ or error.strerror).partition("\n")[0].rpartition(" - ")[2]
        if isinstance(settings.media_url, BucketUrl):
            return fault(f"{place} can't be read: {reason}", "Uploads get 503: check its address, and AWS_ variables")
        return fault(f"{place} can't be read: {reason}", f"Uploads get 503. {GIVE_ACCESS} the folder and its files")
    if not missing:
        is_local = isinstance(settings.database, Path) or isinstance(settings.media_url, BucketUrl)
        shared = "" if is_local else ": several machines must share this folder, or use S3"
        return ok(f"All files are in {place}{shared}")
    more = ", ..." if len(missing) > _MAX_NAMED_PICTURES else ""
    named = ", ".join(f"{name}.jpg" for name in missing[:_MAX_NAMED_PICTURES])
    advice = f"Copy the files of your backup to {place}"
    return warning(f"The files of pictures are missing: {named}{more}", advice)


def check_search_index(settings: Settings) -> Finding:
    """Check that the index can be used, and compare a sample of listings with it."""
    root = find_root(settings.file)
    if root.exists() and not os.access(root, os.R_OK | os.W_OK | os.X_OK):
        return fault(f"{root} can't be read and written", f"{GIVE_ACCESS} the folder and its files")
    return _compare_index(settings)


def _compare_index(settings: Settings) -> Finding:
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
