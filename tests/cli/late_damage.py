"""Run `listings` so that damage of the database is found only after the start: `python late_damage.py serve`."""

import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from listings import cli, maintenance
from listings.store.sqlite.maintenance import inspection

DEADLINE = 120  # seconds

_started = threading.Event()
_find_damage = inspection.find_damage
_call_on_damage = maintenance._call_on_damage  # noqa: SLF001 - the service calls it after its start


def find_damage(path: Path, seconds: float, is_over: Callable[[], bool] = lambda: False) -> str:
    _started.wait(DEADLINE)
    return _find_damage(path, seconds, is_over)


def call_on_damage(scan: Future[str], end: Callable[[], None]) -> None:
    _started.set()
    _call_on_damage(scan, end)


inspection.find_damage = find_damage
maintenance._call_on_damage = call_on_damage  # noqa: SLF001 - as above
sys.exit(cli.main())
