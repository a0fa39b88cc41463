"""Tells whether the machine stood still while something was timed."""

import threading
import time
from types import TracebackType
from typing import Self

_NAP = 0.0005
_LATE = 0.008


class Witness:
    """Naps beside the work and sums up, in milliseconds, by how much it overslept."""

    def __init__(self) -> None:
        self.lost = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        last = time.monotonic()
        while not self._stop.is_set():
            time.sleep(_NAP)
            now = time.monotonic()
            late = now - last - _NAP
            if late > _LATE:
                self.lost += late * 1000
            last = now
