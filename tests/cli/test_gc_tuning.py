"""The garbage collector's settings."""

import subprocess
import sys

_SCRIPT = """
import gc
from listings.cli.gc_tuning import tune_garbage_collector
gc.collect()
tune_garbage_collector()
objects, full = [], []
gc.callbacks.append(lambda phase, info: full.append(info) if phase == "stop" and info["generation"] == 2 else None)
for _ in range(200_000):
    objects.append([])  # more than the number of cached responses
print(gc.get_freeze_count() > 1_000, len(full))
gc.collect(0)
cycle = []
cycle.append(cycle)
del cycle
print(gc.collect(0))
"""


def test_full_collections_are_rare_and_young_cycles_are_freed() -> None:
    run = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["True", "0", "1"]
