"""Return the free pages of a database to the file system, while no other process has it open."""

from contextlib import closing
from pathlib import Path

import apsw

from listings.domain.errors import Problem, Unavailable
from listings.store.sqlite import connections
from listings.store.sqlite.maintenance import migrate, replacement, snapshot
from listings.store.sqlite.write_lock import WriteLock


def compact(database: Path, progress: snapshot.Progress = snapshot.ignore_progress) -> None:
    """Replace the database by a checked copy without free pages.

    Raises Problem: database_missing, schema_mismatch (the database of another program), backup_refused (no disk space,
    or another process has the database open); Unavailable if the database is damaged or can't be read.
    """
    connections.require_safe_sqlite()
    connections.require_database_file(database)
    try:
        connections.require_no_recovery_marker(database)
        with (
            closing(WriteLock(database)) as lock,
            lock.acquire(),
            closing(connections.open_exclusive(database)) as current,
        ):
            migrate.require_migrated(current)
            real = database.resolve()
            previous = snapshot.choose_copy_path(real, "compact")
            with snapshot.draft_copy(current, real, progress, _vacuum) as draft:
                replacement.remove_side_files(current, real)
                replacement.replace_database(real, draft, previous, lambda file: snapshot.write_copy(current, file))
            previous.unlink(missing_ok=True)
    except apsw.BusyError:
        raise Problem("backup_refused", f"{database} is open in another process: stop the service first") from None
    except (apsw.Error, OSError) as error:
        raise Unavailable(f"The database {database} can't be compacted: {error}; run `listings doctor`") from error


def _vacuum(draft: apsw.Connection) -> None:
    draft.execute("VACUUM").fetchall()
    draft.execute("PRAGMA journal_mode = WAL").fetchall()
