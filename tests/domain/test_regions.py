"""The regions, and the texts that name them."""

import pytest

from listings.domain.market.regions import REGIONS, fold_region


@pytest.mark.parametrize(
    ("text", "region"),
    [
        ("wellington", "Wellington"),
        ("  Otago Region ", "Otago"),
        ("HAWKES BAY", "Hawke's Bay"),
        ("Hawke\u2019s Bay", "Hawke's Bay"),
        ("Manawatu/Wanganui", "Manawatū-Whanganui"),
        ("te tai tokerau", "Northland"),
        ("Christchurch", "Canterbury"),
        ("Chatham Islands", "Chatham Islands"),
        ("", ""),
    ],
)
def test_a_text_is_folded_onto_the_region_that_it_names(text: str, region: str) -> None:
    assert fold_region(text) == region


def test_there_are_sixteen_regions() -> None:
    assert len(set(REGIONS)) == 16
    assert [fold_region(region) for region in REGIONS] == list(REGIONS)
