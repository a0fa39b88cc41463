"""What Python's collector of garbage is told before the service serves."""

import subprocess
import sys

_SCRIPT = """
import gc
from listings.cli.gc_tuning import spare_lasting_objects
gc.collect()
spare_lasting_objects()
kept, full = [], []
gc.callbacks.append(lambda phase, info: full.append(info) if phase == "stop" and info["generation"] == 2 else None)
for _ in range(200_000):
    kept.append([])  # more than any number of answers that are kept
print(gc.get_freeze_count() > 1_000, len(full))
gc.collect(0)
cycle = []
cycle.append(cycle)
del cycle
print(gc.collect(0))
"""


def test_the_collector_does_not_walk_through_what_stays_but_finds_young_cycles() -> None:
    run = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["True", "0", "1"]
