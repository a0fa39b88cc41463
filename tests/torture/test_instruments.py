"""Run the quick short forms of the instruments. `make torture ARGS=--short` runs all of them, each with its control."""

import re
from pathlib import Path

import pytest

from tests.torture.instrument import Instrument
from tests.torture.instruments import canary, disk, kill, migrations, postgres, search_index, seller_client

pytestmark = [pytest.mark.slow, pytest.mark.uncovered]

SUMMARIES = {
    canary.INSTRUMENT: "[1-9]",
    disk.INSTRUMENT: ".",
    kill.INSTRUMENT: "10 kills, [1-9]",
    migrations.INSTRUMENT: ".*: 5 kills.*: 5 kills",
    postgres.INSTRUMENT: "1 crashes, 2 times all sessions ended: ",
    search_index.INSTRUMENT: f"{len(search_index.FAULTS)} faults, [1-9]",
    seller_client.INSTRUMENT: "500 creates, 200 faults; 50 catalogues$",
}


@pytest.mark.parametrize("instrument", SUMMARIES, ids=lambda instrument: instrument.name.partition(":")[0])
def test_an_instrument_finds_no_failure(instrument: Instrument, tmp_path: Path) -> None:
    outcome = instrument.run_short(tmp_path)
    assert list(outcome.failures) == []
    assert re.match(SUMMARIES[instrument], outcome.summary)
