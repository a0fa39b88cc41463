"""Files that are deleted or truncated under a running service, and the recovery that the documentation describes."""

import asyncio
import os
import shutil
from pathlib import Path

from listings.domain.errors import Problem
from listings.store.sqlite.maintenance.backup import back_up
from listings.store.sqlite.maintenance.migrate import migrate
from listings.store.sqlite.maintenance.restore import restore
from tests.processes import list_open_files
from tests.torture.services import RestartableService, create_people
from tests.torture.workload import WRITERS, Workload
from tests.torture.writers import find_all_differences, read_stored_rows

_LIMIT = {"LISTINGS_RATE_LIMIT": "100000"}
_IDLE_SECONDS = 0.3  # in which paused writers receive their last response
_REJECTED_SECONDS, _CONTROL_SECONDS = 5.0, 2.0  # until writes are rejected


async def run_lost_files(folder: Path, rounds: int, fault: str | None) -> tuple[str, list[str]]:
    """Delete and truncate files in turn. Return a summary and the failures."""
    # Without the market, because its process keeps the WAL of a lost file, with which any start is refused.
    with RestartableService(folder, fault, **_LIMIT, LISTINGS_SITE="off") as service:
        people = await create_people(folder, WRITERS)
        service.start()
        await service.wait_until_ready()
        workload = Workload(service.port, people)
        workload.reads_may_fail = True
        for _ in range(rounds):
            await workload.wait_until_acknowledged(30)
            for lose_file in (_truncate_rate_limit, _delete_database, _truncate_wal):
                if not workload.failures:
                    await lose_file(service, workload)
        if workload.failures:
            service.start()  # it may have ended, and the writers need responses to finish
        await workload.finish()
        service.kill()
        rows = read_stored_rows(service.database)
    failures = workload.failures + find_all_differences(workload.writers, rows)
    return f"{rounds} times a deleted database, a truncated WAL and a truncated rate limit file", failures


async def _truncate_rate_limit(service: RestartableService, workload: Workload) -> None:
    """Truncate the file between two requests; the service must go on. During one, it may be killed."""
    await _pause(workload)
    os.truncate(service.database.with_name("listings.db.limits-0000"), 0)
    workload.gate.set()
    await workload.wait_until_acknowledged(WRITERS)
    if service.process is None or service.process.has_ended:
        workload.failures.append("a truncated rate limit file killed the service")


async def _pause(workload: Workload) -> None:
    """Close the gate, and wait until all requests have their responses."""
    workload.gate.clear()
    await asyncio.sleep(_IDLE_SECONDS)


async def _delete_database(service: RestartableService, workload: Workload) -> None:
    """Delete the database, copy it from the running service, and recover from the copy and the WAL."""
    rescued = service.database.with_suffix(".rescued")
    assert service.process is not None
    service.database.unlink()
    await _require_rejected(service, workload, "a deleted database")
    await _pause(workload)  # a copy made while writes went on could be damaged
    copy_deleted_database(service.process.pid, rescued)
    workload.gate.set()
    await _stop_and_require_refusal(service, workload)
    shutil.move(rescued, service.database)
    service.database.with_name("listings.db.needs-recovery").unlink(missing_ok=True)
    await _start(service, workload)


def copy_deleted_database(process_id: int, target: Path) -> None:
    """Copy a deleted database from the open files of the process that uses it, as the documentation describes."""
    files = list_open_files(process_id)
    deleted = next(link for link, file in files.items() if file.endswith("listings.db (deleted)"))
    shutil.copyfile(deleted, target)


async def _truncate_wal(service: RestartableService, workload: Workload) -> None:
    """Truncate the WAL while no write is running, and restore a backup."""
    backup, wal = service.database.with_suffix(".backup"), service.database.with_name("listings.db-wal")
    await _pause(workload)
    back_up(service.database, backup, force=True)
    os.truncate(wal, wal.stat().st_size // 2)
    workload.gate.set()
    await _require_rejected(service, workload, "a truncated WAL")
    await _stop_and_require_refusal(service, workload)
    restore(service.database, backup, force=True)
    await _start(service, workload)


async def _require_rejected(service: RestartableService, workload: Workload, loss: str) -> None:
    before, seconds = workload.acknowledged, _CONTROL_SECONDS if service.is_broken else _REJECTED_SECONDS
    for _ in range(2):  # requests in progress may end after the first rejections
        before = workload.acknowledged
        if not await workload.wait_until_rejected(seconds):
            workload.failures.append(f"writes are not rejected with {loss}")
            return
    if workload.acknowledged != before:
        workload.failures.append(f"writes were acknowledged with {loss}")


async def _stop_and_require_refusal(service: RestartableService, workload: Workload) -> None:
    await asyncio.to_thread(service.stop)
    try:
        migrate(service.database)
    except Problem:
        return
    workload.failures.append("a start after the loss of a file was not refused")


async def _start(service: RestartableService, workload: Workload) -> None:
    service.start()
    await service.wait_until_ready()
    await workload.wait_until_acknowledged()
